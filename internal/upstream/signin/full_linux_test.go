package signin

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// fullStore is a store on a small file system. fill leaves no room on it, and room makes room again.
func fullStore(t *testing.T) (store *Store, fill, room func()) {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Skipf("mounting a small file system is not permitted here (%v)", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	store, err := OpenStore(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	fill = func() {
		if err := os.WriteFile(ballast, make([]byte, 1<<17), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("it is not full: %v", err)
		}
	}
	room = func() {
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	}
	return store, fill, room
}

// A token that cannot be written to disk is used all the same, and no refresh token is sent twice. It is written when
// there is room, unless a sign-in or a logout came first.
func TestRenewalOnAFullDisk(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		meanwhile func(*testing.T, *Store, *provider)
		signed    bool
	}{
		"nothing else":  {func(*testing.T, *Store, *provider) {}, true},
		"a new sign-in": {func(t *testing.T, s *Store, p *provider) { mustLogin(t, s, p.settings()) }, true},
		"a logout": {func(t *testing.T, s *Store, _ *provider) {
			if gone, _, err := s.Logout(t.Context(), "docs", nil); gone != 1 || err != nil {
				t.Fatalf("%d %v", gone, err)
			}
		}, false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, func(p *provider) { p.life = 1 })
			store, fill, room := fullStore(t)
			mustLogin(t, store, p.settings())
			src := newSource(t, p.settings(), store, nil)
			fill()
			for range 2 {
				expire(t, src)
				if status, _, err := call(t, src, p.URL+"/mcp"); status != http.StatusOK || err != nil {
					t.Fatalf("on a full disk: %d %v", status, err)
				}
			}
			src.adopt(src.carried())
			shown := make(map[string]bool)
			for _, r := range p.asked("/token")[1:] {
				if token := r.form.Get("refresh_token"); shown[token] {
					t.Error("a refresh token was shown twice")
				} else {
					shown[token] = true
				}
			}
			room()
			tc.meanwhile(t, store, p)
			src.Close()
			next := newSource(t, p.settings(), store, nil)
			if (next.now.Load() != nil) != tc.signed {
				t.Fatalf("the next run has a sign-in: %v", !tc.signed)
			}
			if tc.signed {
				expire(t, next)
				if status, _, err := call(t, next, p.URL+"/mcp"); status != http.StatusOK || err != nil {
					t.Errorf("the next run: %d %v", status, err)
				}
			}
		})
	}
}

// A running daemon writes a renewal to disk as soon as there is room, without waiting for the next renewal.
func TestARenewalIsWrittenOnceThereIsRoom(t *testing.T) {
	t.Parallel()
	p := newProvider(t, func(p *provider) { p.life = 1 })
	store, fill, room := fullStore(t)
	mustLogin(t, store, p.settings())
	src := newSource(t, p.settings(), store, nil)
	expire(t, src)
	p.life = 3600
	fill()
	for i := range 2 {
		if i == 1 {
			room()
			src.looked.Store(0) // some seconds later
		}
		if status, _, err := call(t, src, p.URL+"/mcp"); status != http.StatusOK || err != nil {
			t.Fatalf("%d %v", status, err)
		}
	}
	doortest.Until(t, 20*time.Second, "it is written", func() bool {
		e, _ := store.find("docs", src.target.resource)
		return e.Access == src.carried()
	})
	if n := len(p.asked("/token")); n != 2 {
		t.Errorf("%d token requests for one sign-in and one renewal", n)
	}
}

// expire waits until the token in use is not valid any more.
func expire(t *testing.T, src *Source) {
	t.Helper()
	doortest.Until(t, 20*time.Second, "the token ends", func() bool { return !src.now.Load().good(time.Now()) })
}
