// Package front is the HTTP face towards clients: stateless HTTP of 2026-07-28,
// Streamable HTTP with sessions of 2025-03-26 to 2025-11-25, and HTTP+SSE of
// 2024-11-05. It turns a client's message into an Exchange and writes the answer
// in the form that the client expects.
//
// Invariant: a message reaches the Handler only after Host, Origin,
// authentication, media type, size and strict parsing have passed, in that order.
// A session, stream or pending question is reachable only for the principal that
// opened it; for any other caller it does not exist. The front writes every header of
// an answer itself: no header of a server reaches a client.
package front

import (
	"context"
	"net/http"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Exchange is one request or notification of a client, with the ways to answer that client.
// Faces and Handler exchange nothing else.
type Exchange struct {
	Who     *principal.Principal
	Server  string // the route: one server's name, or "" for the aggregate
	Era     Era
	Version string   // the protocol version in force
	Session *Session // legacy only
	ID      wire.ID  // the client's own bytes; nil for a notification
	Method  string
	Params  []byte      // raw, as it came; nil when absent
	Header  http.Header // modern HTTP: the request's headers, for Mcp-Param-*
	Size    int64       // bytes of the message
	// SameProgram reports that the message names a session that was issued to the same program
	// that the observed facts of Who describe.
	SameProgram bool
	// Gap reports, with Listening, that messages on the standalone stream were dropped before
	// the client could get them, or that the session is one of an earlier run.
	Gap bool
	// Namespace is the client's label of its project, well-formed and claimed; empty: none.
	Namespace string
	// Former is the digest of the session that the client's session replaces, well-formed and
	// claimed; empty: none. Session is not nil then.
	Former string
	// Delivery is the delivery session of the message, verified by the front; empty: none.
	Delivery string
	stream   *stream
	request  *http.Request   // the request that carried the message; nil: none
	client   context.Context // ends when the client closes the connection of a call in a session; nil: the context of the call does
	hungUp   func() bool     // of Options.HungUp
}

// Left reports that the connection of the message has ended. In a session this does not
// cancel the call, and the answer may be lost. The kernel is asked too, because the end of
// client follows some time after the client has closed the connection.
func (x *Exchange) Left() bool {
	return x.client != nil && x.client.Err() != nil || x.hungUp != nil && x.hungUp()
}

// Sent returns a header of the HTTP request that carried the message; "": none.
func (x *Exchange) Sent(name string) string {
	if x.request == nil {
		return ""
	}
	return x.request.Header.Get(name)
}

// Arrived returns the time when that request arrived, before any check; zero: unknown
// (Options.Timed).
func (x *Exchange) Arrived() (at time.Time) {
	if x.request != nil {
		at, _ = x.request.Context().Value(arrivedKey{}).(time.Time)
	}
	return at
}

// arrivedKey is the context key of the time when a request arrived.
type arrivedKey struct{}

// Handler serves the exchanges of all faces. It is implemented by relay.
type Handler interface {
	// Known reports whether who may use the route. It is false both for a server that does
	// not exist and for one that who may not see.
	Known(who *principal.Principal, server string) bool
	// Request serves one request and blocks until it is answered. ctx ends when the client
	// cancels the request or its session ends.
	Request(ctx context.Context, x *Exchange) Reply
	// Notification serves a message without an answer. The error is the reason why it was not
	// accepted.
	Notification(ctx context.Context, x *Exchange) *wire.Error
}

// Notify sends a notification to the client on the stream of this exchange.
// It is dropped when the stream has ended.
func (x *Exchange) Notify(method string, params []byte) {
	x.stream.send(rawjson.AppendNotification(nil, method, params))
}

// StartStream makes the answer an event stream before the first message, for
// requests that stay open (subscriptions/listen).
func (x *Exchange) StartStream() { x.stream.begin() }

// errStopped answers a request that the end of the daemon has cancelled.
var errStopped = &wire.Error{Code: 1502, Message: "Doorward is stopping; the request may have been carried out"}

// atStop answers a request that the end of the daemon has cancelled. Only a request that its client
// cancelled goes without an answer. A listen ends with its stream, and its client begins it again.
func (d *Door) atStop(x *Exchange, reply Reply) Reply {
	if reply.None && x.Method != "subscriptions/listen" && d.stopping() {
		return Reply{Error: errStopped}
	}
	return reply
}

// ask passes a request to the Handler and waits for its answer, which has an HTTP status of its own.
func (d *Door) ask(ctx context.Context, x *Exchange) Reply {
	return d.completed(x, d.o.Handler.Request(ctx, x).Answer(ctx))
}

// completed returns the answer with an HTTP status of its own: if the caller only lacks a scope,
// it is 403 with that scope in a challenge (Authorization, "Scope Challenge Handling").
func (d *Door) completed(x *Exchange, reply Reply) Reply {
	reply = d.atStop(x, reply)
	if reply.NeedScope == "" || d.o.Resource == nil {
		return reply
	}
	reply.Status = http.StatusForbidden
	reply.challenge = refusals{d}.challenge(pathOf(x.Server), "insufficient_scope", reply.NeedScope)
	return reply
}

// serve runs one request on its stream until it is answered.
func (d *Door) serve(ctx context.Context, x *Exchange) {
	x.stream.watch()
	reply := d.ask(ctx, x)
	x.stream.finish(x.Era, x.ID, reply)
	x.stream.leave()
}
