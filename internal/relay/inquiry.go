package relay

import (
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/naming"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
)

// inquiry is one question of a parked call.
type inquiry struct {
	id     wire.ID
	method string
	params []byte // with its label
	pass   gate.Pass
	wanted *pendingQuestion
}

// request returns the question as an input request for x. At the aggregate it has the names
// that the client knows. It has params even if the question has none: the Go SDK's client does
// not read one without.
func (q *inquiry) request(x *front.Exchange, server string) []byte {
	params := q.params
	switch {
	case params == nil:
		params = rawjson.Empty
	case x.Server == "":
		params = naming.Server(server).Question(params)
	}
	return rawjson.Set(rawjson.Empty, rawjson.Edit{Key: "method", Value: rawjson.AppendQuote(nil, q.method)},
		rawjson.Edit{Key: "params", Value: params})
}
