package audit_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/doorward/doorward/internal/trust/audit"
)

// fill appends until there is no space, with a Later before each.
func fill(l *audit.Log) (written int, err error) {
	for ; ; written++ {
		l.Later(decision("later"))
		if _, err = l.Append(decision(fmt.Sprint("filler/", written))); err != nil || written > 10_000 {
			return written, err
		}
	}
}

// On a file system of 64 KiB that is full acts are refused and the chain stays whole.
// With space again the log goes on, and its first record counts the refused acts.
func TestADiskThatRunsFull(t *testing.T) {
	t.Parallel()
	mnt := t.TempDir()
	if err := syscall.Mount("tmpfs", mnt, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Skipf("mounting a small file system is not permitted here (%v); TestAFileThatMayNotGrow covers the rest", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(mnt, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	dir, key, ballast := filepath.Join(mnt, "audit"), newKey(t), filepath.Join(mnt, "ballast")
	writeFile(t, ballast, make([]byte, 16<<10))
	l := open(t, dir, audit.Options{Key: key})
	written, err := fill(l)
	if !errors.Is(err, audit.ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("after %d records: %v", written, err)
	}
	if s := l.State(); s.State != audit.StateFull || s.Refused != 1 || !strings.Contains(s.Reason, "no space") {
		t.Errorf("state %+v", s)
	}
	before := l.State().Seq
	mustVerify(t, dir, key, before)
	for range 9 {
		if _, err := l.Append(decision("refused/refused")); !errors.Is(err, audit.ErrUnavailable) {
			t.Fatalf("on a full disk: %v", err)
		}
	}
	mustVerify(t, dir, key, before)

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	seq := mustAppend(t, l, decision("after/space"))
	if s := l.State(); s.State != audit.StateOK || s.Refused != 0 || s.Seq != seq {
		t.Errorf("state %+v", s)
	}
	es := entries(t, dir)
	if e := es[before]; e.Action != "audit.refused" || e.Count != 10 {
		t.Errorf("the first record with space is %+v, want audit.refused with 10", e)
	}
	for _, e := range es {
		if e.Resource == "refused/refused" {
			t.Errorf("refused, and yet recorded: %+v", e)
		}
	}
	// The Later record that stood before the refused Append was kept.
	if e := es[before+1]; e.Resource != "later" || es[seq-1].Resource != "after/space" {
		t.Errorf("then came %+v", e)
	}
	mustClose(t, l)
	mustVerify(t, dir, key, seq+1)
}

func TestAFullDiskAtTheStart(t *testing.T) {
	t.Parallel()
	mnt := t.TempDir()
	if err := syscall.Mount("tmpfs", mnt, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Skipf("mounting a small file system is not permitted here (%v)", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(mnt, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	key, ballast := newKey(t), filepath.Join(mnt, "ballast")
	writeFile(t, ballast, make([]byte, 64<<10))
	l := open(t, mnt, audit.Options{Key: key})
	if s := l.State(); s.State != audit.StateFull {
		t.Errorf("state %+v", s)
	}
	if _, err := l.Append(decision("a/b")); !errors.Is(err, audit.ErrUnavailable) {
		t.Errorf("append: %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, decision("a/b"))
	mustClose(t, l)
	if got := actions(entries(t, mnt)); got != "audit.refused audit.start tools/call audit.stop" {
		t.Errorf("got %s", got)
	}
	mustVerify(t, mnt, key, 4)
}
