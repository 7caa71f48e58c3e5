package agent

import (
	"errors"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/gate"
)

// isHeld reports whether err means that the call waits for the operator and has done
// nothing.
func isHeld(err error) bool {
	var held *gate.Held
	return errors.As(err, &held)
}

// hold holds the call where policy asks for it, unless the operator has approved it with
// the same arguments. It is called after all checks that could refuse the call, so that
// the operator is asked only about calls that can be done, and before anything is done.
// args makes the arguments that the operator is shown.
func hold(c *call, args func() []byte) (err error) {
	if c.asked.Rule != "" {
		c.pass, err = c.pass.Hold(c.asked, c.verb.name, args())
	}
	return err
}

// addressed returns the arguments of a message together with the peers that its addresses
// name now. So an approval does not cover a peer that has one of the names later.
func addressed(c *call, to []mail.Recipient) []byte {
	var list []byte
	for _, r := range to {
		list = append(append(list, ','), rawjson.Set(nil, rawjson.Edit{Key: "address", Value: rawjson.AppendQuote(nil, r.To)},
			rawjson.Edit{Key: "peer_id", Value: rawjson.AppendQuote(nil, r.PeerID)},
			rawjson.Edit{Key: "principal", Value: rawjson.AppendQuote(nil, shortPrincipal(r.Principal, c.s.o.Node))})...)
	}
	return rawjson.Set(c.raw, rawjson.Edit{Key: "recipients", Value: bracketed('[', list, ']')})
}
