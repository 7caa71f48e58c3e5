package relay

import (
	"log/slog"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/relay/seal"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
)

// translation makes a request in the era of the server from a client's, and the client's
// answer from the server's. It removes what policy does not let the client have.
type translation struct {
	gate  *gate.Gate
	seal  *seal.Sealer
	log   *slog.Logger
	info  []byte // Doorward's clientInfo
	watch watch
}

// carried returns the capabilities of a client that hold across the eras: questions that
// policy allows, and extensions. Tasks have another protocol in each era, and the modern era
// has no notification for a change of roots.
func (tr *translation) carried(x *front.Exchange, b *backend, caps []byte) []byte {
	caps, _ = tr.narrow(x, b, caps)
	var edits []rawjson.Edit
	for _, a := range question.Kinds {
		if value := rawjson.Get(caps, a.Capability); len(value) > 0 && value[0] == '{' {
			edits = append(edits, rawjson.Edit{Key: a.Capability, Value: rawjson.Set(value, rawjson.Edit{Key: "listChanged"})})
		}
	}
	if extensions := era.WithoutTasks(rawjson.Get(caps, "extensions")); len(extensions) > len("{}") {
		edits = append(edits, rawjson.Edit{Key: "extensions", Value: extensions})
	}
	return rawjson.Set(rawjson.Empty, edits...)
}

// narrow removes the capabilities that policy does not serve, so that a client is not offered
// what it cannot use. False: none was removed.
func (tr *translation) narrow(x *front.Exchange, b *backend, caps []byte) ([]byte, bool) {
	var edits []rawjson.Edit
	for _, a := range question.Kinds {
		if rawjson.Get(caps, a.Capability) == nil {
			continue
		}
		if !tr.gate.Allows(policy.Request{Who: x.Who, Action: a.Action, Server: b.Name}).Allow {
			edits = append(edits, rawjson.Edit{Key: a.Capability})
		}
	}
	if edits == nil {
		return caps, false
	}
	return rawjson.Set(caps, edits...), true
}
