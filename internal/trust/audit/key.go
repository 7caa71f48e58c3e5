package audit

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
)

// Origin is the name of the key and the first line of every checkpoint.
const Origin = "doorward/audit"

// PublicName is the file beside the private key that holds the verifier string,
// for those who check checkpoints elsewhere.
const PublicName = "audit.pub"

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

// LoadOrCreateKey reads the ed25519 key at path, in the format of
// golang.org/x/mod/sumdb/note, or makes one. A file that is not private, as
// durable.ReadSecret judges it, is an error, because another user who can read
// the key can sign. The verifier string is in the file PublicName beside it. That
// file is written when it is missing, and must match the key when it is not.
func LoadOrCreateKey(path string) (*Key, error) {
	b, err := durable.Secret(path, maxKey, freshKey)
	if err != nil {
		return nil, fmt.Errorf("the audit key %w", err)
	}
	k, err := parseKey(strings.TrimSpace(string(b)))
	if err != nil {
		return nil, fmt.Errorf("the audit key %s: %w", path, err)
	}
	if err := k.publish(filepath.Join(filepath.Dir(path), PublicName)); err != nil {
		return nil, err
	}
	return k, nil
}

// maxKey is more bytes than a key has.
const maxKey = 1024

func freshKey() ([]byte, error) {
	private, _, err := note.GenerateKey(rand.Reader, Origin)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	return []byte(private + "\n"), nil
}

// LoadVerifier reads a verifier string, such as the file PublicName holds.
func LoadVerifier(path string) (note.Verifier, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the audit verifier: %w", err)
	}
	v, err := note.NewVerifier(strings.TrimSpace(string(b)))
	if err != nil || v.Name() != Origin {
		return nil, fmt.Errorf("%s is no verifier of %s", path, Origin)
	}
	return v, nil
}

// parseKey never quotes what it was given.
func parseKey(text string) (*Key, error) {
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

// publicHalf gives the verifier string of PRIVATE+KEY+name+hash+base64, which
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

func (k *Key) publish(path string) error {
	have, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		have = []byte(k.public)
		err = durable.ReplaceAt(path, []byte(k.public+"\n"))
	}
	if err != nil {
		return fmt.Errorf("publishing the audit verifier: %w", err)
	}
	if string(bytes.TrimSpace(have)) != k.public {
		return fmt.Errorf("%s does not belong to the audit key beside it; move one of them away", path)
	}
	return nil
}
