package authn

import (
	"crypto/sha256"
	"net/netip"
	"sync/atomic"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Caller holds the facts about one connection. The fields are set once, before the
// first Authenticate. A Caller belongs to one connection, because it caches its
// principal.
type Caller struct {
	Unix     *attest.Credentials // the Unix socket's peer; nil on TCP
	Loopback bool                // TCP: the listener is a loopback one
	Enforce  bool                // TCP: the listener requires a token
	Listener string              // the listener's address, which distinguishes sources

	// OwnerUID is the uid that owns the socket of a loopback caller in the kernel's
	// table, if OwnerKnown. It is observed: it may refuse, never admit. On a listener
	// that requires a token it only distinguishes failing callers.
	OwnerUID   uint32
	OwnerKnown bool

	Remote netip.Addr // TCP: the address of the other end

	Spawn string // Unix: id of the started agent whose process tree contains the peer; empty: none

	// Observe examines the program of the Unix peer, once, at the first request of the
	// connection. nil: the program is not observed.
	Observe func() peer.Evidence

	who  atomic.Pointer[principal.Principal] // the principal of the connection itself
	seen atomic.Pointer[seen]                // the token that was accepted last
}

// seen is a token that was accepted on this connection, identified by its digest.
type seen struct {
	table  *table
	digest [sha256.Size]byte
	cred   *credential
}

// in returns the credential in t. It searches t itself, so that a known token is not
// charged to its source when the table was replaced.
func (s *seen) in(t *table) *credential {
	if s.table == t {
		return s.cred
	}
	return t.match(&s.digest)
}
