package authn

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/peer"
)

// The store is one file in the state directory, for the command line and the
// daemon alike: readers see a whole file, because it is replaced by rename;
// writers take turns by a lock of the kernel, which ends with its holder.
const (
	storeFile  = "tokens.json"
	storeNew   = "tokens.json.new"
	storeLock  = "tokens.lock"
	lockWait   = 10 * time.Second
	maxStore   = 16 << 20 // bytes
	keepDead   = 90 * 24 * time.Hour
	secretSize = 32 // bytes: 256 bits
)

var (
	// ErrName: not a name for a token, or one that is reserved.
	ErrName = errors.New("a token's name is 1 to 64 of a-z 0-9 . _ - and begins with a letter or digit; env and file are taken")
	// ErrExists: a token of that name is there and not revoked.
	ErrExists = errors.New("a token of that name exists: revoke it first")
	// ErrNoToken: no token has that id, and none that is not revoked that name.
	ErrNoToken = errors.New("no such token")
	// ErrScope: not a scope that `token new` takes.
	ErrScope = errors.New("a scope is a comma-separated list of server:NAME, tool:SERVER/NAME, agent, instructions, admin")
	// ErrExpiry: a token cannot have expired before it is made.
	ErrExpiry = errors.New("a token expires in the future")
)

// Store is the file of tokens in a state directory. It has no state of its
// own and may be used by many processes at once.
type Store struct{ dir string }

// NewStore names the store in dir; nothing is opened or made.
func NewStore(dir string) *Store { return &Store{dir: dir} }

// Token is what the store tells of a token. The token itself is not in it.
type Token struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Scope   string    `json:"scope"` // empty: the default
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
	Revoked time.Time `json:"revoked,omitzero"` // zero: not revoked
}

// record is a token in the file.
type record struct {
	Token
	Digest digest `json:"sha256"`
}

type digest [sha256.Size]byte

func (d digest) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(d[:])), nil }

func (d *digest) UnmarshalText(b []byte) error {
	if len(b) != 2*len(d) {
		return errors.New("not a SHA-256 digest")
	}
	_, err := hex.Decode(d[:], b)
	return err
}

type document struct {
	Version int      `json:"version"`
	Tokens  []record `json:"tokens"`
}

// NewToken makes a token and stores its digest. secret is "dw_" and 43
// characters of 256 random bits; it exists nowhere else, so show it now.
// expires 0 means never. Errors: ErrName, ErrExists, ErrScope, ErrExpiry, or
// what is wrong with the store.
func (s *Store) NewToken(name string, expires time.Duration, scope string) (secret, id string, err error) {
	switch {
	case !ValidName(name):
		return "", "", ErrName
	case !validScope(scope):
		return "", "", ErrScope
	case expires < 0:
		return "", "", ErrExpiry
	}
	secret, id = newSecret()
	now := time.Now().UTC()
	r := record{Digest: sha256.Sum256([]byte(secret)), Token: Token{ID: id, Name: name, Scope: scope, Created: now}}
	if expires > 0 {
		r.Expires = now.Add(expires)
	}
	err = s.change(func(records []record) ([]record, error) {
		if slices.ContainsFunc(records, func(r record) bool { return r.Name == name && r.Revoked.IsZero() }) {
			return nil, ErrExists
		}
		return append(withoutLongDead(records, now), r), nil
	})
	if err != nil {
		return "", "", err
	}
	return secret, id, nil
}

// List gives all tokens, the revoked and the expired too, oldest first.
func (s *Store) List() ([]Token, error) {
	records, _, err := s.load()
	if err != nil {
		return nil, err
	}
	tokens := make([]Token, 0, len(records))
	for _, r := range records {
		tokens = append(tokens, r.Token)
	}
	return tokens, nil
}

// Revoke revokes the token with that id, or else the one of that name that is
// not revoked. A running daemon refuses it within two seconds. Revoking an id
// again changes nothing. Errors: ErrNoToken, or what is wrong with the store.
func (s *Store) Revoke(idOrName string) (Token, error) {
	var revoked Token
	err := s.change(func(records []record) ([]record, error) {
		i := slices.IndexFunc(records, func(r record) bool { return r.ID == idOrName })
		if i < 0 {
			i = slices.IndexFunc(records, func(r record) bool { return r.Name == idOrName && r.Revoked.IsZero() })
		}
		if i < 0 {
			return nil, ErrNoToken
		}
		if records[i].Revoked.IsZero() {
			records[i].Revoked = time.Now().UTC()
		}
		revoked = records[i].Token
		return records, nil
	})
	return revoked, err
}

// newSecret gives a token and its id. Ids begin with a capital letter, which
// no name has, so that neither can be taken for the other.
func newSecret() (secret, id string) {
	var b [secretSize + 8]byte
	rand.Read(b[:]) // never fails
	return "dw_" + base64.RawURLEncoding.EncodeToString(b[:secretSize]), "T" + hex.EncodeToString(b[secretSize:])
}

// withoutLongDead forgets what was revoked or expired long ago, so that the
// file does not grow for ever.
func withoutLongDead(records []record, now time.Time) []record {
	dead := func(t time.Time) bool { return !t.IsZero() && now.Sub(t) > keepDead }
	return slices.DeleteFunc(records, func(r record) bool { return dead(r.Revoked) || dead(r.Expires) })
}

// ValidName reports whether a token may have this name.
func ValidName(name string) bool {
	if name == "env" || name == "file" || name == "" || len(name) > 64 {
		return false
	}
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || strings.IndexByte("._-", c) < 0) {
			return false
		}
	}
	return true
}

func validScope(scope string) bool {
	if scope == "" {
		return true
	}
	for item := range strings.SplitSeq(scope, ",") {
		kind, rest, named := strings.Cut(item, ":")
		server, tool, slash := strings.Cut(rest, "/")
		switch {
		case !named && (item == "agent" || item == "instructions" || item == "admin"):
		case named && kind == "server" && rest != "" && !slash && isVisible(rest):
		case named && kind == "tool" && server != "" && tool != "" && isVisible(rest):
		default:
			return false
		}
	}
	return true
}

func (s *Store) stamp() (peer.Stamp, error) {
	stamp, err := peer.StampOf(filepath.Join(s.dir, storeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return peer.Stamp{}, nil
	}
	return stamp, err
}

// load reads the file; one that is missing holds no tokens. Anything odd about
// it is an error for the whole of it: a restriction that was not understood
// must not be left out.
func (s *Store) load() ([]record, peer.Stamp, error) {
	path := filepath.Join(s.dir, storeFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, peer.Stamp{}, nil
	}
	if err != nil {
		return nil, peer.Stamp{}, fmt.Errorf("reading the token store: %w", err)
	}
	defer f.Close()
	stamp, err := peer.StampOfFile(f)
	if err != nil {
		return nil, stamp, fmt.Errorf("reading the token store: %w", err)
	}
	if !stamp.Regular || stamp.UID != uint32(os.Geteuid()) || stamp.Perm&0o077 != 0 {
		return nil, stamp, fmt.Errorf("the token store %s must be a file of ours with mode 0600", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxStore+1))
	if err != nil {
		return nil, stamp, fmt.Errorf("reading the token store: %w", err)
	}
	records, err := parseStore(b)
	if err != nil {
		return nil, stamp, fmt.Errorf("the token store %s is damaged: %w", path, err)
	}
	return records, stamp, nil
}

func parseStore(b []byte) ([]record, error) {
	if len(b) > maxStore {
		return nil, errors.New("it is too large")
	}
	var doc document
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		return nil, fmt.Errorf("not readable as version 1: %w", plain(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows its end")
	}
	if doc.Version != 1 {
		return nil, fmt.Errorf("version %d is not known", doc.Version)
	}
	ids, names := map[string]bool{}, map[string]bool{}
	for i, r := range doc.Tokens {
		live := r.Revoked.IsZero()
		if !validRecord(r) || ids[r.ID] || live && names[r.Name] {
			return nil, fmt.Errorf("its token %d is not well-formed", i)
		}
		ids[r.ID] = true
		names[r.Name] = names[r.Name] || live
	}
	return doc.Tokens, nil
}

// plain keeps the offset of a JSON error and drops what it quotes.
func plain(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("bad JSON at byte %d", syntax.Offset)
	}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fmt.Errorf("bad value at byte %d", kind.Offset)
	}
	return errors.New("bad JSON")
}

func validRecord(r record) bool {
	_, err := hex.DecodeString(strings.TrimPrefix(r.ID, "T"))
	return err == nil && len(r.ID) == 17 && r.ID[0] == 'T' && ValidName(r.Name) && validScope(r.Scope) &&
		!r.Created.IsZero() && r.Digest != digest{}
}

// change reads, alters and replaces the file while it holds the lock. A
// damaged store is left as it is, for somebody to look at.
func (s *Store) change(alter func([]record) ([]record, error)) error {
	dir, err := peer.PrivateDir(s.dir)
	if err != nil {
		return fmt.Errorf("opening the token store: %w", err)
	}
	defer dir.Close()
	lock, err := peer.Lock(dir, storeLock, lockWait)
	if err != nil {
		return fmt.Errorf("opening the token store: %w", err)
	}
	defer lock.Close()
	records, _, err := s.load()
	if err != nil {
		return err
	}
	if records, err = alter(records); err != nil {
		return err
	}
	if err := s.replace(dir, records); err != nil {
		return fmt.Errorf("writing the token store: %w", err)
	}
	return nil
}

// replace writes a new file, syncs it, renames it over the old one and syncs
// the directory: after a crash there is the old file or the new one, whole.
func (s *Store) replace(dir *os.File, records []record) error {
	b, err := json.MarshalIndent(document{1, records}, "", " ")
	if err != nil {
		return err
	}
	fresh := filepath.Join(s.dir, storeNew)
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // what a writer left that was killed
	}
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	if err := os.Rename(fresh, filepath.Join(s.dir, storeFile)); err != nil {
		return err
	}
	return dir.Sync()
}
