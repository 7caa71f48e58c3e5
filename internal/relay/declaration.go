package relay

import (
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/trust/principal"
)

// declaration is what a shared connection declares to a legacy server in its handshake.
type declaration struct {
	caps []byte // capabilities as canonical JSON; nil: none
	info []byte // clientInfo as canonical JSON; nil: Doorward's own
}

// Bounds of the clientInfo that goes to a server, both of which a client could exhaust: it is
// at most maxInfo bytes long, and it opens a connection only while the server has fewer than
// maxPooled pooled ones.
const (
	maxInfo   = 4096
	maxPooled = 64
)

func (d declaration) empty() bool { return d.caps == nil && d.info == nil }

// init returns the initialize params; own is Doorward's clientInfo.
func (d declaration) init(own []byte) []byte {
	if d.info != nil {
		own = d.info
	}
	if d.caps == nil {
		return era.DefaultInit(own)
	}
	return era.InitWith(own, d.caps)
}

// key returns the pool key of the connection that declares d; plain is the key of the
// connection that declares nothing.
func (d declaration) key(plain string) string {
	if d.caps != nil || d.info != nil {
		plain += "\x00" + string(d.caps)
	}
	if d.info != nil {
		plain += "\x00" + string(d.info)
	}
	return plain
}

// owner says for which clients a link is and what it declares for them to the server.
type owner struct {
	who     *principal.Principal // nil when principals share the link
	session *front.Session       // the only session that uses the link; nil for a pooled one
	client  front.Era            // era of the clients that use it
	init    []byte               // initialize params for a legacy server
	says    declaration          // declared to the server, for the clients that share it
}

// private reports whether one session alone uses the link, so that every message of the
// server on it is for that session.
func (o *owner) private() bool { return o.session != nil }

// shared reports whether legacy sessions with capabilities share the link.
func (o *owner) shared() bool {
	return o.client == front.Legacy && !o.private() && o.says.caps != nil
}

// Face says for which clients a shared connection is opened and what it declares to the
// server.
type Face struct {
	Who    string `json:"who"` // empty: all principals
	Modern bool   `json:"modern,omitempty"`
	Caps   string `json:"caps,omitempty"` // capabilities as canonical JSON; empty: none
	Info   string `json:"info,omitempty"` // clientInfo as canonical JSON; empty: Doorward's own
}

// declaration returns what the connection of f declares.
func (f Face) declaration() (d declaration) {
	if f.Caps != "" {
		d.caps = []byte(f.Caps)
	}
	if f.Info != "" {
		d.info = []byte(f.Info)
	}
	return d
}

// bare reports whether f is for clients without a session and without capabilities, such as
// the command line.
func (f Face) bare() bool { return f.Modern && f.Caps == "" }

// Before reports whether a server that was opened for f and for other is better opened for f
// ahead of need: an agent waits for its tools, while a command can wait for the start.
func (f Face) Before(other Face) bool { return !f.bare() || other.bare() }
