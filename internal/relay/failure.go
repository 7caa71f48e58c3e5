package relay

import (
	"context"
	"errors"
	"strconv"

	"github.com/doorward/doorward/internal/front"
	"github.com/doorward/doorward/internal/gate"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/wire"
)

// Constant texts and codes: what a caller learns of a failure.
var (
	errNoServer  = &wire.Error{Code: front.CodeNoMethod, Message: "Unknown server"}
	errNoMethod  = &wire.Error{Code: front.CodeNoMethod, Message: "Method not found"}
	errNoTool    = &wire.Error{Code: front.CodeInvalidParams, Message: "Unknown tool"}
	errNoPrompt  = &wire.Error{Code: front.CodeInvalidParams, Message: "Unknown prompt"}
	errNoURI     = &wire.Error{Code: front.CodeInvalidParams, Message: "Resource not found"}
	errParams    = &wire.Error{Code: front.CodeInvalidParams, Message: "Invalid params"}
	errCursor    = &wire.Error{Code: front.CodeInvalidParams, Message: "Invalid cursor"}
	errState     = &wire.Error{Code: front.CodeInvalidParams, Message: "Invalid requestState"}
	errHeaders   = &wire.Error{Code: front.CodeHeaderMismatch, Message: "A header is missing or differs from the body"}
	emptyResult  = []byte(`{}`)
	codeUpstream = int64(1502)
	codeTimeout  = int64(1504)
	codeBusy     = int64(1503)
)

// invalid is what the caller did wrong, as opposed to what its server did.
type invalid struct{ e *wire.Error }

func (i invalid) Error() string { return i.e.Message }

// failed is why a forwarded request has no answer of its server.
type failed struct {
	code   int64
	text   string
	word   string // for the outcome record
	retry  int    // seconds, for Retry-After
	cancel bool   // nobody waits for an answer
}

// classify turns what an upstream face reports into the contract's table.
func classify(ctx context.Context, err error) failed {
	f := failed{code: codeUpstream, text: "Upstream failed", word: "failed"}
	switch {
	case errors.Is(err, upstream.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		f.code, f.text, f.word = codeTimeout, "Upstream timed out", "timeout"
	case ctx.Err() != nil:
		f.cancel, f.word = true, "cancelled"
	case errors.Is(err, upstream.ErrBusy), errors.Is(err, errInstances), errors.Is(err, errConcurrency):
		f.code, f.text, f.word, f.retry = codeBusy, "Server is at its limit", "busy", 1
	}
	return f
}

// fail ends an act that its server did not answer.
func (r *Relay) fail(ctx context.Context, server string, pass gate.Pass, err error) front.Reply {
	r.gate.Leave(pass, classify(ctx, err).word, 0)
	return r.failure(ctx, server, pass, err)
}

// failure is the answer to an act that its server did not answer.
func (r *Relay) failure(ctx context.Context, server string, pass gate.Pass, err error) front.Reply {
	f := classify(ctx, err)
	if f.cancel {
		return front.Reply{None: true}
	}
	r.log.Warn("upstream failed", "server", server, "ref", pass.Ref, "result", f.word, "err", err)
	return front.Reply{Error: r.local(f.code, f.text, pass.Ref, err), RetryAfter: f.retry}
}

// failedHere reports an error of Doorward's own about its server, as opposed
// to one that the server answered or policy gave.
func failedHere(e *wire.Error) bool {
	return e != nil && e.Raw == nil && (e.Code == codeUpstream || e.Code == codeTimeout || e.Code == codeBusy)
}

// refused is the answer to an act that gate did not let in.
func (r *Relay) refused(err error) front.Reply {
	var ref *gate.Refusal
	if !errors.As(err, &ref) {
		return front.Reply{Error: r.local(codeBusy, "Unavailable", 0, err)}
	}
	switch ref.Code {
	case gate.CodeRate:
		return front.Reply{Error: r.local(gate.CodeRate, "Too many requests", ref.Ref, nil), RetryAfter: 1}
	case gate.CodeUnavailable:
		r.log.Error("audit log cannot be written: act refused", "err", ref.Err)
		return front.Reply{Error: r.local(gate.CodeUnavailable, "Unavailable: the act cannot be recorded", ref.Ref, ref.Err), RetryAfter: 5}
	}
	return front.Reply{Error: r.local(gate.CodeDenied, "Denied by policy", ref.Ref, nil)}
}

// local is an error of Doorward's own, with the number of its record.
func (r *Relay) local(code int64, text string, ref uint64, detail error) *wire.Error {
	data := append([]byte(`{"ref":`), strconv.FormatUint(ref, 10)...)
	if r.dev && detail != nil {
		data = wire.AppendQuote(append(data, `,"detail":`...), detail.Error())
	}
	return &wire.Error{Code: code, Message: text, Data: append(data, '}')}
}
