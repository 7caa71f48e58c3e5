package daemon

import (
	"crypto/ed25519"
	"encoding/base64"
	"io"
	"net/http"

	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// PublicProofName is the file of the public key by which clients identify the daemon, in the
// state directory, and proofName the file of the private key.
const (
	PublicProofName = "daemon.pub"
	proofName       = "daemon.key"
)

// proof is the key by which clients of the Unix socket identify the daemon.
type proof ed25519.PrivateKey

// public returns the public key in the form that clients read.
func (p proof) public() string {
	return base64.RawURLEncoding.EncodeToString(ed25519.PrivateKey(p).Public().(ed25519.PublicKey))
}

// proving serves the proof on the Unix socket, before any authentication: a client must not
// send a token to a daemon that it has not identified. Only the client's nonce and the pid of
// the process that bound the socket are signed: this process, or the service manager that
// passed the socket.
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
		_, _ = io.WriteString(w, signed) // a client without the answer asks again
	})
}
