package question

import (
	"crypto/rand"
	"sync"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Input is one question of a round, with its answer.
type Input struct {
	Key, Method string
	Params      []byte
	Answer      []byte
	Err         error
}

// Inputs reads inputRequests. It refuses a request that parsers may read in different ways.
func Inputs(asks []byte) ([]Input, error) {
	var all []Input
	for key, ask := range rawjson.Members(asks) {
		method, ok := rawjson.GetString(ask, "method")
		if !ok || misspelt(ask, "method") || misspelt(ask, "params") || CapabilityOf(method) == "" || len(all) >= OpenQuestions {
			return nil, failure.ErrAsksTooMuch
		}
		params := rawjson.Get(ask, "params")
		if _, err := wire.Parse(rawjson.AppendRequest(nil, wire.IntID(0), method, params), wire.FromServer); err != nil {
			return nil, failure.ErrAsksTooMuch
		}
		all = append(all, Input{Key: key, Method: method, Params: params})
	}
	return all, nil
}

// Completions holds the ids of a call's URL elicitations, which the protocol of 2025-11-25
// requires and a modern server does not give.
type Completions struct {
	mu  sync.Mutex
	ids []string
}

// Mint gives a URL elicitation an id of Doorward's own.
func (u *Completions) Mint(params []byte) []byte {
	id := "doorward-" + rand.Text()
	u.mu.Lock()
	u.ids = append(u.ids, id)
	u.mu.Unlock()
	return rawjson.Set(params, rawjson.Edit{Key: "elicitationId", Value: rawjson.AppendQuote(nil, id)})
}

// Send tells the client that the URLs are no longer needed (2025-11-25 Elicitation,
// "Completion Notifications").
func (u *Completions) Send(x *front.Exchange) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, id := range u.ids {
		x.Notify("notifications/elicitation/complete", rawjson.Set(nil, rawjson.Edit{Key: "elicitationId", Value: rawjson.AppendQuote(nil, id)}))
	}
}
