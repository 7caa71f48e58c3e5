package authn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/downstream/peer"
)

func TestExpiryIsSeenOnAnOpenConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tok, _ := mustNew(t, w.store, "short", time.Minute, "")
	w.clock.advance(2 * time.Second)
	c := enforced()
	p, err := w.Authenticate(c, []string{"Bearer " + tok})
	if err != nil || !w.Holds(p) {
		t.Fatalf("%v, holds %v", err, w.Holds(p))
	}
	w.clock.advance(time.Minute)
	if got, err := w.ask(c, "Bearer "+tok); err != ErrUnauthenticated {
		t.Errorf("after expiry: %q, %v", got, err)
	}
	if w.Holds(p) {
		t.Error("an expired token still holds")
	}
}

func TestRevocationIsSeenWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tok, id := mustNew(t, w.store, "ci", 0, "")
	keep, _ := mustNew(t, w.store, "keep", 0, "")
	w.clock.advance(2 * time.Second)
	c, k := enforced(), enforced()
	p, err := w.Authenticate(c, []string{"Bearer " + tok})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.ask(k, "Bearer "+keep); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Revoke(id); err != nil {
		t.Fatal(err)
	}
	w.clock.advance(2 * time.Second)
	if got, err := w.ask(c, "Bearer "+tok); err != ErrUnauthenticated {
		t.Errorf("after revocation: %q, %v", got, err)
	}
	if w.Holds(p) {
		t.Error("a revoked token still holds")
	}
	if got, _ := w.ask(k, "Bearer "+keep); got != "token:keep" {
		t.Errorf("another token is refused too: %q", got)
	}
	// A new token of the same name does not make the principal of the first hold.
	again, _ := mustNew(t, w.store, "ci", 0, "")
	w.clock.advance(2 * time.Second)
	if got, _ := w.ask(c, "Bearer "+again); got != "token:ci" || w.Holds(p) {
		t.Errorf("the name used again: %q, the old one holds: %v", got, w.Holds(p))
	}
}

func TestTheTokenFileIsReadAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := enforced()
	p, err := w.Authenticate(c, []string{"Bearer " + fileToken})
	if err != nil || p.Name() != "token:file" {
		t.Fatalf("%v, %v", p.Name(), err)
	}
	const next = "another-file-token-0123456789"
	writeToken(t, w.file, "  "+next+"\r\n\n")
	w.clock.advance(2 * time.Second)
	if _, err := w.ask(c, "Bearer "+fileToken); err != ErrUnauthenticated {
		t.Errorf("the old token: %v", err)
	}
	if w.Holds(p) {
		t.Error("the rotated token still holds")
	}
	if got, _ := w.ask(c, "Bearer "+next); got != "token:file" {
		t.Errorf("the new token: %q", got)
	}
	// Changed in place, same size, within the resolution of the file's times.
	for i := range 20 {
		same := fmt.Sprintf("in-place-file-token-%09d", i)
		if err := os.WriteFile(w.file, []byte(same), 0o600); err != nil {
			t.Fatal(err)
		}
		w.clock.advance(time.Second)
		if got, err := w.ask(enforced(), "Bearer "+same); got != "token:file" {
			t.Fatalf("change %d: %q, %v", i, got, err)
		}
	}
	for _, broken := range []func(){
		func() { os.Chmod(w.file, 0o640) },
		func() { os.Chmod(w.file, 0o600); os.WriteFile(w.file, []byte("short"), 0o600) },
		func() { os.Remove(w.file) },
	} {
		writeToken(t, w.file, next)
		w.clock.advance(2 * time.Second)
		if got, _ := w.ask(enforced(), "Bearer "+next); got != "token:file" {
			t.Fatalf("the stage is wrong: %q", got)
		}
		w.heard()
		broken()
		w.clock.advance(2 * time.Second)
		if got, err := w.ask(enforced(), "Bearer "+next); err != ErrUnauthenticated {
			t.Errorf("let in by a file that is not usable: %q, %v", got, err)
		}
		if said := w.heard(); !strings.Contains(said, w.file) || strings.Contains(said, next) || strings.Contains(said, "short\n") {
			t.Errorf("the operator heard %q", said)
		}
		w.clock.advance(2 * time.Second)
		w.ask(enforced(), "Bearer "+next)
		if said := w.heard(); said != "" {
			t.Errorf("the operator heard the same again: %q", said)
		}
	}
	if got, _ := w.ask(enforced(), "Bearer "+envToken); got != "token:env" {
		t.Errorf("the other source does not work any more: %q", got)
	}
}

func TestConfiguredReportsSourcesAndProblems(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := dir + "/" + name
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := dir + "/link"
	os.Symlink(write("target", fileToken, 0o600), link)
	withToken := NewStore(dir + "/s1")
	mustNew(t, withToken, "a", 0, "")
	revoked := NewStore(dir + "/s2")
	_, id := mustNew(t, revoked, "a", 0, "")
	revoked.Revoke(id)
	expired := NewStore(dir + "/s3")
	mustNew(t, expired, "a", time.Nanosecond, "")

	for _, tc := range []struct {
		name      string
		o         Options
		set, made bool
		problem   string // part of it
	}{
		{"nothing", Options{}, false, false, ""},
		{"environment", Options{Env: secret.New(" " + envToken + "\n")}, true, false, ""},
		{"environment, 16 characters", Options{Env: secret.New("0123456789abcdef")}, true, false, ""},
		{"environment, 15 characters", Options{Env: secret.New("0123456789abcde")}, false, false, "DOORWARD_TOKEN is shorter than 16"},
		{"environment, 15 characters and spaces", Options{Env: secret.New("  0123456789abcde   ")}, false, false, "shorter"},
		{"environment, blank", Options{Env: secret.New("                      ")}, false, false, "DOORWARD_TOKEN is empty"},
		{"environment, inner space", Options{Env: secret.New("01234567 89abcdef")}, false, false, "cannot carry"},
		{"environment, not ASCII", Options{Env: secret.New("0123456789abcdefé")}, false, false, "cannot carry"},
		{"file", Options{File: write("ok", fileToken+"\n", 0o600)}, true, false, ""},
		{"file, read only", Options{File: write("ro", fileToken, 0o400)}, true, false, ""},
		{"file by a link", Options{File: link}, true, false, ""},
		{"file, group may read", Options{File: write("g", fileToken, 0o640)}, false, false, "chmod 600"},
		{"file, world may read", Options{File: write("w", fileToken, 0o604)}, false, false, "chmod 600"},
		{"file, world may write", Options{File: write("ww", fileToken, 0o602)}, false, false, "chmod 600"},
		{"file, missing", Options{File: dir + "/missing"}, false, false, "no such file"},
		{"file, a directory", Options{File: dir}, false, false, "not a regular file"},
		{"file, empty", Options{File: write("e", "\n", 0o600)}, false, false, "is empty"},
		{"file, short", Options{File: write("s", "0123456789abcde\n", 0o600)}, false, false, "shorter"},
		{"file, two lines", Options{File: write("2", fileToken+"\n"+fileToken, 0o600)}, false, false, "cannot carry"},
		{"file, huge", Options{File: write("h", strings.Repeat("x", 1<<20), 0o600)}, false, false, "longer"},
		{"one of two", Options{Env: secret.New("short"), File: write("ok2", fileToken, 0o600)}, true, false, "DOORWARD_TOKEN"},
		{"no store yet", Options{Store: NewStore(dir + "/none")}, false, false, ""},
		{"a stored token", Options{Store: withToken}, false, true, ""},
		{"only revoked", Options{Store: revoked}, false, false, ""},
		{"only expired", Options{Store: expired}, false, false, ""},
	} {
		got := New(tc.o).Configured()
		problems := strings.Join(got.Problems, "; ")
		if got.Set != tc.set || got.Made != tc.made || (tc.problem == "") != (problems == "") || !strings.Contains(problems, tc.problem) {
			t.Errorf("%s: %+v", tc.name, got)
		}
		if strings.Contains(problems, "0123456789") {
			t.Errorf("%s: a token is in %q", tc.name, problems)
		}
	}
}

func TestTheFileOfACredentialThatSystemdPasses(t *testing.T) {
	t.Parallel()
	root := peer.Stamp{Regular: true, Perm: 0o440}
	if err := ownersOnly(root); (err == nil) != (os.Geteuid() != 0) {
		t.Errorf("root's 0440 for uid %d: %v", os.Geteuid(), err)
	}
	for _, s := range []peer.Stamp{
		{Regular: true, Perm: 0o640}, {Regular: true, Perm: 0o444}, {Regular: true, Perm: 0o440, GID: 4},
		{Regular: true, Perm: 0o600, UID: me() + 7}, {Perm: 0o600},
	} {
		if ownersOnly(s) == nil {
			t.Errorf("%+v was accepted", s)
		}
	}
}

// Callers with a token that stays are accepted at all times while other tokens are made and
// revoked.
func TestManyCallersWhileTokensComeAndGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stable, _ := mustNew(t, w.store, "stable", 0, "")
	w.clock.advance(2 * time.Second)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			c := enforced()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got, err := w.ask(c, "Bearer "+stable); got != "token:stable" {
					t.Errorf("%q, %v", got, err)
					return
				}
			}
		})
	}
	for i := range 20 {
		_, id := mustNew(t, w.store, fmt.Sprint("t", i), 0, "")
		w.clock.advance(time.Second)
		w.store.Revoke(id)
		w.clock.advance(time.Second)
	}
	close(stop)
	wg.Wait()
}

// A file with unchanged times is read again until its last change is older than the
// resolution of file times, because a change within it does not show.
func TestAFreshFileIsReadAgainEvenIfItLooksTheSame(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/token"
	f := tokenFile{path: path}
	read := func(text string, settled bool) bool {
		writeToken(t, path, text)
		stamp, err := peer.StampOf(path)
		if err != nil {
			t.Fatal(err)
		}
		f.stamp, f.settled = stamp, settled // as if the change did not show
		return f.look(time.Now())
	}
	if !read(fileToken, false) || f.settled {
		t.Error("a file that changed a moment ago is taken as settled")
	}
	if !read(fileToken+"-2", false) {
		t.Error("a change within the resolution was missed")
	}
	if read(fileToken+"-3", true) {
		t.Error("a settled file was read again")
	}
}

// Tokens are accepted only from the directories that were found first. Those in a directory
// that replaces one are refused, and so are the earlier ones until it is back.
func TestTokensOfAnotherDirectoryDoNotCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Configured()
	own, _ := mustNew(t, w.store, "own", 0, "")
	w.clock.advance(2 * time.Second)
	good := func(token string) bool { _, err := w.ask(enforced(), "Bearer "+token); return err == nil }
	if !good(own) || !good(fileToken) {
		t.Fatal("the tokens do not count")
	}
	top := filepath.Dir(w.dir)
	if err := errors.Join(os.Rename(top, top+".away"), os.Mkdir(top, 0o700)); err != nil {
		t.Fatal(err)
	}
	foreign, _ := mustNew(t, NewStore(w.dir), "foreign", 0, "admin")
	writeToken(t, w.file, "the-token-of-somebody-else\n")
	for range 3 {
		w.clock.advance(2 * time.Second)
		if good(foreign) || good("the-token-of-somebody-else") || good(own) || good(fileToken) {
			t.Error("a token of another directory counts")
		}
	}
	if err := errors.Join(os.RemoveAll(top), os.Rename(top+".away", top)); err != nil {
		t.Fatal(err)
	}
	w.clock.advance(2 * time.Second)
	if !good(own) || !good(fileToken) || good(foreign) {
		t.Errorf("back in place: %s", w.heard())
	}
}
