package authn

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// lookEvery is the interval at which the files are checked for changes: a revoked token
// is refused at most this long after. An unknown token causes an earlier check, because
// it may have just been made.
const (
	lookEvery  = time.Second
	lookSooner = 100 * time.Millisecond
)

// EnvToken names the environment variable in problems.
const EnvToken = "DOORWARD_TOKEN"

// source is the credential of a static token, or the reason why it cannot be used, or
// neither.
type source struct {
	cred    *credential
	problem string
}

func envSource(v secret.Value, n namer) source {
	if v.Empty() {
		return source{}
	}
	token, err := Usable(v.Reveal())
	if err != nil {
		return source{problem: EnvToken + " " + err.Error()}
	}
	c := n.credential("env", digestOf(token))
	return source{cred: &c}
}

// tokenFile is the file of --token-file. It is read again when it changes. While it
// cannot be used it authenticates no caller.
type tokenFile struct {
	path  string
	namer namer
	place *durable.Pinned // of path, pinned at the first look; nil: not yet
	source
	stamp   peer.Stamp
	settled bool
}

// look reads the file again if it changed, and reports whether the credential or the
// problem changed.
func (f *tokenFile) look(now time.Time) (changed bool) {
	if f.path == "" {
		return false
	}
	if s, err := peer.StampOf(f.path); err == nil && s == f.stamp && f.settled {
		return false
	}
	token, stamp, err := f.read()
	f.stamp, f.settled = stamp, err == nil && stamp.Settled(now)
	if err != nil {
		problem := "the token file " + f.path + " " + err.Error()
		changed = f.problem != problem
		f.source = source{problem: problem}
		return changed
	}
	digest := digestOf(token)
	if f.cred != nil && f.cred.digest == digest {
		return false
	}
	c := f.namer.credential("file", digest)
	f.source = source{cred: &c}
	return true
}

// read reads the token. Only the owner of the file, this user or root, may have access.
func (f *tokenFile) read() (token string, stamp peer.Stamp, err error) {
	if f.place == nil {
		if f.place, err = durable.Pin(f.path); err != nil {
			return "", stamp, fmt.Errorf("cannot be read: %w", inner(err))
		}
	}
	file, err := f.place.Open()
	if err != nil {
		return "", stamp, fmt.Errorf("cannot be read: %w", inner(err))
	}
	defer file.Close()
	if stamp, err = peer.StampOfFile(file); err != nil {
		return "", stamp, fmt.Errorf("cannot be read: %w", inner(err))
	}
	if err := ownersOnly(stamp); err != nil {
		return "", stamp, err
	}
	b, err := io.ReadAll(io.LimitReader(file, maxToken+2))
	if err != nil {
		return "", stamp, fmt.Errorf("cannot be read: %w", inner(err))
	}
	token, err = Usable(string(b))
	return token, stamp, err
}

// inner drops the path from an error, because the problem already contains it.
func inner(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// ownersOnly accepts a regular file of this user or root without access for group and
// others. A credential that systemd passes belongs to root with mode 0440, where the
// group bits stand for the access control list that gives this user access.
func ownersOnly(s peer.Stamp) error {
	euid := uint32(os.Geteuid())
	passed := s.UID == 0 && s.GID == 0 && s.Perm == 0o440 && euid != 0
	switch {
	case !s.Regular:
		return errors.New("is not a regular file")
	case s.UID != euid && s.UID != 0:
		return fmt.Errorf("belongs to uid %d", s.UID)
	case s.Perm&0o077 != 0 && !passed:
		return fmt.Errorf("can be read or written by others (mode %04o): chmod 600", s.Perm)
	}
	return nil
}

// storedTokens is the result of the last read of the store.
type storedTokens struct {
	creds   []credential
	problem string
	stamp   peer.Stamp
	settled bool
	read    bool
}

func (st *storedTokens) look(s *Store, now time.Time) (changed bool) {
	if s == nil {
		return false
	}
	stamp, err := s.stamp()
	if err == nil && st.read && stamp == st.stamp && st.settled {
		return false
	}
	records, stamp, err := s.load()
	next := storedTokens{stamp: stamp, read: err == nil, settled: err == nil && stamp.Settled(now)}
	if err != nil {
		next.problem = err.Error()
		changed = next.problem != st.problem
	} else {
		next.creds = liveCredentials(records)
		changed = st.problem != "" || !st.read || !sameCredentials(st.creds, next.creds)
	}
	if !changed {
		next.creds = st.creds
	}
	*st = next
	return changed
}

func liveCredentials(records []record) []credential {
	var creds []credential
	for _, r := range records {
		if r.Revoked.IsZero() {
			c := newCredential([32]byte(r.Digest), r.ID, r.Name, r.Scope, r.Expires)
			c.made = true
			creds = append(creds, c)
		}
	}
	return creds
}

func sameCredentials(a, b []credential) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		same := a[i].digest == b[i].digest && a[i].id == b[i].id && a[i].expires == b[i].expires
		if !same || string(a[i].remote.FactsJSON()) != string(b[i].remote.FactsJSON()) || a[i].remote.Name() != b[i].remote.Name() {
			return false
		}
	}
	return true
}

// refresh checks the files when the last check is old enough. One caller does it; the
// others continue with the current table.
func (a *Authenticator) refresh(now time.Time) {
	due := a.due.Load()
	if now.UnixNano() < due && due-now.UnixNano() <= int64(lookEvery) || !a.reload.TryLock() {
		return
	}
	defer a.reload.Unlock()
	if a.due.Load() == due {
		a.look(now)
	}
}

// refreshSooner checks the files earlier, unless the last check is very recent, and
// returns the resulting table. It waits for a running check.
func (a *Authenticator) refreshSooner(now time.Time) *table {
	a.reload.Lock()
	defer a.reload.Unlock()
	if now.UnixNano() >= a.due.Load()-int64(lookEvery-lookSooner) {
		a.look(now)
	}
	return a.table.Load()
}

// look reads the changed files and replaces the table. The caller holds reload.
func (a *Authenticator) look(now time.Time) {
	a.due.Store(now.Add(lookEvery).UnixNano())
	fileBad, storeBad := a.file.problem != "", a.stored.problem != ""
	file := a.file.look(now)
	stored := a.stored.look(a.store, now)
	if t := a.table.Load(); t != nil && !file && !stored {
		return
	} else if t != nil {
		a.report(file, fileBad, a.file.problem, "the token file "+a.file.path)
		a.report(stored, storeBad, a.stored.problem, "the token store")
	}
	a.table.Store(a.newTable())
}

// report reports a source that has become unusable, or usable again.
func (a *Authenticator) report(changed, before bool, problem, name string) {
	switch {
	case !changed:
	case problem != "":
		a.problem(problem+": its tokens are refused", false)
	case before:
		a.problem(name+" was read again", true)
	}
}

func (a *Authenticator) newTable() *table {
	t := &table{}
	for _, s := range []source{a.env, a.file.source} {
		if s.cred != nil {
			t.creds = append(t.creds, *s.cred)
		}
	}
	t.creds = append(t.creds, a.stored.creds...)
	return t
}

// Configured describes the configured tokens for the bind table and the operator.
type Configured struct {
	Set  bool // a usable token from the environment or the file
	Made bool // a token of the store that is neither revoked nor expired
	// Unusable holds the reasons why a configured token of the environment or the file
	// cannot be used. Problems adds those of the store. Neither contains a token.
	Unusable []string
	Problems []string
}

// Configured checks the sources now.
func (a *Authenticator) Configured() Configured {
	now := a.now()
	a.reload.Lock()
	defer a.reload.Unlock()
	a.look(now)
	c := Configured{Set: a.env.cred != nil || a.file.cred != nil}
	for i := range a.stored.creds {
		c.Made = c.Made || a.stored.creds[i].holds(now)
	}
	for _, p := range []string{a.env.problem, a.file.problem} {
		if p != "" {
			c.Unusable = append(c.Unusable, p)
		}
	}
	c.Problems = c.Unusable
	if a.stored.problem != "" {
		c.Problems = append(slices.Clone(c.Unusable), a.stored.problem)
	}
	return c
}
