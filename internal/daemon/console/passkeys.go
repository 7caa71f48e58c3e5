package console

import (
	"encoding/hex"
	"net"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/passkey"
)

// passkeyPages serves the page Passkeys and the ceremonies of the pages that need a passkey.
type passkeyPages struct{ c *Console }

func (p passkeyPages) routes(all map[string]route) {
	all["GET /passkeys"] = route{what: "passkeys", show: p.show}
	all["POST /passkeys/begin"] = route{what: "passkeys/begin", raw: p.begin}
	all["POST /passkeys/allow"] = route{what: "passkeys/allow", raw: p.allow}
	all["POST /passkeys/add"] = route{what: "passkeys/add", act: p.add}
	all["POST /passkeys/remove"] = route{what: "passkeys/remove", act: p.remove}
}

// passkeysData is the data of the page Passkeys.
type passkeysData struct {
	Keys     []passkey.Key
	Required bool // approvals need one
}

func (p passkeyPages) show(*request) (page, error) {
	return page{View: "passkeys", Title: "Passkeys", Data: passkeysData{Keys: p.c.o.Passkeys.Keys(), Required: p.c.o.PasskeyRequired}}, nil
}

// visit describes the session for a ceremony. The origin is that of the console on this
// listener, whatever the request says.
func (p passkeyPages) visit(q *request) passkey.Visit {
	return passkey.Visit{Session: hex.EncodeToString(q.s.key[:]), Origin: originOf(q.v), Who: q.s.by.Who}
}

// originOf returns the origin of the console under the name localhost, as a browser sends it:
// without the default port of the scheme.
func originOf(v Visit) string {
	_, port, _ := net.SplitHostPort(v.Listener)
	if v.Scheme == "http" && port == "80" || v.Scheme == "https" && port == "443" {
		return v.Scheme + "://localhost"
	}
	return v.Scheme + "://localhost:" + port
}

// begin returns the ceremony that the browser must perform for the form that will be sent.
func (p passkeyPages) begin(q *request) error {
	var c passkey.Ceremony
	var err error
	switch q.in.Get("what") {
	case "approve":
		var n uint64
		if n, err = number(q.in.Get("n")); err != nil {
			return errForm
		}
		if err := p.shown(q, n); err != nil {
			return err
		}
		c, err = p.c.o.Passkeys.Sign(p.visit(q), approvePurpose(n, q.in.Get("preview"), q.in.Get("for")))
	case "add":
		c, err = p.c.o.Passkeys.Add(p.visit(q), q.in.Get("name"))
	case "remove":
		c, err = p.c.o.Passkeys.Remove(p.visit(q), q.in.Get("key"))
	default:
		return errForm
	}
	return q.json(c, err)
}

// allow continues the registration of a further key, after a known key has signed.
func (p passkeyPages) allow(q *request) error {
	c, err := p.c.o.Passkeys.Allowed(p.visit(q), q.in.Get("ceremony"), q.in.Get("name"), []byte(q.in.Get("answer")))
	return q.json(c, err)
}

func (p passkeyPages) add(q *request) (said, next string, err error) {
	name := q.in.Get("name")
	err = p.c.o.Passkeys.Added(p.visit(q), q.in.Get("ceremony"), name, []byte(q.in.Get("answer")))
	return "Registered: " + strings.TrimSpace(name), "passkeys", err
}

func (p passkeyPages) remove(q *request) (said, next string, err error) {
	err = p.c.o.Passkeys.Removed(p.visit(q), q.in.Get("ceremony"), q.in.Get("key"), []byte(q.in.Get("answer")))
	return "Removed: " + q.in.Get("key"), "passkeys", err
}

// approvePurpose returns the data that a key signs to approve a call: its number, the digest of
// the shown content, and the duration.
func approvePurpose(n uint64, preview, life string) passkey.Purpose {
	return passkey.Purpose{"approve", strconv.FormatUint(n, 10), preview, life}
}

// shown checks that call n waits and is the one that the page showed.
func (p passkeyPages) shown(q *request, n uint64) error {
	all, err := p.c.pending(q)
	for _, h := range all {
		if h.N == n && h.Preview != "" && h.Preview == q.in.Get("preview") {
			return err
		}
	}
	return admin.ErrStale
}

// approved returns the key that has signed the approval in a form; empty: no passkey is
// required.
func (p passkeyPages) approved(q *request, n uint64) (key string, err error) {
	if !p.c.o.PasskeyRequired {
		return "", nil
	}
	return p.c.o.Passkeys.Signed(p.visit(q), q.in.Get("ceremony"), approvePurpose(n, q.in.Get("preview"), q.in.Get("for")), []byte(q.in.Get("answer")))
}
