package authn

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process that is killed while it makes tokens leaves a readable store that contains every
// token that it had printed.
func TestAKilledWriterLosesNothingThatItShowed(t *testing.T) {
	t.Parallel()
	s := NewStore(filepath.Join(t.TempDir(), "state"))
	mustNew(t, s, "first", 0, "")
	var shown []string
	for round := range 12 {
		names := []string{s.dir}
		for i := range 200 {
			names = append(names, fmt.Sprintf("r%d-%d", round, i))
		}
		cmd := run(t, "new", names...)
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		lines := bufio.NewReader(pipe)
		for range round { // then it makes the next one
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			out.WriteString(line)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if _, err := lines.WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() // it was killed
		all := strings.Split(out.String(), "\n")
		shown = append(shown, all[:len(all)-1]...)
		if _, err := s.List(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	if len(shown) == 0 {
		t.Fatal("no round printed a token")
	}
	mustNew(t, s, "last", 0, "")
	a := New(Options{UID: me(), Store: s})
	for _, tok := range shown {
		if _, err := a.Authenticate(enforced(), []string{"Bearer " + tok}); err != nil {
			t.Errorf("a token that was shown: %v", err)
		}
	}
	t.Logf("%d tokens shown", len(shown))
}

// On a full disk no token is made, rotated or revoked, and none is lost. With space again a
// token can be made.
func TestAFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small disk needs root")
	}
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Skipf("mounting needs more than root here: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(disk, syscall.MNT_DETACH) })
	s := NewStore(filepath.Join(disk, "state"))
	old, _ := mustNew(t, s, "ci", 0, "")
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	good, err := os.ReadFile(filepath.Join(s.dir, storeFile))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if tok, _, err := s.NewToken("more", 0, ""); err == nil || tok != "" || !strings.Contains(err.Error(), "no space") {
			t.Errorf("made on a full disk: %v", err)
		}
		if r, err := s.Rotate("ci", Rotation{Overlap: time.Hour}); err == nil || r.Secret != "" {
			t.Errorf("rotated on a full disk: %v", err)
		}
		if _, err := s.Revoke("ci"); err == nil {
			t.Error("said to be revoked on a full disk")
		}
	}
	if now, _ := os.ReadFile(filepath.Join(s.dir, storeFile)); !bytes.Equal(now, good) {
		t.Errorf("the file is now %q", now)
	}
	a := New(Options{UID: me(), Store: s})
	if _, err := a.Authenticate(enforced(), []string{"Bearer " + old}); err != nil {
		t.Errorf("the old token: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	mustNew(t, s, "more", 0, "")
}
