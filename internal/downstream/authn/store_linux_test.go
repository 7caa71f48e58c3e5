package authn

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestANewTokenIsShownOnceAndStoredAsADigest(t *testing.T) {
	t.Parallel()
	s := NewStore(filepath.Join(t.TempDir(), "state"))
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Fatalf("an empty store: %v, %v", list, err)
	}
	tok, id, err := s.NewToken("ci", time.Hour, "server:docs,tool:docs/search,agent,instructions,admin")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^dw_[A-Za-z0-9_-]{43}$`).MatchString(tok) {
		t.Errorf("token of %d characters has the wrong form", len(tok))
	}
	b, err := os.ReadFile(filepath.Join(s.dir, storeFile))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), tok[3:10]) || !strings.Contains(string(b), fmt.Sprintf("%x", digestOf(tok))) {
		t.Errorf("the file holds %s", b)
	}
	for name, want := range map[string]os.FileMode{"": os.ModeDir | 0o700, storeFile: 0o600, storeLock: 0o600} {
		if fi, err := os.Stat(filepath.Join(s.dir, name)); err != nil || fi.Mode() != want {
			t.Errorf("%q has mode %v, %v", name, fi.Mode(), err)
		}
	}
	list, err := s.List()
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	got := list[0]
	if got.ID != id || got.Name != "ci" || !strings.HasPrefix(got.Scope, "server:docs") || got.Expires.Sub(got.Created) != time.Hour || !got.Revoked.IsZero() {
		t.Errorf("%+v", got)
	}
	if shown, _ := json.Marshal(got); strings.Contains(string(shown), "sha256") || strings.Contains(string(shown), "revoked") {
		t.Errorf("shown as %s", shown)
	}
}

func TestTokensDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		tok, id := newSecret()
		if seen[tok] || seen[id] || ValidName(id) {
			t.Fatalf("id %s", id)
		}
		seen[tok], seen[id] = true, true
	}
}

func TestNamesAndScopes(t *testing.T) {
	t.Parallel()
	s := NewStore(t.TempDir())
	os.Chmod(s.dir, 0o700)
	for _, name := range []string{"a", "0", "a.b_c-d", strings.Repeat("n", 64)} {
		if _, _, err := s.NewToken(name, 0, ""); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "env", "file", "A", "-a", ".a", "_a", "a b", "a/b", "é", "a\n", strings.Repeat("n", 65)} {
		if _, _, err := s.NewToken(name, 0, ""); !errors.Is(err, ErrName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, scope := range []string{"agent", "admin,agent", "server:a", "tool:a/b", "tool:a/b/c"} {
		if !validScope(scope) {
			t.Errorf("scope %q is refused", scope)
		}
	}
	for _, scope := range []string{",", "agent,", " agent", "agent, admin", "server:", "server:a/b", "tool:a", "tool:/b", "tool:a/", "agent:x", "root", "server:a\nb", "SERVER:a"} {
		if _, _, err := s.NewToken("x", 0, scope); !errors.Is(err, ErrScope) {
			t.Errorf("scope %q: %v", scope, err)
		}
	}
	if _, _, err := s.NewToken("x", -time.Second, ""); !errors.Is(err, ErrExpiry) {
		t.Errorf("%v", err)
	}
}

func TestNamesAreUniqueAmongTheAccepted(t *testing.T) {
	t.Parallel()
	s := NewStore(filepath.Join(t.TempDir(), "state"))
	_, first := mustNew(t, s, "ci", 0, "")
	if _, _, err := s.NewToken("ci", 0, ""); !errors.Is(err, ErrExists) {
		t.Errorf("twice: %v", err)
	}
	if got, err := s.Revoke("ci"); err != nil || len(got) != 1 || got[0].ID != first || got[0].Revoked.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	_, second := mustNew(t, s, "ci", 0, "")
	again, err := s.Revoke(first)
	if err != nil || len(again) != 1 || again[0].ID != first {
		t.Errorf("revoking an id again: %+v, %v", again, err)
	}
	if got, err := s.Revoke("ci"); err != nil || len(got) != 1 || got[0].ID != second {
		t.Errorf("by name: %+v, %v", got, err)
	}
	for _, none := range []string{"ci", "", "T0", "nobody"} {
		if _, err := s.Revoke(none); !errors.Is(err, ErrNoToken) {
			t.Errorf("%q: %v", none, err)
		}
	}
	if list, _ := s.List(); len(list) != 2 {
		t.Errorf("%+v", list)
	}
}

func TestLongDeadTokensAreForgotten(t *testing.T) {
	t.Parallel()
	now := time.Now()
	old, recent := now.Add(-keepDead-time.Hour), now.Add(-time.Hour)
	records := []record{
		{Token: Token{Name: "live"}}, {Token: Token{Name: "revoked-long-ago", Revoked: old}},
		{Token: Token{Name: "expired-long-ago", Expires: old}}, {Token: Token{Name: "revoked", Revoked: recent}},
		{Token: Token{Name: "expires", Expires: now.Add(time.Hour)}},
	}
	var left []string
	for _, r := range withoutLongDead(records, now) {
		left = append(left, r.Name)
	}
	if !slices.Equal(left, []string{"live", "revoked", "expires"}) {
		t.Errorf("left %v", left)
	}
}

// damages are damaged stores: no token in them may be accepted, and they may not be
// overwritten.
var damages = map[string]func(good string) string{
	"empty":         func(string) string { return "" },
	"cut":           func(s string) string { return s[:len(s)/2] },
	"garbage":       func(string) string { return "\x00\x01" },
	"followed":      func(s string) string { return s + "{}" },
	"null":          func(string) string { return "null" },
	"array":         func(string) string { return "[]" },
	"other version": func(s string) string { return strings.Replace(s, `"version": 1`, `"version": 2`, 1) },
	"no version":    func(s string) string { return strings.Replace(s, `"version": 1,`, "", 1) },
	"unknown member": func(s string) string {
		return strings.Replace(s, `"id"`, `"not_before": "2100-01-01T00:00:00Z", "id"`, 1)
	},
	"short digest": func(s string) string { return regexp.MustCompile(`"sha256": ".{4}`).ReplaceAllString(s, `"sha256": "`) },
	"no digest":    func(s string) string { return regexp.MustCompile(`,\s*"sha256": "[^"]*"`).ReplaceAllString(s, "") },
	"zero digest": func(s string) string {
		return regexp.MustCompile(`"sha256": "[^"]*"`).ReplaceAllString(s, `"sha256": "`+strings.Repeat("0", 64)+`"`)
	},
	"reserved name":   func(s string) string { return strings.Replace(s, `"name": "ci"`, `"name": "env"`, 1) },
	"bad name":        func(s string) string { return strings.Replace(s, `"name": "ci"`, `"name": "CI"`, 1) },
	"bad scope":       func(s string) string { return strings.Replace(s, `"scope": ""`, `"scope": "everything"`, 1) },
	"bad expiry":      func(s string) string { return strings.Replace(s, `"created"`, `"expires": "tomorrow", "created"`, 1) },
	"bad id":          func(s string) string { return regexp.MustCompile(`"id": "T`).ReplaceAllString(s, `"id": "x`) },
	"the same twice":  func(s string) string { return regexp.MustCompile(`(?s)(\{\s*"id".*?\})`).ReplaceAllString(s, "$1,$1") },
	"tokens a string": func(string) string { return `{"version":1,"tokens":"all"}` },
}

func TestADamagedStoreAcceptsNoToken(t *testing.T) {
	t.Parallel()
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tok, _ := mustNew(t, w.store, "ci", 0, "")
			w.clock.advance(2 * time.Second)
			c := enforced()
			if got, _ := w.ask(c, "Bearer "+tok); got != "token:ci" {
				t.Fatalf("the stage is wrong: %q", got)
			}
			w.heard()
			path := filepath.Join(w.dir, storeFile)
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			bad := damage(string(good))
			if bad == string(good) {
				t.Fatal("the damage did nothing")
			}
			os.WriteFile(path, []byte(bad), 0o600)
			w.clock.advance(2 * time.Second)
			if got, err := w.ask(c, "Bearer "+tok); err != ErrUnauthenticated {
				t.Errorf("accepted: %q, %v", got, err)
			}
			if got, _ := w.ask(c, "Bearer "+envToken); got != "token:env" {
				t.Errorf("the static token: %q", got)
			}
			said := w.heard()
			if !strings.Contains(said, path) || strings.Contains(said, fmt.Sprintf("%x", digestOf(tok))[:8]) {
				t.Errorf("the operator heard %q", said)
			}
			for _, try := range []func() error{
				func() error { _, _, err := w.store.NewToken("more", 0, ""); return err },
				func() error { _, err := w.store.Revoke("ci"); return err },
				func() error { _, err := w.store.List(); return err },
			} {
				if err := try(); err == nil || !strings.Contains(err.Error(), path) {
					t.Errorf("worked on a damaged store: %v", err)
				}
			}
			if now, _ := os.ReadFile(path); string(now) != bad {
				t.Error("the damaged file was overwritten")
			}
			os.WriteFile(path, good, 0o600)
			w.clock.advance(3 * time.Second)
			if got, _ := w.ask(c, "Bearer "+tok); got != "token:ci" {
				t.Errorf("after the repair: %q", got)
			}
			if said := w.heard(); !strings.Contains(said, "read again") {
				t.Errorf("after the repair the operator heard %q", said)
			}
		})
	}
}

func TestAStoreThatOthersCanReadOrThatIsNoFileIsRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
		"group":     func(p string) error { return os.Chmod(p, 0o640) },
		"world":     func(p string) error { return os.Chmod(p, 0o606) },
		"directory": func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) },
		"owner": func(p string) error {
			if os.Geteuid() != 0 {
				return os.Chmod(p, 0o666)
			}
			return os.Chown(p, 12345, 12345)
		},
	} {
		w := newWorld(t)
		tok, _ := mustNew(t, w.store, "ci", 0, "")
		if err := spoil(filepath.Join(w.dir, storeFile)); err != nil {
			t.Fatal(err)
		}
		w.clock.advance(2 * time.Second)
		if got, err := w.ask(enforced(), "Bearer "+tok); err != ErrUnauthenticated {
			t.Errorf("%s: accepted %q, %v", name, got, err)
		}
		if _, _, err := w.store.NewToken("more", 0, ""); err == nil {
			t.Errorf("%s: written to", name)
		}
		if got := w.Configured(); got.Made || len(got.Problems) != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestADirectoryOfOthersHoldsNoStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	os.Chmod(dir, 0o777)
	if _, _, err := NewStore(dir).NewToken("ci", 0, ""); err == nil {
		t.Error("a token was stored in a directory that every user can write to")
	}
}

// The temporary file of a killed writer does not prevent the next write, which removes it.
func TestAKilledWriterIsNoObstacle(t *testing.T) {
	t.Parallel()
	s := NewStore(filepath.Join(t.TempDir(), "state"))
	mustNew(t, s, "a", 0, "")
	if err := os.WriteFile(filepath.Join(s.dir, storeNew), []byte(`{"version":`), 0o600); err != nil {
		t.Fatal(err)
	}
	mustNew(t, s, "b", 0, "")
	if list, err := s.List(); err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, storeNew)); !os.IsNotExist(err) {
		t.Errorf("the temporary file is still there: %v", err)
	}
}

// Four processes and four goroutines that write at the same time lose no token, and a reader
// never sees a partial file.
func TestManyWritersAtOnce(t *testing.T) {
	t.Parallel()
	s := NewStore(filepath.Join(t.TempDir(), "state"))
	const each = 10
	done := make(chan struct{})
	var readers, writers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				if _, err := s.List(); err != nil {
					t.Errorf("a reader: %v", err)
					return
				}
			}
		}
	})
	var mu sync.Mutex
	var tokens []string
	for i := range 4 {
		writers.Go(func() {
			var names []string
			for j := range each {
				names = append(names, fmt.Sprintf("p%d-%d", i, j))
			}
			out, err := run(t, "new", append([]string{s.dir}, names...)...).Output()
			if err != nil {
				t.Errorf("a process: %v %s", err, out)
			}
			mu.Lock()
			defer mu.Unlock()
			tokens = append(tokens, strings.Fields(string(out))...)
		})
		writers.Go(func() {
			for j := range each {
				tok, id, err := s.NewToken(fmt.Sprintf("g%d-%d", i, j), 0, "")
				if err != nil {
					t.Error(err)
				}
				if j%2 == 0 {
					if _, err := s.Revoke(id); err != nil {
						t.Error(err)
					}
					continue
				}
				mu.Lock()
				tokens = append(tokens, tok)
				mu.Unlock()
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	list, err := s.List()
	if err != nil || len(list) != 8*each {
		t.Fatalf("%d tokens, %v", len(list), err)
	}
	a := New(Options{UID: me(), Store: s})
	if len(tokens) != 6*each {
		t.Fatalf("%d live tokens", len(tokens))
	}
	for _, tok := range tokens {
		if _, err := a.Authenticate(enforced(), []string{"Bearer " + tok}); err != nil {
			t.Errorf("a token that was handed out: %v", err)
		}
	}
}

// FuzzStore: a store is refused without quoting it, or its tokens have valid names that are not
// reserved.
func FuzzStore(f *testing.F) {
	s := NewStore(filepath.Join(f.TempDir(), "state"))
	mustNew(f, s, "ci", time.Hour, "agent")
	good, err := os.ReadFile(filepath.Join(s.dir, storeFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	for _, damage := range damages {
		f.Add([]byte(damage(string(good))))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		records, err := parseStore(b)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x00") {
				t.Errorf("the error quotes the file: %q", err)
			}
			return
		}
		for _, c := range liveCredentials(records) {
			if !c.remote.Valid() || c.remote.Name() == "token:env" || c.remote.Name() == "token:file" {
				t.Errorf("%s made %q", b, c.remote.Name())
			}
		}
	})
}
