package front

import (
	"context"
	"net/http"
	"strconv"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Reply is the answer to a request: exactly one of Result and Error, or None if nothing is
// sent because the client cancelled the request.
type Reply struct {
	Result     []byte // raw JSON, written as it is
	Error      *wire.Error
	Status     int // HTTP status if nothing has been streamed; 0: the default
	RetryAfter int // seconds; 0: no header
	// NeedScope is the issuer's scope that the caller lacks. If the answer has an HTTP status
	// of its own, it is 403 with a challenge.
	NeedScope string
	None      bool
	// Transient means that the answer is only for the connection of the request: it is not
	// kept for a client that resumes the stream.
	Transient bool
	// Later is a call that waits for an event, and has no answer before Go returns one. nil:
	// this is the answer.
	Later Later
	// Limit is the key of the limit that refused the act, for the operator; empty: none did.
	Limit string

	challenge string // WWW-Authenticate
}

// Later is a request that waits for an event. Await and Go are called in turns until Go
// returns the answer.
type Later interface {
	// Await returns when Go has something to do, or when ctx has ended.
	Await(ctx context.Context)
	// Go continues the request.
	Go(ctx context.Context) Reply
}

// Answer returns the answer to a request, for which it waits.
func (r Reply) Answer(ctx context.Context) Reply {
	for r.Later != nil {
		r.Later.Await(ctx)
		r = r.Later.Go(ctx)
	}
	return r
}

func appendReply(dst []byte, id wire.ID, r Reply) []byte {
	if r.Error != nil {
		return rawjson.AppendError(dst, id, r.Error)
	}
	return rawjson.AppendResult(dst, id, r.Result)
}

// fail writes a JSON-RPC error with an HTTP status. A nil id is omitted: the request could
// not be identified.
func fail(w http.ResponseWriter, status int, id wire.ID, e *wire.Error) {
	writeJSON(w, status, rawjson.AppendError(nil, id, e))
}

// shortAnswer is the size up to which net/http finds the length of an answer itself
// (http.ResponseWriter: "a few KB"), which takes two allocations less.
const shortAnswer = 2 << 10

// writeJSON writes one complete JSON body.
func writeJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h["Content-Type"] = jsonType
	if len(body) > shortAnswer {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	w.Write(body)
}

// Header values that all answers share. They are never changed, because net/http only reads
// them.
var (
	jsonType   = []string{"application/json"}
	streamType = []string{"text/event-stream"}
	noCache    = []string{"no-cache, no-transform"}
	noBuffer   = []string{"no"}
)

// plain answers with a status and its standard text.
func plain(w http.ResponseWriter, status int) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write([]byte(http.StatusText(status) + "\n"))
}

// statusOf returns the HTTP status of an error if nothing has been streamed: that of
// Doorward's own codes, and in the modern era that which the specification requires
// (Overview, "Error Codes").
func statusOf(era Era, e *wire.Error) int {
	switch e.Code {
	case 1502:
		return http.StatusBadGateway
	case 1503:
		return http.StatusServiceUnavailable
	case 1504:
		return http.StatusGatewayTimeout
	case 1429:
		return http.StatusTooManyRequests
	}
	if era != Modern {
		return http.StatusOK
	}
	switch e.Code {
	case CodeNoMethod:
		return http.StatusNotFound
	case CodeParse, CodeInvalidRequest, CodeInvalidParams, CodeHeaderMismatch, CodeNoCapability, CodeVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}
