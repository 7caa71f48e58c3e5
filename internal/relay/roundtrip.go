package relay

import (
	"errors"
	"fmt"

	"github.com/doorward/doorward/internal/front"
	"github.com/doorward/doorward/internal/gate"
	"github.com/doorward/doorward/internal/policy"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/wire"
)

// errAsksTooMuch is an upstream failure: the server asked this client for
// something that it did not declare or that policy forbids.
var errAsksTooMuch = fmt.Errorf("the server asked for what the client does not offer: %w", upstream.ErrProtocol)

// inputRequired passes a multi-round-trip result on: every question is
// checked against what this request declared and what policy allows, and the
// state is sealed, since the server cannot bind it to a user it never sees.
func (r *Relay) inputRequired(x *front.Exchange, l *link, c *liveConn, t target, reply upstream.Reply) (upstream.Reply, error) {
	if x.Era != front.Modern || !mayAsk(t.method) {
		return reply, errAsksTooMuch
	}
	result := reply.Result
	asks, err := r.checkAsks(x, l, wire.Get(result, "inputRequests"))
	if err != nil {
		return reply, err
	}
	if asks != nil {
		result = wire.Set(result, wire.Edit{Key: "inputRequests", Value: asks})
	}
	if state := wire.Get(result, "requestState"); state != nil {
		sealed, err := r.seal.sealState(state, x.Who, l.b.Name, t)
		if err != nil {
			return reply, fmt.Errorf("sealing requestState: %w", err)
		}
		result = wire.Set(result, wire.Edit{Key: "requestState", Value: sealed})
	}
	reply.Result = result
	return reply, nil
}

// mayAsk lists the methods that may answer input_required (MRTR, "Supported
// Requests").
func mayAsk(method string) bool {
	return method == "tools/call" || method == "prompts/get" || method == "resources/read"
}

// checkAsks decides and records each question and labels elicitations with
// the server's name. It returns nil when there are none.
func (r *Relay) checkAsks(x *front.Exchange, l *link, asks []byte) ([]byte, error) {
	declared := wire.GetPath(x.Params, "_meta", wire.MetaCapabilities)
	var edits []wire.Edit
	for key, ask := range wire.Members(asks) {
		if len(edits) >= openQuestions {
			return nil, errAsksTooMuch
		}
		labelled, err := r.checkAsk(x, l, declared, ask)
		if err != nil {
			return nil, err
		}
		edits = append(edits, wire.Edit{Key: key, Value: labelled})
	}
	if edits == nil {
		return nil, nil
	}
	return wire.Set(asks, edits...), nil
}

// checkAsk is one question as the client gets it. Here a method that Doorward
// does not know is no question at all.
func (r *Relay) checkAsk(x *front.Exchange, l *link, declared, ask []byte) ([]byte, error) {
	method, _ := wire.GetString(ask, "method")
	params := wire.Get(ask, "params")
	act := r.act(x, l.b.Name, method, "")
	act.Kind = gate.Question
	pass, err := r.gate.Enter(act)
	if err != nil {
		return nil, errors.Join(errAsksTooMuch, err)
	}
	if capabilityOf(method) == "" || !serves(declared, method, params) {
		r.gate.Leave(pass, "unsupported", 0)
		return nil, errAsksTooMuch
	}
	r.gate.Leave(pass, "asked", int64(len(ask)))
	if method != policy.AskElicitation {
		return ask, nil
	}
	return wire.Set(ask, wire.Edit{Key: "params", Value: label(l.b.Name, params)}), nil
}
