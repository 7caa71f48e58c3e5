package relay

import (
	"errors"

	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
)

// question passes one question of a server to its client, wherever it is in a
// message: it is decided, recorded, and labelled with the server's name. The
// caller leaves the pass once the outcome is known. After an error nothing of the
// question may reach the client.
func (l *link) question(to question.Client, method string, params []byte) (labelled []byte, pass gate.Pass, err error) {
	to.X.Size = int64(len(params))
	act := l.r.act(&to.X, l.b.Name, method, "")
	act.Kind = gate.Question
	if pass, err = l.r.gate.Enter(act); err != nil {
		return nil, pass, errors.Join(failure.ErrAsksTooMuch, err)
	}
	ok := question.Serves(to.Caps, method, params) && !(to.Inside && question.CapabilityOf(method) == "") && !to.MixesTasks(method)
	if ok && method == policy.AskElicitation {
		params, ok = question.Label(l.b.Name, params)
	}
	if !ok {
		pass.Leave("unsupported", 0)
		return nil, pass, failure.ErrAsksTooMuch
	}
	return params, pass, nil
}
