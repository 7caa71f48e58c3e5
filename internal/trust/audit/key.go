package audit

// The key. Invariant: its private half is in no text that Key prints.

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// Origin is the name of the key and the first line of every checkpoint.
const Origin = "doorward/audit"

// Key signs checkpoints. It prints as its public half.
type Key struct {
	signer   note.Signer
	verifier note.Verifier
	public   string
}

// Verifier checks what the key signed.
func (k *Key) Verifier() note.Verifier { return k.verifier }

// String is the verifier string, name+hash+base64.
func (k *Key) String() string { return k.public }

// GoString keeps %#v from printing the private half.
func (k *Key) GoString() string { return k.public }

// NewKey makes a private key in the format of golang.org/x/mod/sumdb/note, as
// ParseKey reads it.
func NewKey() (private string, err error) {
	if private, _, err = note.GenerateKey(rand.Reader, Origin); err != nil {
		return "", fmt.Errorf("making a key: %w", err)
	}
	return private, nil
}

// ParseKey reads a private key. Its errors never quote the text.
func ParseKey(text string) (*Key, error) {
	signer, err := note.NewSigner(text)
	if err != nil || signer.Name() != Origin {
		return nil, fmt.Errorf("the file holds no private key of %s", Origin)
	}
	public, err := publicHalf(text)
	if err != nil {
		return nil, err
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		return nil, fmt.Errorf("deriving the verifier: %w", err)
	}
	return &Key{signer: signer, verifier: verifier, public: public}, nil
}

// publicHalf returns the verifier string of PRIVATE+KEY+name+hash+base64, which
// note.NewSigner took: one byte of algorithm and the 32 bytes of the seed.
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
