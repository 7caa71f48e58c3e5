package signin

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
)

// TestMain lets the test binary play the process that is killed while it writes.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "write-for-ever" {
		s, err := OpenStore(Options{Dir: os.Args[2]})
		for i := 0; err == nil; i++ {
			e := sample()
			e.Access, e.Refresh = fmt.Sprint("access-", i), fmt.Sprint("refresh-", i)
			err = s.locked(e.Server, time.Second, func() error { return s.write(e) })
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func sample() entry {
	return entry{Server: "docs", Issuer: "https://as.example", Resource: "https://mcp.example/mcp", URL: "https://mcp.example/mcp",
		Client: client{ID: "id-canary", Secret: "secret-canary", Made: true}, Token: "https://as.example/token",
		Access: "access-canary", Refresh: "refresh-canary", Signed: time.Now()}
}

// A stored sign-in is encrypted, can be read by its owner alone, and opens only unchanged and under its own name.
func TestSealedAtRest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := OpenStore(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	e := sample()
	if err := s.keep(e); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o", path, fi.Mode())
		}
		b, _ := os.ReadFile(path)
		for _, word := range []string{"canary", "docs", "example"} {
			if bytes.Contains(b, []byte(word)) || strings.Contains(d.Name(), word) {
				t.Errorf("%s tells %q", path, word)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := s.find("docs", e.URL); !ok || got.Refresh != e.Refresh || got.Client != e.Client {
		t.Errorf("found %v", ok)
	}

	path := filepath.Join(s.dir, e.name())
	b, _ := os.ReadFile(path)
	moved := sample()
	moved.Server = "evil"
	if err := os.WriteFile(filepath.Join(s.dir, moved.name()), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.read(moved.name()); err == nil {
		t.Error("a file opens under another's name")
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.find("docs", e.URL); ok {
		t.Error("a changed file opens")
	}
	if _, sealed, _ := s.List(); sealed != 2 {
		t.Errorf("%d files are said to be closed", sealed)
	}
}

// A configured key is used instead of the one in the state directory, which is not made then.
func TestConfiguredKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := OpenStore(Options{Dir: dir, Key: secret.New(strings.Repeat("k", minKey))})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.keep(sample()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, keyName)); err == nil {
		t.Error("a key was made beside the files")
	}
	other, err := OpenStore(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := other.find("docs", sample().URL); ok {
		t.Error("it opens with another key")
	}
	if _, err := OpenStore(Options{Dir: dir, Key: secret.New("short")}); err == nil {
		t.Error("a short key is taken")
	}
}

// Stores that are opened at once agree on one key. A damaged key is an error and is not replaced.
func TestOneKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keys := make([]string, 16)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			k, err := ownKey(filepath.Join(dir, keyName))
			if err != nil {
				t.Error(err)
			}
			keys[i] = string(k)
		})
	}
	wg.Wait()
	for _, k := range keys {
		if k != keys[0] || len(k) != minKey {
			t.Fatal("there are several keys")
		}
	}
	if err := os.Truncate(filepath.Join(dir, keyName), 3); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(Options{Dir: dir}); err == nil {
		t.Error("a damaged key is taken")
	}
}

// After the writing process was killed there is a whole sign-in, the old or the new one, and the lock is free.
func TestKilledWhileWriting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := OpenStore(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.keep(sample()); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		cmd := exec.Command(os.Args[0], "write-for-ever", dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for last, changes, limit := "", -1, time.Now().Add(20*time.Second); changes <= i%4; { // the first is what was there
			if e, _ := s.find("docs", sample().URL); e.Access != last {
				last = e.Access
				changes++
			} else if time.Now().After(limit) {
				t.Errorf("process %d wrote nothing that was seen after %q", i, last)
				break
			}
		}
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait() // killed
		e, ok := s.find("docs", sample().URL)
		if !ok {
			t.Fatalf("kill %d left no sign-in", i)
		}
		if a, r := strings.TrimPrefix(e.Access, "access-"), strings.TrimPrefix(e.Refresh, "refresh-"); a != r {
			t.Fatalf("kill %d left half of two", i)
		}
		if err := s.locked("docs", time.Second, func() error { return nil }); err != nil {
			t.Fatalf("kill %d left the lock: %v", i, err)
		}
	}
	left, _ := filepath.Glob(filepath.Join(s.dir, ".new-*"))
	for _, path := range left {
		old := time.Now().Add(-2 * time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	s.tidy()
	if left, _ := filepath.Glob(filepath.Join(s.dir, ".new-*")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

// An entry that is printed or logged shows no secret.
func TestEntriesDoNotPrint(t *testing.T) {
	t.Parallel()
	e := sample()
	for _, text := range []string{fmt.Sprint(e), fmt.Sprintf("%+v", e), fmt.Sprintf("%#v", e), fmt.Sprintf("%s", &e), e.LogValue().String()} {
		if strings.Contains(text, "canary") {
			t.Errorf("it prints %q", text)
		}
	}
}
