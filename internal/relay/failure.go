package relay

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// failures makes the answers to acts that failed or were refused. Only the owner of the
// daemon gets the reason.
type failures struct {
	log     *slog.Logger
	dev     bool
	owner   string
	place   func(rule string) string
	stepUp  func(policy.Request) string
	table   *atomic.Pointer[table]
	closing context.Context
}

// reasoned adds the reason of a failure if the caller is the owner of the daemon. Every other
// caller gets the constant text, which reveals nothing about the machine.
func (a *failures) reasoned(e *wire.Error, who *principal.Principal, reason string) *wire.Error {
	if reason == "" || !a.owns(who) {
		return e
	}
	e.Data = rawjson.Set(e.Data, rawjson.Edit{Key: "reason", Value: rawjson.AppendQuote(nil, reason)})
	return e
}

// owns reports whether a caller is the daemon's own user on the Unix socket.
func (a *failures) owns(who *principal.Principal) bool {
	return a.owner != "" && who.Valid() && who.Name() == a.owner
}

// whyDenied returns the rule of a denial with its place in the configuration.
func (a *failures) whyDenied(rule string) string {
	if a.place == nil {
		return rule
	}
	if at := a.place(rule); at != "" {
		return rule + " (" + at + ")"
	}
	return rule
}

// whyFailed says why a server did not answer: the error, and for a program how its last
// process ended and its last lines on standard error.
func (a *failures) whyFailed(server string, err error) string {
	b := a.table.Load().byName[server]
	switch {
	case a.closing.Err() != nil:
		return "Doorward is stopping"
	case b != nil && b.Refused != "":
		return "refused: " + b.Refused
	}
	why := []string{err.Error()}
	if err == context.DeadlineExceeded {
		why = []string{"no answer in time"}
	}
	if late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, upstream.ErrTimeout); late && b != nil && b.Timeout > 0 {
		why = append(why, failure.CapOf(server, "timeout")+" is "+b.Timeout.String())
	}
	if b != nil && b.Upstream != nil {
		end, lines := b.Upstream.LastWords()
		if end != "" {
			why = append(why, "last process: "+end)
		}
		if len(lines) > 0 {
			why = append(why, "standard error: "+strings.Join(lines, " | "))
		}
		if said := b.strayed(); said != "" {
			why = append(why, said)
		}
	}
	return strings.Join(why, "; ")
}

// fail ends an act that its server did not answer. A limit that was reached becomes the rule
// of a refusal, with a record of its own.
func (a *failures) fail(ctx context.Context, server string, pass gate.Pass, err error) front.Reply {
	if reply := a.heldBack("", pass, err); reply != nil {
		return *reply
	}
	if context.Cause(ctx) == context.DeadlineExceeded && errors.Is(err, context.Canceled) {
		err = context.DeadlineExceeded
	}
	f := failure.Classify(ctx, server, err)
	if f.Cap != "" && !f.Cancel {
		pass.Leave(f.Word, 0)
		return a.refused(pass.Refuse(f.Cap, gate.CodeUnavailable))
	}
	pass.Leave(f.Word, 0)
	if f.Cancel {
		return front.Reply{None: true}
	}
	a.log.Warn("upstream failed", "server", server, "ref", pass.Ref, "result", f.Word, "err", err)
	e := a.local(f.Code, f.Text, pass.Ref, err)
	return front.Reply{Error: a.reasoned(e, pass.Act().Who, a.whyFailed(server, err)), RetryAfter: f.Retry}
}

// failCall is fail, except that a mistake of the caller is answered as invalid.
func (a *failures) failCall(ctx context.Context, t *target, pass gate.Pass, err error) front.Reply {
	if reply := a.heldBack(t.Method(), pass, err); reply != nil {
		return *reply
	}
	var wrong failure.Invalid
	if errors.As(err, &wrong) {
		pass.Leave("invalid", 0)
		return front.Reply{Error: wrong.E}
	}
	return a.fail(ctx, t.b.Name, pass, err)
}

// heldBack answers an act that a pin or a content rule has ended. A withheld object is
// answered like one that does not exist; the owner gets the reason. nil: the failure is of
// another kind.
func (a *failures) heldBack(method string, pass gate.Pass, err error) *front.Reply {
	var held *pin.Held
	var cut *failure.Content
	switch {
	case errors.As(err, &held):
		pass.Leave("withheld", 0)
		refusal := pass.Refuse(held.Reason.Rule(), gate.CodeDenied)
		var d *disguised
		if !a.owns(pass.Act().Who) && errors.As(err, &d) {
			out := front.Reply{Result: d.reply.Result, Error: d.reply.Error}
			if out.Error != nil {
				out.Status = statusFor(method, out.Error)
			}
			return &out
		}
		return a.withheld(method, pass.Act(), refusal.Ref, held)
	case errors.As(err, &cut):
		pass.Leave("blocked", 0)
		refusal := pass.Refuse(cut.Rule, gate.CodeDenied)
		return &front.Reply{Error: a.local(gate.CodeDenied, failure.Blocked, refusal.Ref, nil)}
	}
	return nil
}

// withheld answers an act on a withheld object. ref is the number of the record of the refusal.
func (a *failures) withheld(method string, act gate.Act, ref uint64, held *pin.Held) *front.Reply {
	e := a.local(failure.CodeUpstream, failure.Upstream, ref, held)
	if unknown := failure.UnknownOf(method); unknown != nil {
		e = unknown
	}
	if a.owns(act.Who) {
		own := wire.Error{Code: e.Code, Message: e.Message, Data: a.local(e.Code, "", ref, nil).Data}
		e = a.reasoned(&own, act.Who, failure.WhyWithheld(act.Server, act.Name, held))
	}
	return &front.Reply{Error: e}
}

// disguised is the error of a withheld object with the answer to give.
type disguised struct {
	error
	reply upstream.Reply
}

func (d *disguised) Unwrap() error { return d.error }

// refused answers an act that the gate did not let in.
func (a *failures) refused(err error) front.Reply {
	var ref *gate.Refusal
	if !errors.As(err, &ref) {
		return front.Reply{Error: a.local(failure.CodeBusy, "Unavailable", 0, err)}
	}
	switch ref.Code {
	case gate.CodeRate:
		e := a.local(gate.CodeRate, "Too many requests", ref.Ref, nil)
		return front.Reply{Error: a.reasoned(e, ref.Who, ref.Rule), RetryAfter: ref.RetryAfter()}
	case gate.CodeUnavailable:
		if ref.Err == nil {
			e := a.local(gate.CodeUnavailable, failure.CapText(ref.Rule), ref.Ref, nil)
			return front.Reply{Error: a.reasoned(e, ref.Who, ref.Rule), RetryAfter: ref.RetryAfter(), Limit: ref.Rule}
		}
		a.log.Debug("audit log cannot be written: act refused", "err", ref.Err) // the log itself has reported it, once
		e := a.local(gate.CodeUnavailable, "Unavailable: the act cannot be recorded", ref.Ref, ref.Err)
		return front.Reply{Error: a.reasoned(e, ref.Who, ref.Err.Error()), RetryAfter: 5}
	}
	reply := front.Reply{Error: a.reasoned(a.local(gate.CodeDenied, "Denied by policy", ref.Ref, nil), ref.Who, a.whyDenied(ref.Rule))}
	if a.stepUp != nil {
		reply.NeedScope = a.stepUp(ref.Asked)
	}
	return reply
}

// leaked answers a call of a built-in server that a content rule held back; nil: the call
// failed for another reason.
func (a *failures) leaked(pass gate.Pass, err error) *front.Reply {
	var content *failure.Content
	if !errors.As(err, &content) {
		return nil
	}
	refusal := pass.Refuse(content.Rule, gate.CodeDenied)
	if refusal.Err != nil {
		return &front.Reply{Error: a.local(gate.CodeUnavailable, "Unavailable: the act cannot be recorded", 0, refusal.Err), RetryAfter: 5}
	}
	return &front.Reply{Error: a.local(gate.CodeDenied, failure.Blocked, refusal.Ref, nil)}
}

// statusFor is the HTTP status of a server's error where the code alone would
// mislead: a tool that does not find an object is not an unknown method.
func statusFor(method string, e *wire.Error) int {
	if e.Code == front.CodeNoMethod && question.MayAsk(method) {
		return http.StatusOK
	}
	return 0
}

// sessionWait is the Retry-After when sessions or approvals are full: they end less often
// than calls.
const sessionWait = 5 * time.Second

// local makes an error of Doorward's own, with the number of its record.
func (a *failures) local(code int64, text string, ref uint64, detail error) *wire.Error {
	data := append([]byte(`{"ref":`), strconv.FormatUint(ref, 10)...)
	if a.dev && detail != nil {
		data = rawjson.AppendQuote(append(data, `,"detail":`...), detail.Error())
	}
	return &wire.Error{Code: code, Message: text, Data: append(data, '}')}
}
