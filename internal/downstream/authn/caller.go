package authn

import (
	"crypto/sha256"
	"net/netip"
	"sync/atomic"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Caller is what is known of one connection. The fields are set once, before
// the first Authenticate; a Caller belongs to one connection, for it remembers
// who that turned out to be.
type Caller struct {
	Unix     *attest.Credentials // the Unix socket's peer; nil on TCP
	Loopback bool                // TCP: the listener is a loopback one
	Enforce  bool                // TCP: the listener asks for a token
	Listener string              // the listener's address, to tell sources apart

	// OwnerUID is the uid that owns a loopback caller's socket, by the
	// kernel's table, when OwnerKnown. Observed: it refuses, never admits. On
	// a listener that asks for a token it only tells failing callers apart.
	OwnerUID   uint32
	OwnerKnown bool

	Remote netip.Addr // TCP: where the caller comes from

	Spawn string // Unix: the started agent whose process tree it stands in; empty: none

	// Observe looks at the program behind Unix, once, at the connection's first
	// request. nil: the program is not observed.
	Observe func() peer.Evidence

	who  atomic.Pointer[principal.Principal] // who the connection itself is
	seen atomic.Pointer[seen]                // the token presented last
}

// seen is a token that was accepted on this connection, by its digest.
type seen struct {
	table  *table
	digest [sha256.Size]byte
	cred   *credential
}

// in is the credential in t. A token that was good on this connection costs
// its source nothing when the table is a new one.
func (s *seen) in(t *table) *credential {
	if s.table == t {
		return s.cred
	}
	return t.match(&s.digest)
}
