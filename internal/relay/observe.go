package relay

import (
	"context"
	"errors"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// Stage is a part of the processing of a request.
type Stage uint8

const (
	StageDecision Stage = iota // policy and limits decide
	StageApproval              // a held call waits for the operator
	StageServer                // the request is at its server
	StageKnown                 // it is answered from kept lists
)

// Mark is one stage of one request. Its texts are valid until the stage ends.
type Mark struct {
	Stage                Stage
	Server, Method, Name string
	Known                bool   // a built-in server has answered: Name is one of its own names
	Uncounted            bool   // not a client's request to one server: it has a span and no metrics
	Ref                  uint64 // number of the decision's record; 0: none
	// Start and Span belong to the observer.
	Start time.Time
	Span  any
}

// Observer measures requests. Its methods must not block, and are safe for concurrent
// use.
type Observer interface {
	// Begin returns m completed with what End needs, and the context for the work of the
	// stage.
	Begin(ctx context.Context, m Mark) (context.Context, Mark)
	// End takes the result of the stage as one constant word.
	End(m Mark, result string)
	// Carry returns the trace context for a request to its server; "": there is none, and the
	// client's is passed on as it came.
	Carry(ctx context.Context) (traceparent, tracestate string)
}

// Results of StageDecision and StageApproval beside "ok" and "cancelled". "held" is not
// final: the operator is asked next.
const (
	resultDenied      = "denied"
	resultLimited     = "limited"
	resultUnavailable = "unavailable"
	resultHeld        = "held"
	resultPending     = "pending"
)

// watch calls an Observer, if there is one.
type watch struct {
	o         Observer
	uncounted bool
}

// traces returns w for stages that have spans and no metrics: subscriptions, notifications
// and answers from kept lists.
func (w watch) traces() watch { return watch{w.o, true} }

// begin begins a stage of a request to one server.
func (w watch) begin(ctx context.Context, s Stage, t *target) (context.Context, Mark) {
	if w.o == nil {
		return ctx, Mark{}
	}
	return w.o.Begin(ctx, Mark{Stage: s, Server: t.Server(), Method: t.Method(), Name: t.Name(), Uncounted: w.uncounted})
}

// stage is begin for an act without a target.
func (w watch) stage(ctx context.Context, s Stage, act *gate.Act) (context.Context, Mark) {
	if w.o == nil {
		return ctx, Mark{}
	}
	return w.o.Begin(ctx, Mark{Stage: s, Server: act.Server, Method: act.Action, Name: act.Name, Uncounted: w.uncounted})
}

// end ends a stage.
func (w watch) end(m Mark, result string) {
	if w.o != nil {
		w.o.End(m, result)
	}
}

// decide enters the gate, as a stage.
func (w watch) decide(ctx context.Context, g *gate.Gate, act *gate.Act) (pass gate.Pass, err error) {
	_, m := w.stage(ctx, StageDecision, act)
	pass, err = g.Enter(*act)
	m.Ref = pass.Ref
	w.end(m, decisionWord(err))
	return pass, err
}

// atServer sends a request to its server, as a stage.
func (w watch) atServer(ctx context.Context, t *target, send func(context.Context) (upstream.Reply, error)) (upstream.Reply, error) {
	inner, m := w.begin(ctx, StageServer, t)
	reply, err := send(inner)
	if err != nil {
		if call := upstream.Waits(err); call != nil {
			return reply, call.Then(w.later(*t, m))
		}
	}
	w.answered(ctx, t, m, reply, err)
	return reply, err
}

// answered ends the stage of a request to its server.
func (w watch) answered(ctx context.Context, t *target, m Mark, reply upstream.Reply, err error) {
	m.Known = t.b.Builtin != nil && err == nil && reply.Error == nil
	w.end(m, serverWord(ctx, t.b.Name, reply, err))
}

// later ends the stage with the reply to a call that waits.
func (w watch) later(t target, m Mark) func(context.Context, upstream.Reply, error) (upstream.Reply, error) {
	return func(ctx context.Context, reply upstream.Reply, err error) (upstream.Reply, error) {
		w.answered(ctx, &t, m, reply, err)
		return reply, err
	}
}

// decisionWord is the result of a decision.
func decisionWord(err error) string {
	if err == nil || errors.Is(err, gate.ErrNone) {
		return "ok" // and nothing is allocated
	}
	var held *gate.Held
	var refusal *gate.Refusal
	switch {
	case errors.As(err, &held):
		return resultHeld
	case !errors.As(err, &refusal) || refusal.Err != nil:
		return resultUnavailable
	case refusal.Code == gate.CodeDenied:
		return resultDenied
	}
	return resultLimited
}

// approvalWord is the result of waiting for the operator.
func approvalWord(ctx context.Context, a approval.Answer, err error) string {
	switch {
	case errors.Is(err, approval.ErrFull):
		return resultLimited
	case ctx.Err() != nil:
		return "cancelled"
	case err != nil:
		return resultUnavailable
	case a.Approval != nil:
		return "ok"
	case a.Denied:
		return resultDenied
	}
	return resultPending
}

// serverWord is the result of a request at its server: "error" for an error that the server
// answered, otherwise the word in the outcome's record.
func serverWord(ctx context.Context, server string, reply upstream.Reply, err error) string {
	switch {
	case err == nil && reply.Error != nil:
		return "error"
	case err == nil:
		return "ok"
	}
	var wrong failure.Invalid
	var held *pin.Held
	var cut *failure.Content
	switch {
	case errors.As(err, &wrong):
		return "invalid"
	case errors.As(err, &held):
		return "withheld"
	case errors.As(err, &cut):
		return "blocked"
	}
	return failure.Classify(ctx, server, err).Word
}

// traced puts the trace context of a request into the params for its server (SEP-414).
// Without tracing they stay as they came.
func (w watch) traced(ctx context.Context, params []byte) []byte {
	if w.o == nil {
		return params
	}
	parent, state := w.o.Carry(ctx)
	if parent == "" {
		return params
	}
	edits := []rawjson.Edit{{Key: "traceparent", Value: rawjson.AppendQuote(nil, parent)}, {Key: "tracestate"}}
	if state != "" {
		edits[1].Value = rawjson.AppendQuote(nil, state)
	}
	return rawjson.SetIn(params, "_meta", edits...)
}
