// Package auditkey keeps the key of the audit log in the state directory.
//
// Invariant: a private key that another user could have read is not used, and the verifier
// that is published beside a private key always belongs to it.
package auditkey

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/trust/audit"
)

// PublicName is the file beside the private key with the verifier string, by which
// checkpoints are verified on another machine.
const PublicName = "audit.pub"

// LoadOrCreate reads the ed25519 key at path, in the format of golang.org/x/mod/sumdb/note,
// or makes one. It is an error if the file is not private (durable.ReadSecret), because
// another user who can read the key can sign. The verifier string is in the file PublicName
// beside it. That file is written when it is missing, and must match the key otherwise.
func LoadOrCreate(path string) (*audit.Key, error) {
	b, err := durable.Secret(path, maxKey, freshKey)
	if err != nil {
		return nil, fmt.Errorf("the audit key %w", err)
	}
	k, public, err := parse(strings.TrimSpace(string(b)))
	if err != nil {
		return nil, fmt.Errorf("the audit key %s: %w", path, err)
	}
	if err := publish(public, filepath.Join(filepath.Dir(path), PublicName)); err != nil {
		return nil, err
	}
	return k, nil
}

// maxKey is an upper bound for the bytes of a key file.
const maxKey = 1024

func freshKey() ([]byte, error) {
	private, _, err := note.GenerateKey(rand.Reader, audit.Origin)
	return []byte(private + "\n"), err
}

// parse reads a private key and derives the verifier string. Its errors never contain the
// text.
func parse(text string) (k *audit.Key, public string, err error) {
	signer, err := note.NewSigner(text)
	if err != nil || signer.Name() != audit.Origin {
		return nil, "", fmt.Errorf("the file does not contain a private key of %s", audit.Origin)
	}
	if public, err = publicHalf(text); err != nil {
		return nil, "", err
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		return nil, "", fmt.Errorf("deriving the verifier: %w", err)
	}
	return &audit.Key{Signer: signer, Verifier: verifier}, public, nil
}

// publicHalf returns the verifier string of PRIVATE+KEY+name+hash+base64, which
// note.NewSigner has accepted. The base64 part is one byte of algorithm and the 32 bytes of
// the seed.
func publicHalf(private string) (string, error) {
	parts := strings.SplitN(private, "+", 5)
	if len(parts) != 5 {
		return "", errors.New("the private key is malformed")
	}
	b, err := base64.StdEncoding.DecodeString(parts[4])
	if err != nil || len(b) != 1+ed25519.SeedSize {
		return "", errors.New("the private key is malformed")
	}
	public := ed25519.NewKeyFromSeed(b[1:]).Public().(ed25519.PublicKey)
	return note.NewEd25519VerifierKey(parts[2], public)
}

// LoadVerifier reads a verifier string, as in the file PublicName.
func LoadVerifier(path string) (note.Verifier, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the audit verifier: %w", err)
	}
	v, err := note.NewVerifier(strings.TrimSpace(string(b)))
	if err != nil || v.Name() != audit.Origin {
		return nil, fmt.Errorf("%s is not a verifier of %s", path, audit.Origin)
	}
	return v, nil
}

func publish(public, path string) error {
	have, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		have = []byte(public)
		err = durable.ReplaceAt(path, []byte(public+"\n"))
	}
	if err != nil {
		return fmt.Errorf("publishing the audit verifier: %w", err)
	}
	if string(bytes.TrimSpace(have)) != public {
		return fmt.Errorf("%s does not belong to the audit key beside it; move one of them away", path)
	}
	return nil
}
