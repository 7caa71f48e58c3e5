package relay

import (
	"fmt"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// replayed is the state of a call that a legacy server ended with codeURLRequired.
// Coming back with it means to make the call again; the server knows by itself what
// the user did at the URL.
var replayed = []byte(`"replay"`)

// needsURL reports an error that has to become input_required for the client.
func needsURL(x *front.Exchange, c *liveConn, method string, e *wire.Error) bool {
	return e != nil && e.Code == failure.CodeURLRequired && x.Era == front.Modern && c.era == front.Legacy && question.MayAsk(method)
}

// urlRequired turns the questions of such an error, which were decided and labelled,
// into a result that requires input.
func (tr *translation) urlRequired(x *front.Exchange, t target, e *wire.Error) (upstream.Reply, error) {
	requests, n := rawjson.Empty, 0
	for params := range wire.Elements(wire.Get(e.Data, wire.Elicitations)) {
		n++
		ask := rawjson.Set(nil, rawjson.Edit{Key: "method", Value: rawjson.AppendQuote(nil, policy.AskElicitation)},
			rawjson.Edit{Key: "params", Value: rawjson.Set(params, rawjson.Edit{Key: "elicitationId"})})
		requests = rawjson.Set(requests, rawjson.Edit{Key: fmt.Sprintf("%s-%d", t.b.Name, n), Value: ask})
	}
	if n == 0 {
		return upstream.Reply{}, failure.ErrNoQuestions
	}
	state, err := tr.seal.SealState(replayed, x.Who, t.Target)
	if err != nil {
		return upstream.Reply{}, fmt.Errorf("sealing a call that is made again: %w", err)
	}
	return upstream.Reply{Result: rawjson.Set(nil, rawjson.Edit{Key: "resultType", Value: []byte(`"input_required"`)},
		rawjson.Edit{Key: wire.InputRequests, Value: requests}, rawjson.Edit{Key: "requestState", Value: state})}, nil
}

// replay takes the state of urlRequired out of the params of a call that comes back.
func (tr *translation) replay(x *front.Exchange, t target) ([]byte, error) {
	inner, err := tr.seal.OpenState(wire.Get(t.Params(), "requestState"), x.Who, t.Target)
	if err != nil || string(inner) != string(replayed) {
		return nil, failure.Invalid{E: failure.State} // a legacy server gives none, and a parked call has been looked for
	}
	for _, answer := range wire.Members(wire.Get(t.Params(), "inputResponses")) {
		if !rawjson.IsText(wire.Get(answer, "action"), "accept") {
			return nil, failure.Invalid{E: failure.URLRefused}
		}
	}
	return rawjson.Set(t.Params(), rawjson.Edit{Key: "inputResponses"}, rawjson.Edit{Key: "requestState"}), nil
}
