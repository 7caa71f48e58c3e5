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
	"syscall"

	"golang.org/x/mod/sumdb/note"
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
// golang.org/x/mod/sumdb/note, or makes one. The file must be a regular one
// with mode 0600; anything else is an error, because whoever could read it can
// sign. The verifier string stands in the file PublicName beside it, which is
// written when it is missing and must fit the key when it is not.
func LoadOrCreateKey(path string) (*Key, error) {
	k, err := loadKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		if k, err = createKey(path); errors.Is(err, fs.ErrExist) {
			k, err = loadKey(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("audit key %s: %w", path, err)
	}
	if err := k.publish(filepath.Join(filepath.Dir(path), PublicName)); err != nil {
		return nil, err
	}
	return k, nil
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

func loadKey(path string) (*Key, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if fi.Mode() != 0o600 {
		return nil, fmt.Errorf("mode is %v, must be a regular file with -rw-------", fi.Mode())
	}
	b := make([]byte, 1024)
	n, err := f.Read(b)
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	return parseKey(strings.TrimSpace(string(b[:n])))
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

// createKey makes a key that is at path either whole or not at all, and never
// replaces one: of two processes that start together one gets fs.ErrExist.
func createKey(path string) (*Key, error) {
	private, _, err := note.GenerateKey(rand.Reader, Origin)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	if err := writeWhole(path, private+"\n", 0o600, os.Link); err != nil {
		return nil, err
	}
	return parseKey(private)
}

func (k *Key) publish(path string) error {
	have, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		have = []byte(k.public)
		err = writeWhole(path, k.public+"\n", 0o644, os.Rename)
	}
	if err != nil {
		return fmt.Errorf("publishing the audit verifier: %w", err)
	}
	if string(bytes.TrimSpace(have)) != k.public {
		return fmt.Errorf("%s does not belong to the audit key beside it; move one of them away", path)
	}
	return nil
}

// writeWhole writes text to a new file (O_EXCL) beside path, makes it durable
// and lets place bring it to path.
func writeWhole(path, text string, mode fs.FileMode, place func(from, to string) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".audit-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := place(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}
