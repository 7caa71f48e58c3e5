package agent

import (
	"crypto/ed25519"
	"encoding/base64"
	"strconv"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// Signer returns a function that signs envelopes with the node's key, for
// mail.Options.Sign: ed25519 over the fields, each preceded by its length, so that two
// different lists of fields never have the same encoding.
func Signer(key ed25519.PrivateKey) func(fields ...string) string {
	return func(fields ...string) string {
		return base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, signed(fields)))
	}
}

// signedLabel keeps the signature of an envelope from being valid for anything else.
const signedLabel = "doorward/message/v1"

func signed(fields []string) []byte {
	var b []byte
	for _, f := range append([]string{signedLabel}, fields...) {
		b = append(strconv.AppendInt(b, int64(len(f)), 10), ':')
		b = append(b, f...)
	}
	return b
}

// Results of the check of a signature. A valid signature proves what this daemon
// recorded, not that the body is true.
const (
	signatureValid   = "valid"
	signatureInvalid = "invalid"
	signatureForeign = "foreign" // of another node
	signatureNone    = "none"
)

func (s *envelopes) signature(m *mail.Message, to string) string {
	switch {
	case m.Sig == "" || s.o.Public == nil:
		return signatureNone
	case nodeOf(m.From.Principal) != s.o.Node:
		return signatureForeign
	}
	sig, err := base64.RawURLEncoding.DecodeString(m.Sig)
	if err != nil || !ed25519.Verify(s.o.Public, signed(m.SignedFields(to)), sig) {
		return signatureInvalid
	}
	return signatureValid
}
