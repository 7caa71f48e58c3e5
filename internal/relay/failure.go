package relay

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// The constant texts and codes that a caller gets for a failure.
var (
	errNoServer  = &wire.Error{Code: front.CodeNoMethod, Message: "Unknown server"}
	errNoID      = &wire.Error{Code: front.CodeInvalidRequest, Message: "Invalid request"}
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
	cap    string // the limit that struck, by its key; empty: none did
	retry  int    // seconds, for Retry-After; 0: unknown
	cancel bool   // nobody waits for an answer
}

// textSignIn is what a caller is told of a server that wants a sign-in.
const textSignIn = "Upstream needs sign-in"

// classify turns what an upstream face reports into the contract's table.
func classify(ctx context.Context, server string, err error) failed {
	f := failed{code: codeUpstream, text: "Upstream failed", word: "failed"}
	switch {
	case errors.Is(err, upstream.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		f.code, f.text, f.word = codeTimeout, "Upstream timed out", "timeout"
	case ctx.Err() != nil:
		f.cancel, f.word = true, "cancelled"
	case errors.Is(err, errInstances):
		f.word, f.cap = "busy", capOf(server, "max_instances")
	case errors.Is(err, errConcurrency):
		f.word, f.cap = "busy", capOf(server, "max_concurrency")
	case errors.Is(err, upstream.ErrBusy):
		f.word, f.cap = "busy", "limits.children"
	case errors.Is(err, upstream.ErrStreams):
		f.word, f.cap = "busy", capOf(server, "max_streams")
	case errors.Is(err, upstream.ErrSignIn):
		f.text, f.word = textSignIn, "sign-in"
	}
	f.retry = int((upstream.RetryAfter(err) + time.Second - 1) / time.Second)
	return f
}

// capOf names a limit of one server.
func capOf(server, key string) string { return "mcpServers." + server + ".doorward." + key }

// fail ends an act that its server did not answer. A limit that struck is the
// reason of a refusal, with a record of its own.
func (r *Relay) fail(ctx context.Context, server string, pass gate.Pass, err error) front.Reply {
	if reply := r.heldBack("", pass, err); reply != nil {
		return *reply
	}
	f := classify(ctx, server, err)
	if f.cap != "" && !f.cancel {
		pass.Leave(f.word, 0)
		return r.refused(pass.Refuse(f.cap, gate.CodeUnavailable))
	}
	pass.Leave(f.word, 0)
	if f.cancel {
		return front.Reply{None: true}
	}
	r.log.Warn("upstream failed", "server", server, "ref", pass.Ref, "result", f.word, "err", err)
	e := r.local(f.code, f.text, pass.Ref, err)
	return front.Reply{Error: r.reasoned(e, pass.Act().Who, r.whyFailed(server, err)), RetryAfter: f.retry}
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
		e := r.local(gate.CodeRate, "Too many requests", ref.Ref, nil)
		return front.Reply{Error: r.reasoned(e, ref.Who, ref.Rule), RetryAfter: ref.RetryAfter()}
	case gate.CodeUnavailable:
		if ref.Err == nil {
			e := r.local(gate.CodeUnavailable, capText(ref.Rule), ref.Ref, nil)
			return front.Reply{Error: r.reasoned(e, ref.Who, ref.Rule), RetryAfter: ref.RetryAfter()}
		}
		r.log.Debug("audit log cannot be written: act refused", "err", ref.Err) // the log itself has said so, once
		e := r.local(gate.CodeUnavailable, "Unavailable: the act cannot be recorded", ref.Ref, ref.Err)
		return front.Reply{Error: r.reasoned(e, ref.Who, ref.Err.Error()), RetryAfter: 5}
	}
	reply := front.Reply{Error: r.reasoned(r.local(gate.CodeDenied, "Denied by policy", ref.Ref, nil), ref.Who, r.whyDenied(ref.Rule))}
	if r.stepUp != nil {
		reply.NeedScope = r.stepUp(ref.Asked)
	}
	return reply
}

// capText is what a caller learns of a limit: whether it is its own or the
// server's.
func capText(rule string) string {
	switch rule {
	case gate.RuleCalls:
		return "Too many calls at once"
	case front.RulePerPrincipal, front.RuleSessions:
		return "Too many sessions"
	}
	return "Server is at its limit"
}

// sessionWait is the Retry-After of a session that found no room: sessions end
// less often than calls.
const sessionWait = 5 * time.Second

// Full is the answer to an exchange that met a limit at the door.
func (r *Relay) Full(x *front.Exchange, rule string) front.Reply {
	wait := sessionWait
	if rule == gate.RuleCalls {
		wait = time.Second
	}
	return r.refused(r.gate.Refuse(r.act(x, x.Server, x.Method, ""), rule, gate.CodeUnavailable, wait))
}

// ownLimit reports that an act was refused by a limit of its caller, which
// strikes a whole request and not one server's part in it.
func ownLimit(err error) bool {
	var ref *gate.Refusal
	return errors.As(err, &ref) && (ref.Rule == gate.RuleRate || ref.Rule == gate.RuleCalls || ref.Rule == gate.RuleStreams)
}

// local is an error of Doorward's own, with the number of its record.
func (r *Relay) local(code int64, text string, ref uint64, detail error) *wire.Error {
	data := append([]byte(`{"ref":`), strconv.FormatUint(ref, 10)...)
	if r.dev && detail != nil {
		data = rawjson.AppendQuote(append(data, `,"detail":`...), detail.Error())
	}
	return &wire.Error{Code: code, Message: text, Data: append(data, '}')}
}
