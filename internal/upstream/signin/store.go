package signin

import (
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// entry is one sign-in: the client and the tokens of one server at one authorization server.
type entry struct {
	Server     string    `json:"server"`
	Issuer     string    `json:"issuer"`
	Resource   string    `json:"resource"`
	URL        string    `json:"url"` // the server's canonical URI at that time: tokens are sent only there
	Client     client    `json:"client"`
	Token      string    `json:"token_endpoint"`
	Revocation string    `json:"revocation_endpoint,omitzero"`
	Access     string    `json:"access,omitzero"`
	Refresh    string    `json:"refresh,omitzero"`
	Expires    time.Time `json:"expires,omitzero"`
	Scopes     []string  `json:"scopes,omitzero"` // granted
	Wanted     []string  `json:"wanted,omitzero"` // asked for by the server since then, with the granted ones
	Signed     time.Time `json:"signed"`          // time of the person's sign-in
	Renewed    time.Time `json:"renewed"`         // time of the access token
}

// hidden is the printed form of an entry, because an entry holds secrets.
const hidden = "[sign-in]"

func (entry) String() string { return hidden }

// GoString, Format and LogValue return hidden too.
func (entry) GoString() string           { return hidden }
func (entry) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(hidden)) }
func (entry) LogValue() slog.Value       { return slog.StringValue(hidden) }

func (e entry) name() string { return digest(e.Server, e.Issuer, e.Resource) + suffix }

func (e entry) is(server, url string) bool { return e.Server == server && e.URL == url }

// good reports whether the access token is still valid, spare whether it also need not be renewed yet.
func (e entry) good(now time.Time) bool  { return e.Access != "" && !e.due(now, 0) }
func (e entry) spare(now time.Time) bool { return e.Access != "" && !e.due(now, leeway) }

// recent reports whether the access token was just renewed. A time in the future says nothing:
// the clock was set back since then.
func (e entry) recent(now time.Time) bool {
	age := now.Sub(e.Renewed)
	return age >= 0 && age < fresh
}

// take sets the tokens from a token endpoint. A refresh token that was not replaced is kept.
func (e *entry) take(t tokens, now time.Time) {
	e.Access, e.Expires, e.Renewed = t.access, t.expires, now
	if t.refresh != "" {
		e.Refresh = t.refresh
	}
	if t.scopes != nil {
		e.Scopes = t.scopes
	}
}

const (
	// leeway is how long before its end a token is renewed: requests take time, and clocks differ.
	leeway = 30 * time.Second
	// fresh is the age below which renewing a refused token cannot help.
	fresh = 10 * time.Second
)

// due reports whether the access token ends within d. For a token with a short life d is reduced to a quarter
// of that life.
func (e entry) due(now time.Time, d time.Duration) bool {
	if e.Expires.IsZero() {
		return false
	}
	return !now.Before(e.Expires.Add(-min(d, e.Expires.Sub(e.Renewed)/4)))
}

const suffix = ".sealed"

// digest returns a file name for the given parts that hides them. Each part is hashed with its length, so that
// different parts never give the same input.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Options configures a Store.
type Options struct {
	Dir string       // the state directory
	Key secret.Value // seals the files; empty: a key in Dir is used
}

// Store keeps sign-ins, one sealed file each. Several processes may use one directory.
type Store struct {
	dir  string
	seal cipher.AEAD
}

// OpenStore opens the sign-ins of a state directory.
func OpenStore(o Options) (*Store, error) {
	state, err := peer.PrivateDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	state.Close()
	s := &Store{dir: filepath.Join(o.Dir, "signin")}
	d, err := peer.PrivateDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("sign-ins: %w", err)
	}
	d.Close()
	s.tidy()
	s.seal, err = newSeal(o.Dir, o.Key)
	return s, err
}

// tidy removes the drafts of processes that were killed while writing.
func (s *Store) tidy() {
	left, _ := filepath.Glob(filepath.Join(s.dir, durable.Draft+"*"))
	for _, path := range left {
		if fi, err := os.Stat(path); err == nil && time.Since(fi.ModTime()) > time.Hour {
			_ = os.Remove(path) // the next one tries again
		}
	}
}

// all returns the entries that can be read. A file that cannot be read, because it was sealed with another key
// or is damaged, is only counted.
func (s *Store) all() (entries []entry, sealed int, err error) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, 0, fmt.Errorf("sign-ins: %w", err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), suffix) {
			continue
		}
		e, err := s.read(f.Name())
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil:
			sealed++
		default:
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return b.Signed.Compare(a.Signed) })
	return entries, sealed, nil
}

// read opens one file. Its name is authenticated with it: a file that was renamed to another server's name does
// not open.
func (s *Store) read(name string) (entry, error) {
	b, err := durable.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		return entry{}, err
	}
	plain, err := s.seal.Open(nil, nil, b, []byte(name))
	if err != nil {
		return entry{}, errors.New("it was sealed with another key, or is damaged")
	}
	var e entry
	if err := decode(plain, &e); err != nil || e.name() != name {
		return entry{}, errors.New("it is not a sign-in")
	}
	return e, nil
}

// write replaces an entry's file by rename: a reader finds the old file or the new one, even after a kill.
func (s *Store) write(e entry) error {
	plain, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("sealing a sign-in: %w", err)
	}
	if err := durable.ReplaceAt(filepath.Join(s.dir, e.name()), s.seal.Seal(nil, nil, plain, []byte(e.name()))); err != nil {
		return fmt.Errorf("writing a sign-in: %w", err)
	}
	return nil
}

// find returns the newest sign-in for a server at an address.
func (s *Store) find(server, url string) (entry, bool) {
	entries, _, err := s.all()
	if err != nil {
		return entry{}, false
	}
	i := slices.IndexFunc(entries, func(e entry) bool { return e.is(server, url) })
	if i < 0 {
		return entry{}, false
	}
	return entries[i], true
}

// has reports whether a sign-in still exists. If that cannot be determined, it counts as existing.
func (s *Store) has(e entry) bool {
	_, err := os.Stat(filepath.Join(s.dir, e.name()))
	return !errors.Is(err, fs.ErrNotExist)
}

// locked runs f while no other process or goroutine changes the sign-ins of a server.
func (s *Store) locked(server string, wait time.Duration, f func() error) error {
	d, err := peer.PrivateDir(s.dir)
	if err != nil {
		return fmt.Errorf("sign-ins: %w", err)
	}
	defer d.Close()
	lock, err := peer.Lock(d, digest(server)+".lock", wait)
	if err != nil {
		return fmt.Errorf("sign-ins: %w", err)
	}
	defer lock.Close()
	return f()
}

// keep stores a new sign-in, and removes the earlier ones of its server.
func (s *Store) keep(e entry) error {
	return s.locked(e.Server, lockTime, func() error {
		if err := s.write(e); err != nil {
			return err
		}
		_, err := s.drop(e.Server, e.name())
		return err
	})
}

// drop removes a server's entries except one, and returns them. The caller holds the lock.
func (s *Store) drop(server, except string) (dropped []entry, err error) {
	entries, _, err := s.all()
	for _, e := range entries {
		if e.Server != server || e.name() == except {
			continue
		}
		dropped = append(dropped, e)
		err = errors.Join(err, os.Remove(filepath.Join(s.dir, e.name())))
	}
	return dropped, err
}

// lockTime bounds the wait for the refresh of another process.
const lockTime = fetchTime + 5*time.Second
