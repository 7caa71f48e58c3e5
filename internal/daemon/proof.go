package daemon

import (
	"crypto/ed25519"
	"encoding/base64"
	"io"
	"net/http"

	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// PublicProofName is the file of the state directory with the public key by
// which clients know the daemon, and proofName the one with its private half.
const (
	PublicProofName = "daemon.pub"
	proofName       = "daemon.key"
)

// proof is the key by which clients of the socket recognise the daemon.
type proof ed25519.PrivateKey

// public is the public half as clients read it.
func (p proof) public() string {
	return base64.RawURLEncoding.EncodeToString(ed25519.PrivateKey(p).Public().(ed25519.PublicKey))
}

// proving answers on the Unix socket who serves it, before any authentication: a
// client that does not know the daemon must not send it a token. Only the
// client's nonce and the pid of the process that bound the socket are signed: this
// one, or the service manager that passed it.
func (p proof) proving(l *listen.Listener, next http.Handler) http.Handler {
	if l.Network != "unix" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != peer.ProofPath || !screen(r) {
			next.ServeHTTP(w, r)
			return
		}
		signed, ok := peer.Prove(ed25519.PrivateKey(p), r.Header.Get(peer.ProofNonce), l.Binder())
		if !ok {
			http.Error(w, "no nonce", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, signed) // who does not hear it asks again
	})
}
