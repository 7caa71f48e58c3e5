package authn

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/trust/visible"
)

// leeway is how far the issuer's clock may be ahead of this machine's. It never extends
// the life of a token.
const leeway = time.Minute

// jwt is a parsed token that is not verified yet.
type jwt struct {
	raw     string
	alg     string
	kid     string
	typ     string
	payload map[string]json.RawMessage
}

// parseJWT parses the compact form. The encoding must be canonical, so that one token
// has one spelling. Member names are compared exactly and occur once, so that two
// parsers cannot read different values.
func parseJWT(token string) (*jwt, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, badForm
	}
	var decoded [3][]byte
	for i, p := range parts {
		b, err := base64.RawURLEncoding.Strict().DecodeString(p)
		if err != nil {
			return nil, badForm
		}
		decoded[i] = b
	}
	header, err := members(decoded[0])
	if err != nil {
		return nil, badForm
	}
	t := &jwt{raw: token}
	if t.payload, err = members(decoded[1]); err != nil {
		return nil, badForm
	}
	return t, t.header(header)
}

// header parses the header. Members about the location of keys (jku, jwk, x5u, x5c) are
// ignored: the issuer's metadata names the keys. A critical extension is refused (RFC
// 7515, 4.1.11).
func (t *jwt) header(h map[string]json.RawMessage) error {
	for _, m := range []struct {
		name string
		into *string
	}{{"alg", &t.alg}, {"kid", &t.kid}, {"typ", &t.typ}} {
		if raw, ok := h[m.name]; ok && !text(raw, m.into) {
			return badForm
		}
	}
	if h["crit"] != nil || h["b64"] != nil || len(t.kid) > 256 {
		return badForm
	}
	t.alg = family(t.alg)
	return nil
}

// members parses an object. Member names are compared exactly and occur once.
func members(b []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(b) {
		return nil, errors.New("not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.New("not an object")
	}
	out := make(map[string]json.RawMessage)
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, errors.New("bad JSON")
		}
		var value json.RawMessage
		key, _ := name.(string) // the decoder allows only strings here
		if out[key] != nil || dec.Decode(&value) != nil {
			return nil, errors.New("a member twice, or bad JSON")
		}
		out[key] = value
	}
	if _, err := dec.Token(); err != nil {
		return nil, errors.New("bad JSON")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows")
	}
	return out, nil
}

// text parses a string. It refuses a string that the JSON parser had to repair, because
// two different strings could become the same one.
func text(raw json.RawMessage, into *string) bool {
	return len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, into) == nil && !strings.ContainsRune(*into, unicode.ReplacementChar)
}

// texts parses a string or a list of strings.
func texts(raw json.RawMessage) ([]string, bool) {
	var one string
	if text(raw, &one) {
		return []string{one}, true
	}
	var raws []json.RawMessage
	if json.Unmarshal(raw, &raws) != nil {
		return nil, false
	}
	out := make([]string, len(raws))
	for i := range raws {
		if !text(raws[i], &out[i]) {
			return nil, false
		}
	}
	return out, true
}

// claims holds the relevant claims of a token, checked against the configuration.
type claims struct {
	subject, client string
	scopes          []string // sorted, each once
	audiences       []string // those that name this daemon; sorted, each once
	expires         time.Time
}

// check refuses a token whose claims show that it is not for this daemon.
func (o *OAuth) check(t *jwt, now time.Time) (*claims, error) {
	c := &claims{}
	var iss string
	switch {
	case !slices.Contains(o.algorithms, t.alg):
		return nil, badAlgorithm
	case !accessType(t.typ):
		return nil, badType
	case !text(t.payload["iss"], &iss) || iss != o.url:
		return nil, badIssuer
	case !c.audience(o, t.payload["aud"]):
		return nil, badAudience
	case t.payload["cnf"] != nil:
		// A thief could use a sender-constrained token here as if it were not bound
		// (RFC 9449, 7.2).
		return nil, badBinding
	}
	if err := c.times(t.payload, now); err != nil {
		return nil, err
	}
	return c, c.about(t.payload)
}

// accessType accepts `at+jwt` (RFC 9068) and the types of older issuers. Media types
// are case-insensitive (RFC 7515, 4.1.9).
func accessType(typ string) bool {
	switch strings.ToLower(typ) {
	case "", "jwt", "at+jwt", "application/at+jwt":
		return true
	}
	return false
}

// audience keeps the audiences that name this daemon.
func (c *claims) audience(o *OAuth, raw json.RawMessage) bool {
	all, ok := texts(raw)
	if !ok {
		return false
	}
	for _, a := range all {
		if _, ours := o.resource(a); ours {
			c.audiences = append(c.audiences, a)
		}
	}
	c.audiences = sortedOnce(c.audiences)
	return len(c.audiences) > 0
}

// resource reports whether an audience names this daemon. server is the only server
// that it covers; empty: all. The daemon's URL with or without /mcp covers all servers,
// with /mcp/NAME that server.
func (o *OAuth) resource(aud string) (server string, ours bool) {
	rest, ok := strings.CutPrefix(aud, o.audience)
	switch {
	case !ok:
		return "", false
	case rest == "" || rest == "/" || rest == "/mcp":
		return "", true
	}
	server, ok = strings.CutPrefix(rest, "/mcp/")
	return server, ok && isServer(server)
}

func isServer(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// servers returns the only servers that the audiences cover; nil: all.
func (c *claims) servers(o *OAuth) []string {
	var out []string
	for _, a := range c.audiences {
		server, _ := o.resource(a)
		if server == "" {
			return nil
		}
		out = append(out, server)
	}
	return out
}

// times checks the times. exp is required and ends a token exactly; nbf and iat may be
// ahead by the leeway.
func (c *claims) times(m map[string]json.RawMessage, now time.Time) error {
	exp, ok := instant(m["exp"])
	if !ok || !now.Before(exp) {
		return badExpiry
	}
	c.expires = exp
	for _, name := range []string{"nbf", "iat"} {
		raw := m[name]
		if raw == nil {
			continue
		}
		if t, ok := instant(raw); !ok || t.After(now.Add(leeway)) {
			return badTime
		}
	}
	return nil
}

// instant parses a NumericDate (RFC 7519, 2) of the years 1970 to 9999.
func instant(raw json.RawMessage) (time.Time, bool) {
	var seconds float64
	if len(raw) == 0 || raw[0] == 'n' || json.Unmarshal(raw, &seconds) != nil {
		return time.Time{}, false
	}
	const year10000 = 253402300800
	if math.IsNaN(seconds) || seconds < 0 || seconds >= year10000 {
		return time.Time{}, false
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)), true
}

// about parses the subject, the client and the scopes. The package principal decides
// whether the subject can be a name.
func (c *claims) about(m map[string]json.RawMessage) error {
	if !text(m["sub"], &c.subject) || c.subject == "" {
		return badSubject
	}
	for _, name := range []string{"client_id", "azp"} {
		if raw := m[name]; raw != nil && c.client == "" && (!text(raw, &c.client) || !isName(c.client)) {
			return badSubject
		}
	}
	raw := m["scope"]
	if raw == nil {
		raw = m["scp"]
	}
	if raw == nil {
		return nil
	}
	lists, ok := texts(raw)
	if !ok {
		return badScope
	}
	for _, l := range lists {
		c.scopes = append(c.scopes, strings.Fields(l)...)
	}
	c.scopes = sortedOnce(c.scopes)
	if slices.ContainsFunc(c.scopes, func(s string) bool { return !isVisible(s) }) {
		return badScope
	}
	return nil
}

// isName reports whether s has at most 255 bytes and only printable characters.
func isName(s string) bool {
	return len(s) <= 255 && visible.AllPrintable(s)
}

func sortedOnce(s []string) []string {
	slices.Sort(s)
	return slices.Compact(s)
}
