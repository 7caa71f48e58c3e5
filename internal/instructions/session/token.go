package session

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Reasons for which a token is refused.
const (
	Malformed = "malformed" // not a token
	MAC       = "mac"       // not a token that was issued here
	Expired   = "expired"   // its time is over, or has not begun
	Revoked   = "revoked"   // its session has ended, or is unknown
	Binding   = "binding"   // it belongs to another principal, process or installation
)

var errPayload = errors.New("not the payload of a token")

// Invalid reports why a token is refused. It holds no part of the token.
type Invalid struct{ Reason string } // one of the constants above

func (e *Invalid) Error() string { return "the session token is refused: " + e.Reason }

const (
	maxSubject  = 256 // bytes in JSON; a longer name is replaced by its digest in the token
	maxAudience = 64
	sidBytes    = 16
)

type digest [sha256.Size]byte

// base64url is strict: it refuses unused bits that are not zero.
var base64url = base64.RawURLEncoding.Strict()

// payload is the content of a token. It has only one encoding, so that a token has only
// one text.
type payload struct {
	SID   string   `json:"sid"` // 128 random bits, in hex
	Sub   string   `json:"sub"`
	Aud   string   `json:"aud"`
	Iat   int64    `json:"iat"` // seconds since 1970
	Exp   int64    `json:"exp"`
	Scope []string `json:"scope"`
	Bind  string   `json:"bind"`
}

func newSID() string {
	var b [sidBytes]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func digestOf(sid string) digest { return sha256.Sum256([]byte(sid)) }

// session returns the public id of a session.
func (d digest) session() string { return hex.EncodeToString(d[:8]) }

// short returns a name in the form that a token carries: the name itself, or its digest
// if its JSON has more than limit bytes.
func short(name string, limit int) string {
	if len(name)*len(`\u0000`) <= limit { // no byte has a longer escape
		return name
	}
	text, err := json.Marshal(name)
	if err == nil && len(text) <= limit+2 {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// claims returns the payload of the token of a grant.
func (k *tokens) claims(s *Session, sid string, g *grant) payload {
	return payload{SID: sid, Sub: short(s.Subject, maxSubject), Aud: k.aud, Iat: g.iat, Exp: g.exp, Scope: s.Scope, Bind: s.Bind}
}

// says reports whether a payload agrees with its session. A token that does not agree was
// never issued, even if its MAC is valid.
func (k *tokens) says(p payload, s *Session, g *grant) bool {
	want := k.claims(s, p.SID, g)
	return p.Sub == want.Sub && p.Iat == want.Iat && p.Exp == want.Exp && slices.Equal(p.Scope, want.Scope) && p.Bind == want.Bind
}

// write returns the text of a token.
func (p payload) write(with key) (string, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("writing a token: %w", err)
	}
	signed := Prefix + with.id + "." + base64url.EncodeToString(body)
	token := signed + "." + with.mac(signed)
	if len(token) > MaxToken {
		return "", fmt.Errorf("writing a token: it has %d bytes, and the maximum is %d", len(token), MaxToken)
	}
	return token, nil
}

// mac returns the last part of a token, over the text before its dot.
func (k key) mac(signed string) string {
	h := hmac.New(sha256.New, k.secret)
	h.Write([]byte(signed))
	return base64url.EncodeToString(h.Sum(nil))
}

// read verifies and parses a token. The MAC is compared as text, so that another encoding
// of the same bytes is not accepted. The payload is not parsed before the MAC is
// verified.
func (r *ring) read(token string) (p payload, reason string) {
	if len(token) > MaxToken || !isToken(token) {
		return p, Malformed
	}
	end := strings.LastIndexByte(token, '.')
	signed, mac := token[:end], token[end+1:]
	kid, body, _ := strings.Cut(signed[len(Prefix):], ".")
	with, known := r.find(kid)
	if !known || !sameText(with.mac(signed), mac) {
		return p, MAC
	}
	text, err := base64url.DecodeString(body)
	if err != nil {
		return p, Malformed
	}
	if p, err = parsePayload(text); err != nil {
		return payload{}, Malformed
	}
	return p, ""
}

// isToken checks the alphabet and the number of parts.
func isToken(s string) bool {
	rest, ok := strings.CutPrefix(s, Prefix)
	if !ok {
		return false
	}
	parts, length := 1, 0
	for i := range len(rest) {
		c := rest[i]
		switch {
		case c == '.':
			if length == 0 {
				return false
			}
			parts, length = parts+1, 0
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
			length++
		default:
			return false
		}
	}
	return parts == 3 && length > 0
}

// sameText compares two texts in constant time. It compares digests, so that the time
// does not depend on the lengths either.
func sameText(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// parsePayload parses a payload, which must have its only valid encoding.
func parsePayload(text []byte) (payload, error) {
	var p payload
	if err := json.Unmarshal(text, &p); err != nil {
		return p, errPayload // the decoder's error quotes what it read
	}
	again, err := json.Marshal(p)
	if sid, bad := hex.DecodeString(p.SID); err != nil || !bytes.Equal(again, text) || bad != nil || len(sid) != sidBytes {
		return p, errPayload
	}
	return p, nil
}
