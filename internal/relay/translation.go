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
	"github.com/doorward/doorward/internal/trust/wire"
)

// translation makes the request of a server's era out of that of a client, and the
// client's answer out of the server's. It leaves out what policy does not let the client
// have.
type translation struct {
	gate  *gate.Gate
	seal  *seal.Sealer
	log   *slog.Logger
	info  []byte // Doorward's clientInfo
	watch watch
}

// carried is what of a client's capabilities holds across the eras: questions that
// policy allows, and extensions. Tasks have another protocol in each era, and the
// change of roots no notification in the modern one.
func (tr *translation) carried(x *front.Exchange, b *backend, caps []byte) []byte {
	caps, _ = tr.narrow(x, b, caps)
	var edits []rawjson.Edit
	for _, a := range question.Kinds {
		if value := wire.Get(caps, a.Capability); len(value) > 0 && value[0] == '{' {
			edits = append(edits, rawjson.Edit{Key: a.Capability, Value: rawjson.Set(value, rawjson.Edit{Key: "listChanged"})})
		}
	}
	if extensions := era.WithoutTasks(wire.Get(caps, "extensions")); len(extensions) > len("{}") {
		edits = append(edits, rawjson.Edit{Key: "extensions", Value: extensions})
	}
	return rawjson.Set(rawjson.Empty, edits...)
}

// narrow removes the capabilities that policy does not serve, so that a client is
// not offered what it cannot use.
func (tr *translation) narrow(x *front.Exchange, b *backend, caps []byte) ([]byte, bool) {
	var edits []rawjson.Edit
	for _, a := range question.Kinds {
		if wire.Get(caps, a.Capability) == nil {
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
