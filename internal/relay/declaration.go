package relay

import (
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/trust/principal"
)

// declaration is what a connection that clients share declares to a legacy server in
// its handshake.
type declaration struct {
	caps []byte // capabilities as canonical JSON; nil: none
	info []byte // clientInfo as canonical JSON; nil: Doorward's own
}

// The clientInfo of a client goes to a server up to maxInfo bytes, and while the
// server has fewer than maxPooled connections that clients share. Both are chosen by
// the client.
const (
	maxInfo   = 4096
	maxPooled = 64
)

func (d declaration) empty() bool { return d.caps == nil && d.info == nil }

// init are the initialize params; own is Doorward's clientInfo.
func (d declaration) init(own []byte) []byte {
	if d.info != nil {
		own = d.info
	}
	if d.caps == nil {
		return era.DefaultInit(own)
	}
	return era.InitWith(own, d.caps)
}

// key is the key of the connection that declares d; plain is that of the connection
// that declares nothing.
func (d declaration) key(plain string) string {
	if d.caps != nil || d.info != nil {
		plain += "\x00" + string(d.caps)
	}
	if d.info != nil {
		plain += "\x00" + string(d.info)
	}
	return plain
}

// owner is whose clients a link serves and what it declares for them to the server.
type owner struct {
	who     *principal.Principal // whose it is; nil when principals share it
	session *front.Session       // whose alone it is; nil for a pooled one
	client  front.Era            // of the clients that use it
	init    []byte               // initialize params for a legacy server
	says    declaration          // to the server, for the clients that share it
}

// private: one session's alone, so that whatever the server says on it is
// meant for that session.
func (o *owner) private() bool { return o.session != nil }

// shared reports a connection that legacy sessions with capabilities share.
func (o *owner) shared() bool {
	return o.client == front.Legacy && !o.private() && o.says.caps != nil
}

// Face is whose clients a connection that they share is opened for, and what they
// declare to the server.
type Face struct {
	Who    string `json:"who"` // empty: all principals
	Modern bool   `json:"modern,omitempty"`
	Caps   string `json:"caps,omitempty"` // capabilities as canonical JSON; empty: none
	Info   string `json:"info,omitempty"` // clientInfo as canonical JSON; empty: Doorward's own
}

// declaration is what the connection of f declares.
func (f Face) declaration() (d declaration) {
	if f.Caps != "" {
		d.caps = []byte(f.Caps)
	}
	if f.Info != "" {
		d.info = []byte(f.Info)
	}
	return d
}

// bare reports a face without a session and without capabilities, such as that of the
// command line.
func (f Face) bare() bool { return f.Modern && f.Caps == "" }

// Before reports whether a server that was opened for f and for other is better opened
// for f ahead of need: an agent waits for its tools, a command can wait for itself.
func (f Face) Before(other Face) bool { return !f.bare() || other.bare() }
