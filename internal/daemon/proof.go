package daemon

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// PublicProofName is the file of the state directory with the public key by
// which clients know the daemon, and proofName the one with its private half.
const (
	PublicProofName = "daemon.pub"
	proofName       = "daemon.key"
)

// openProof reads the key, or makes it, and publishes its public half.
func (d *Daemon) openProof() error {
	seed, err := sealKey(filepath.Join(d.o.StateDir, proofName))
	if err != nil {
		return err
	}
	d.proof = ed25519.NewKeyFromSeed(seed)
	if err := durable.ReplaceAt(filepath.Join(d.o.StateDir, PublicProofName), []byte(d.publicProof()+"\n")); err != nil {
		return fmt.Errorf("publishing the daemon's key: %w", err)
	}
	return nil
}

// publicProof is the public half as clients read it.
func (d *Daemon) publicProof() string {
	return base64.RawURLEncoding.EncodeToString(d.proof.Public().(ed25519.PublicKey))
}

// proving answers on the Unix socket who serves it, before anybody is
// authenticated: a client that does not know the daemon must not send it a
// token. What is signed is nothing but the client's nonce and this process.
func (d *Daemon) proving(l *listen.Listener, next http.Handler) http.Handler {
	if l.Network != "unix" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != peer.ProofPath || !screen(r) {
			next.ServeHTTP(w, r)
			return
		}
		proof, ok := peer.Prove(d.proof, r.Header.Get(peer.ProofNonce), os.Getpid())
		if !ok {
			http.Error(w, "no nonce", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, proof) // who does not hear it asks again
	})
}
