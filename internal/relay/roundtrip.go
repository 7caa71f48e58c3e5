package relay

import (
	"fmt"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// inputRequired forwards a multi-round-trip result whose questions were decided.
// The state is sealed, because the server cannot bind it to a user that it never
// sees.
func (tr *translation) inputRequired(x *front.Exchange, c *liveConn, t target, reply upstream.Reply) (upstream.Reply, error) {
	if x.Era != front.Modern || c.era != front.Modern || !question.MayAsk(t.Method()) {
		return reply, failure.ErrAsksTooMuch
	}
	result := reply.Result
	for _, ask := range wire.Members(wire.Get(result, wire.InputRequests)) {
		if !question.HasFolded(ask, "method") { // every other one has been looked at
			return reply, failure.ErrAsksTooMuch
		}
	}
	if state := wire.Get(result, "requestState"); state != nil {
		sealed, err := tr.seal.SealState(state, x.Who, t.Target)
		if err != nil {
			return reply, fmt.Errorf("sealing requestState: %w", err)
		}
		result = rawjson.Set(result, rawjson.Edit{Key: "requestState", Value: sealed})
	}
	reply.Result = result
	return reply, nil
}
