package authn

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// The store is one file in the state directory, used by the command line and the
// daemon. Readers see a whole file, because it is replaced by rename. Writers exclude
// each other by a kernel lock, which ends with its process.
const (
	storeFile = "tokens.json"
	storeNew  = "tokens.json.new"
	storeLock = "tokens.lock"
	lockWait  = 10 * time.Second
	maxStore  = 16 << 20 // bytes
)

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

func (s *Store) stamp() (peer.Stamp, error) {
	stamp, err := peer.StampOf(filepath.Join(s.dir, storeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return peer.Stamp{}, nil
	}
	return stamp, err
}

// load reads the file; a missing file holds no tokens. Any defect is an error for the
// whole file: a restriction that was not understood must not be ignored.
func (s *Store) load() ([]record, peer.Stamp, error) {
	path := filepath.Join(s.dir, storeFile)
	f, err := s.open()
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, durable.ErrMoved) {
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
		return nil, stamp, fmt.Errorf("the token store %s must be a file of the current user with mode 0600", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxStore+1))
	if err != nil {
		return nil, stamp, fmt.Errorf("reading the token store: %w", err)
	}
	records, err := parseStore(b)
	if err != nil {
		return nil, stamp, fmt.Errorf("the token store %s is damaged: %w; restore a backup, or move it away and make the tokens again", path, err)
	}
	return records, stamp, nil
}

// open opens the file in the directory that was pinned at the first look.
func (s *Store) open() (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.place == nil {
		place, err := durable.Pin(filepath.Join(s.dir, storeFile))
		if err != nil {
			return nil, err
		}
		s.place = place
	}
	return s.place.Open()
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
		return nil, errors.New("there is data after its end")
	}
	if doc.Version != 1 {
		return nil, fmt.Errorf("version %d is not known", doc.Version)
	}
	ids, current := map[string]bool{}, map[string]bool{}
	for i, r := range doc.Tokens {
		if !validRecord(r) || ids[r.ID] || r.current() && current[r.Name] {
			return nil, fmt.Errorf("its token %d is not well-formed", i)
		}
		ids[r.ID] = true
		current[r.Name] = current[r.Name] || r.current()
	}
	return doc.Tokens, nil
}

// plain keeps the offset of a JSON error and drops the quoted content.
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

// validRecord checks one token record. A token with a successor must expire.
func validRecord(r record) bool {
	_, err := hex.DecodeString(strings.TrimPrefix(r.ID, "T"))
	return err == nil && len(r.ID) == 17 && r.ID[0] == 'T' && ValidName(r.Name) && validScope(r.Scope) &&
		!r.Created.IsZero() && r.Digest != digest{} && (r.Succeeded.IsZero() || !r.Expires.IsZero())
}

// change reads, alters and replaces the file while it holds the lock. A damaged
// store is left as it is, for the operator to inspect.
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
	if err := s.replace(records); err != nil {
		return fmt.Errorf("writing the token store: %w", err)
	}
	return nil
}

// replace writes the file. The caller holds the lock.
func (s *Store) replace(records []record) error {
	b, err := json.MarshalIndent(document{1, records}, "", " ")
	if err != nil {
		return err
	}
	if len(b) >= maxStore {
		return errors.New("it is full: revoked and expired tokens are removed after 90 days")
	}
	dir, err := durable.OpenRoot(s.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return durable.Replace(dir, storeNew, storeFile, append(b, '\n'))
}
