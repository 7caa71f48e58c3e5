package audit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/test/doortest"
)

func TestTail(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	dir := closedLog(t, key, 30, 7)
	all := shown(t, dir)
	for _, n := range []int{-1, 0, 1, 2, 6, 7, 8, 31, 32, 33, 1000} {
		got, err := auditlog.Tail(dir, n)
		want := all[len(all)-max(0, min(n, len(all))):]
		if err != nil || !bytes.Equal(bytes.Join(got, []byte("\n")), bytes.Join(want, []byte("\n"))) || len(got) != len(want) {
			t.Errorf("Tail(%d): %d lines, %v; want the last %d", n, len(got), err, len(want))
		}
	}
}

func TestTailLeavesAnUnfinishedLineOut(t *testing.T) {
	t.Parallel()
	dir := closedLog(t, newKey(t), 3, 100)
	path := filepath.Join(dir, "00000001.jsonl")
	whole := readFile(t, path)
	for _, tail := range []string{"x", strings.Repeat("\x00", 3*audit.MaxLine)} {
		writeFile(t, path, append(bytes.Clone(whole), tail...))
		if got, err := auditlog.Tail(dir, 2); err != nil || len(got) != 2 || parse(t, got[1]).Action != "audit.stop" {
			t.Errorf("%d lines, %v", len(got), err)
		}
	}
	writeFile(t, path, append(bytes.Clone(whole), strings.Repeat("y", 3*audit.MaxLine)+"\n"...))
	if _, err := auditlog.Tail(dir, 2); !errors.Is(err, audit.ErrDamaged) {
		t.Errorf("a line without end: %v", err)
	}
}

// Tail gives the last lines also where lines of many lengths cross its blocks.
func TestTailOverBlocks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, audit.Options{})
	for i := range 1500 {
		l.Later(decision(strings.Repeat("r", i%500)))
	}
	mustClose(t, l)
	all := shown(t, dir)
	for _, n := range []int{100, 150, 151, 1000, 1502} {
		got, err := auditlog.Tail(dir, n)
		if err != nil || !bytes.Equal(bytes.Join(got, nil), bytes.Join(all[len(all)-n:], nil)) {
			t.Errorf("Tail(%d) is not the end of the log: %d lines, %v", n, len(got), err)
		}
	}
}

func TestExportIsTheLog(t *testing.T) {
	t.Parallel()
	dir := closedLog(t, newKey(t), 30, 7)
	var out bytes.Buffer
	if err := auditlog.Export(t.Context(), dir, &out); err != nil {
		t.Fatal(err)
	}
	if want := append(bytes.Join(lines(t, dir), []byte("\n")), '\n'); !bytes.Equal(out.Bytes(), want) {
		t.Errorf("exported %d bytes, want %d", out.Len(), len(want))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := auditlog.Export(ctx, dir, &out); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// follow collects the records of Follow, and its error when it ends.
func follow(t *testing.T, dir string, from uint64) (got chan entry, ended chan error, cancel func()) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	got, ended = make(chan entry, 10_000), make(chan error, 1)
	go func() {
		ended <- auditlog.Follow(ctx, dir, from, func(line []byte) error {
			got <- parse(t, bytes.Clone(line))
			return nil
		})
	}()
	return got, ended, cancel
}

func expect(t *testing.T, got chan entry, ended chan error, from, to uint64) {
	t.Helper()
	for want := from; want <= to; want++ {
		select {
		case e := <-got:
			if e.Seq != want {
				t.Fatalf("got record %d, want %d", e.Seq, want)
			}
		case err := <-ended:
			t.Fatalf("ended before record %d: %v", want, err)
		case <-time.After(30 * time.Second):
			t.Fatalf("record %d never came", want)
		}
	}
}

func TestFollowGoesOnOverRotationAndRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := audit.Options{SegmentBytes: 3000}
	got, ended, cancel := follow(t, dir, 1) // there is no log yet
	l := open(t, dir, o)
	last := uint64(0)
	for range 100 {
		last = mustAppend(t, l, decision("a/b"))
	}
	expect(t, got, ended, 1, last)
	mustClose(t, l)
	l = open(t, dir, o)
	for range 50 {
		last = mustAppend(t, l, decision("a/b"))
	}
	expect(t, got, ended, 102, last)

	middle, endedToo, cancelToo := follow(t, dir, 77)
	expect(t, middle, endedToo, 77, last)
	for range 50 {
		last = mustAppend(t, l, decision("a/b"))
	}
	expect(t, got, ended, last-49, last)
	expect(t, middle, endedToo, last-49, last)
	cancel()
	cancelToo()
	for _, c := range []chan error{ended, endedToo} {
		if err := <-c; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	}
}

func TestFollowFromNowOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, audit.Options{})
	for range 10 {
		mustAppend(t, l, decision("old"))
	}
	got, ended, _ := follow(t, dir, 0)
	// Whether Follow has begun cannot be seen from outside, so records go on
	// coming until one arrives.
	doortest.Until(t, 30*time.Second, "a new record", func() bool {
		mustAppend(t, l, decision("new"))
		return len(got) > 0
	})
	first := <-got
	if first.Resource != "new" {
		t.Errorf("the first record delivered is %+v", first)
	}
	last := mustAppend(t, l, decision("new"))
	expect(t, got, ended, first.Seq+1, last)
}

func TestFollowStopsAtDamage(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	for name, do := range map[string]func([]byte) []byte{
		"altered":  func(b []byte) []byte { return bytes.Replace(b, []byte("srv/01"), []byte("srv/99"), 1) },
		"no JSON":  func(b []byte) []byte { return append([]byte("x\n"), b...) },
		"too long": func(b []byte) []byte { return append(bytes.Repeat([]byte("x"), 1<<20), '\n') },
	} {
		dir := closedLog(t, key, 5, 100)
		path := filepath.Join(dir, "00000001.jsonl")
		writeFile(t, path, do(readFile(t, path)))
		_, ended, _ := follow(t, dir, 1)
		select {
		case err := <-ended:
			if err == nil || errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("%s: not found", name)
		}
	}
}

func TestFollowEndsWithItsReceiver(t *testing.T) {
	t.Parallel()
	dir := closedLog(t, newKey(t), 5, 100)
	enough := fmt.Errorf("enough")
	n := 0
	err := auditlog.Follow(t.Context(), dir, 1, func([]byte) error {
		if n++; n == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || n != 3 {
		t.Errorf("%v after %d", err, n)
	}
}
