package agent

import (
	"errors"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/gate"
)

// isHeld reports whether a call has done nothing, since it waits for the operator.
func isHeld(err error) bool {
	var held *gate.Held
	return errors.As(err, &held)
}

// hold lets a call through that policy does not hold, or that the operator has approved
// with the same arguments. It comes after everything that could refuse the call, so that
// a person is asked about nothing that cannot be done, and before anything is done.
func hold(c *call, args []byte) (err error) {
	if c.asked.Rule != "" {
		c.pass, err = c.pass.Hold(c.asked, c.verb.name, args)
	}
	return err
}

// addressed are the arguments of a message with the peers that its addresses stand for
// now, so that an approval is not for whoever has the names later.
func addressed(c *call, to []mail.Recipient) []byte {
	var list []byte
	for _, r := range to {
		list = append(append(list, ','), rawjson.Set(nil, rawjson.Edit{Key: "address", Value: rawjson.AppendQuote(nil, r.To)},
			rawjson.Edit{Key: "peer_id", Value: rawjson.AppendQuote(nil, r.PeerID)},
			rawjson.Edit{Key: "principal", Value: rawjson.AppendQuote(nil, shortPrincipal(r.Principal, c.s.o.Node))})...)
	}
	return rawjson.Set(c.raw, rawjson.Edit{Key: "recipients", Value: bracketed('[', list, ']')})
}
