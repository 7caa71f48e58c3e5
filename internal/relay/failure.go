package relay

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
)

// fail ends an act that its server did not answer. A limit that struck is the
// reason of a refusal, with a record of its own.
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

// refused is the answer to an act that gate did not let in.
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
			return front.Reply{Error: a.reasoned(e, ref.Who, ref.Rule), RetryAfter: ref.RetryAfter()}
		}
		a.log.Debug("audit log cannot be written: act refused", "err", ref.Err) // the log itself has said so, once
		e := a.local(gate.CodeUnavailable, "Unavailable: the act cannot be recorded", ref.Ref, ref.Err)
		return front.Reply{Error: a.reasoned(e, ref.Who, ref.Err.Error()), RetryAfter: 5}
	}
	reply := front.Reply{Error: a.reasoned(a.local(gate.CodeDenied, "Denied by policy", ref.Ref, nil), ref.Who, a.whyDenied(ref.Rule))}
	if a.stepUp != nil {
		reply.NeedScope = a.stepUp(ref.Asked)
	}
	return reply
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
	return r.failures.refused(r.gate.Refuse(r.act(x, x.Server, x.Method, ""), rule, gate.CodeUnavailable, wait))
}

// local is an error of Doorward's own, with the number of its record.
func (a *failures) local(code int64, text string, ref uint64, detail error) *wire.Error {
	data := append([]byte(`{"ref":`), strconv.FormatUint(ref, 10)...)
	if a.dev && detail != nil {
		data = rawjson.AppendQuote(append(data, `,"detail":`...), detail.Error())
	}
	return &wire.Error{Code: code, Message: text, Data: append(data, '}')}
}
