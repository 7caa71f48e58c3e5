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
func (r *Relay) fail(ctx context.Context, server string, pass gate.Pass, err error) front.Reply {
	if reply := r.heldBack("", pass, err); reply != nil {
		return *reply
	}
	f := failure.Classify(ctx, server, err)
	if f.Cap != "" && !f.Cancel {
		pass.Leave(f.Word, 0)
		return r.refused(pass.Refuse(f.Cap, gate.CodeUnavailable))
	}
	pass.Leave(f.Word, 0)
	if f.Cancel {
		return front.Reply{None: true}
	}
	r.log.Warn("upstream failed", "server", server, "ref", pass.Ref, "result", f.Word, "err", err)
	e := r.local(f.Code, f.Text, pass.Ref, err)
	return front.Reply{Error: r.reasoned(e, pass.Act().Who, r.whyFailed(server, err)), RetryAfter: f.Retry}
}

// refused is the answer to an act that gate did not let in.
func (r *Relay) refused(err error) front.Reply {
	var ref *gate.Refusal
	if !errors.As(err, &ref) {
		return front.Reply{Error: r.local(failure.CodeBusy, "Unavailable", 0, err)}
	}
	switch ref.Code {
	case gate.CodeRate:
		e := r.local(gate.CodeRate, "Too many requests", ref.Ref, nil)
		return front.Reply{Error: r.reasoned(e, ref.Who, ref.Rule), RetryAfter: ref.RetryAfter()}
	case gate.CodeUnavailable:
		if ref.Err == nil {
			e := r.local(gate.CodeUnavailable, failure.CapText(ref.Rule), ref.Ref, nil)
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

// local is an error of Doorward's own, with the number of its record.
func (r *Relay) local(code int64, text string, ref uint64, detail error) *wire.Error {
	data := append([]byte(`{"ref":`), strconv.FormatUint(ref, 10)...)
	if r.dev && detail != nil {
		data = rawjson.AppendQuote(append(data, `,"detail":`...), detail.Error())
	}
	return &wire.Error{Code: code, Message: text, Data: append(data, '}')}
}
