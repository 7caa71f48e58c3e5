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

// Exchange is one request or notification of a client on its way in, and the
// ways back to that client. Nothing else passes between a face and the
// Handler.
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
	// Confirmed: the message echoes the id of a session that was issued to the
	// very program that Who's observed facts describe.
	Confirmed bool
	// Namespace is the label of its project that the client gave, well formed;
	// claimed, and empty where it gave none.
	Namespace string
	// Delivery is the delivery session that the message carries, verified by the
	// front; empty: none.
	Delivery string
	stream   *stream
	request  *http.Request   // that carried the message; nil: none did
	client   context.Context // of the connection of a call in a session; nil: it is the call's own
}

// Left reports that the connection on which the message came is gone. In a session
// that cancels no call, and the answer may be lost.
func (x *Exchange) Left() bool { return x.client != nil && x.client.Err() != nil }

// Sent is a header of the HTTP request that carried the message; "": there is none.
func (x *Exchange) Sent(name string) string {
	if x.request == nil {
		return ""
	}
	return x.request.Header.Get(name)
}

// Arrived is when that request came in, before anything of it was checked; zero: it is
// not known (Options.Timed).
func (x *Exchange) Arrived() (at time.Time) {
	if x.request != nil {
		at, _ = x.request.Context().Value(arrivedKey{}).(time.Time)
	}
	return at
}

// arrivedKey is the time at which a request came in, in its context.
type arrivedKey struct{}

// Handler is what the faces hand exchanges to. It is implemented by relay.
type Handler interface {
	// Known reports whether who may use the route at all. False for a server
	// that does not exist and for one that who may not see alike.
	Known(who *principal.Principal, server string) bool
	// Request serves one request and blocks until it is answered. ctx ends
	// when the client cancels it or its session ends.
	Request(ctx context.Context, x *Exchange) Reply
	// Notification takes what wants no answer. The error says why it was not taken.
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

// ask hands a request to the Handler. Where a wider token is all that was
// missing, the answer is 403 and says which (Authorization, "Scope Challenge
// Handling").
func (d *Door) ask(ctx context.Context, x *Exchange) Reply {
	reply := d.o.Handler.Request(ctx, x)
	if reply.NeedScope == "" || d.o.Resource == nil {
		return reply
	}
	reply.Status = http.StatusForbidden
	reply.challenge = refusals{d}.challenge(pathOf(x.Server), "insufficient_scope", reply.NeedScope)
	return reply
}

// serve runs one request to its end on its stream.
func (d *Door) serve(ctx context.Context, x *Exchange) {
	x.stream.watch()
	reply := d.ask(ctx, x)
	x.stream.finish(x.Era, x.ID, reply)
	x.stream.leave()
}
