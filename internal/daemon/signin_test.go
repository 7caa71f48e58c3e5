package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/signin"
)

// TestASignInStoreOpensOnceItsCauseIsRepaired: a reload and the retry of the documents ask at the
// same time, and each later attempt opens the store anew until it is open; then it stays the same.
func TestASignInStoreOpensOnceItsCauseIsRepaired(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"the directory is a file": "signin", "the key is too short": "signin.key"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			obstacle := filepath.Join(dir, path)
			if err := os.WriteFile(obstacle, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			o := &outward{dir: dir, log: slog.New(slog.DiscardHandler), record: func(string, string) {}}
			attempt := func() (opened int) {
				var all sync.WaitGroup
				got := make([]*tokens, 4)
				for i := range got {
					all.Go(func() { got[i] = o.tokens(signin.Settings{Server: "s", URL: "https://mcp.example/"}) })
				}
				all.Wait()
				for _, src := range got {
					if src != nil {
						opened++
					}
				}
				return opened
			}
			for range 2 {
				if n := attempt(); n != 0 {
					t.Fatalf("%d sources without a store", n)
				}
			}
			if err := os.Remove(obstacle); err != nil {
				t.Fatal(err)
			}
			if n := attempt(); n != 4 {
				t.Errorf("%d of 4 sources after the repair", n)
			}
			was := o.store
			if attempt(); was == nil || o.store != was {
				t.Error("an open store is opened again")
			}
		})
	}
}

// TestAReloadSignsInOnceTheStoreOpens: a server keeps its connections at a reload, except at the
// first one that can open the store.
func TestAReloadSignsInOnceTheStoreOpens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	obstacle := filepath.Join(dir, "signin")
	if err := os.WriteFile(obstacle, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out := &outward{dir: dir, log: slog.New(slog.DiscardHandler), record: func(string, string) {}}
	var now *serverSet
	reload := func() (o, was opened) {
		if now != nil {
			was = now.open["s"]
		}
		set := &serverSet{config: &config.Config{}, open: make(map[string]opened)}
		set.add("s", &config.Server{Name: "s", Kind: "http", URL: secret.New("https://mcp.example/")}, upstream.Deps{ClientInfo: []byte("{}")}, out, now)
		now = set
		if o = set.open["s"]; o.up == nil {
			t.Fatalf("the server is refused: %s", set.relay[0].Refused)
		}
		return o, was
	}
	reload()
	if o, was := reload(); o.tok != nil || o.up != was.up {
		t.Error("without a store the server is not the same")
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	if o, _ := reload(); o.tok == nil {
		t.Error("the server is not signed in to after the repair")
	}
	if o, was := reload(); o.tok != was.tok || o.up != was.up {
		t.Error("an unchanged server is not the same")
	}
}
