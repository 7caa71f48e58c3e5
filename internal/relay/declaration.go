package relay

import "github.com/doorward/doorward/internal/relay/era"

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
