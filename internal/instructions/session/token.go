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

// Why a token is refused.
const (
	Malformed = "malformed" // not a token
	MAC       = "mac"       // not one that was given out here
	Expired   = "expired"   // its time is over, or has not come
	Revoked   = "revoked"   // its session has ended, or is not known
	Binding   = "binding"   // another's: principal, process or installation
)

var errPayload = errors.New("not the payload of a token")

// Invalid is why a token was refused. It never says anything of the token.
type Invalid struct{ Reason string } // one of the constants above

func (e *Invalid) Error() string { return "the session token is refused: " + e.Reason }

const (
	maxSubject  = 256 // bytes, as JSON writes them; a longer name is a digest in the token
	maxAudience = 64
	sidBytes    = 16
)

type digest [sha256.Size]byte

// base64url is strict: no bit of a text is left unread.
var base64url = base64.RawURLEncoding.Strict()

// payload is what a token says. It is written in one way, so that a token has
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

// id is how a session is named in public.
func (d digest) session() string { return hex.EncodeToString(d[:8]) }

// short is a name as a token carries it: itself, or where JSON writes it with
// more than limit bytes, its digest.
func short(name string, limit int) string {
	if len(name)*len(`\u0000`) <= limit { // no byte is written longer
		return name
	}
	text, err := json.Marshal(name)
	if err == nil && len(text) <= limit+2 {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// claims are what the token of a grant says.
func (k *tokens) claims(s *Session, sid string, g *grant) payload {
	return payload{SID: sid, Sub: short(s.Subject, maxSubject), Aud: k.aud, Iat: g.iat, Exp: g.exp, Scope: s.Scope, Bind: s.Bind}
}

// says reports whether a token repeats what is known of its session. A token that
// does not was never issued, even if its MAC is valid.
func (k *tokens) says(p payload, s *Session, g *grant) bool {
	want := k.claims(s, p.SID, g)
	return p.Sub == want.Sub && p.Iat == want.Iat && p.Exp == want.Exp && slices.Equal(p.Scope, want.Scope) && p.Bind == want.Bind
}

// write makes the text of a token.
func (p payload) write(with key) (string, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("writing a token: %w", err)
	}
	signed := Prefix + with.id + "." + base64url.EncodeToString(body)
	token := signed + "." + with.mac(signed)
	if len(token) > MaxToken {
		return "", fmt.Errorf("writing a token: it has %d bytes, and %d are the most", len(token), MaxToken)
	}
	return token, nil
}

// mac is the last part of a token, over what stands before its dot.
func (k key) mac(signed string) string {
	h := hmac.New(sha256.New, k.secret)
	h.Write([]byte(signed))
	return base64url.EncodeToString(h.Sum(nil))
}

// read takes a token apart. Its text is compared, not what it decodes to: two
// texts that decode alike are two texts. The payload is not looked at before
// the MAC holds.
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

// isToken checks the alphabet and the four parts.
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

// sameText compares in constant time, and over digests, so that a length shows
// nothing either.
func sameText(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// parsePayload reads a payload in the one way in which it is written.
func parsePayload(text []byte) (payload, error) {
	var p payload
	if err := json.Unmarshal(text, &p); err != nil {
		return p, errPayload // the decoder's words quote what it read
	}
	again, err := json.Marshal(p)
	if sid, bad := hex.DecodeString(p.SID); err != nil || !bytes.Equal(again, text) || bad != nil || len(sid) != sidBytes {
		return p, errPayload
	}
	return p, nil
}
