package audit_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/audit"
)

// abandonedLog gives a copy of a log that was not closed, as kill -9 leaves it, with
// n records behind the checkpoint at the beginning.
func abandonedLog(t *testing.T, key *audit.Key, n int) string {
	t.Helper()
	l := open(t, t.TempDir(), audit.Options{Key: key, CheckpointEvery: time.Hour})
	dir := t.TempDir()
	mustClose(t, l)
	l = open(t, dir, audit.Options{Key: key, CheckpointEvery: time.Hour})
	for range n - 1 {
		mustAppend(t, l, decision("a/b"))
	}
	return copyDir(t, dir)
}

func TestATornLineIsCutOffAndRecorded(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	base := abandonedLog(t, key, 2)
	path := filepath.Join(base, "00000001.jsonl")
	whole := readFile(t, path)
	for cut := range len(whole) + 1 {
		writeFile(t, path, whole[:cut])
		checkpoints := readFile(t, filepath.Join(base, "checkpoints"))
		kept := bytes.Count(whole[:cut], []byte("\n"))
		torn := cut - (bytes.LastIndexByte(whole[:cut], '\n') + 1)

		if r := verify(t, base, key); r.OK != (torn == 0) || torn > 0 && r.FirstBad != uint64(kept)+1 {
			t.Fatalf("cut at %d, before a start: %+v", cut, r)
		}
		l, err := audit.Open(base, audit.Options{Key: key})
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		mustClose(t, l)
		es := entries(t, base)
		want := "audit.start audit.stop"
		if torn > 0 {
			want = "audit.torn " + want
		}
		if got := actions(es[kept:]); got != want {
			t.Fatalf("cut at %d: after %d records came %s, want %s", cut, kept, got, want)
		}
		if torn > 0 && es[kept].Bytes != int64(torn) {
			t.Fatalf("cut at %d: %d bytes are recorded as cut off, want %d", cut, es[kept].Bytes, torn)
		}
		if got, want := es[len(es)-2].Reason, "the log was not closed before"; kept > 0 && got != want {
			t.Fatalf("cut at %d: start says %q, want %q", cut, got, want)
		}
		mustVerify(t, base, key, uint64(len(es)))
		writeFile(t, filepath.Join(base, "checkpoints"), checkpoints)
	}
}

func TestZerosOfAPowerLossAreCutOff(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	dir := abandonedLog(t, key, 3)
	path := filepath.Join(dir, "00000001.jsonl")
	const zeros = 3*audit.MaxLine + 17
	writeFile(t, path, append(readFile(t, path), make([]byte, zeros)...))
	mustClose(t, open(t, dir, audit.Options{Key: key}))
	if es := entries(t, dir); es[3].Action != "audit.torn" || es[3].Bytes != zeros {
		t.Errorf("%+v", es[3])
	}
	mustVerify(t, dir, key, 6)
}

// A log with lost pages is cut at the first of them. A power loss may lose a page and
// keep later ones, which were not yet acknowledged as being on the disk.
func TestHolesOfAPowerLossAreCutOff(t *testing.T) {
	t.Parallel()
	const page = 4096
	key := newKey(t)
	base := abandonedLog(t, key, 2000)
	whole := readFile(t, filepath.Join(base, "00000001.jsonl"))
	for _, lost := range [][]int{{1}, {len(whole)/page - 1}, {3, 70}, {2, 3, 4, 5}, {len(whole) / page}} {
		dir, first := copyDir(t, base), lost[0]*page
		holed := bytes.Clone(whole)
		for _, n := range lost {
			clear(holed[n*page : min((n+1)*page, len(holed))])
		}
		writeFile(t, filepath.Join(dir, "00000001.jsonl"), holed)
		kept := bytes.Count(whole[:first], []byte("\n"))
		mustClose(t, open(t, dir, audit.Options{Key: key}))
		torn := int64(len(whole) - bytes.LastIndexByte(whole[:first], '\n') - 1)
		if es := entries(t, dir); len(es) != kept+3 || es[kept].Action != "audit.torn" || es[kept].Bytes > torn || es[kept].Bytes == 0 {
			t.Errorf("lost %v: %d records, %d were whole before; then %+v", lost, len(es), kept, es[kept])
		}
		mustVerify(t, dir, key, uint64(kept+3))
	}
}

// A hole in records that a checkpoint covers is damage, because they were on the
// disk before a power loss.
func TestAHoleInWhatACheckpointVouchesForIsDamage(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	base := closedLog(t, key, 10, 100)
	path := filepath.Join(base, "00000001.jsonl")
	whole := readFile(t, path)
	for _, at := range []int{0, len(whole) / 2, len(whole) - 2} {
		dir := copyDir(t, base)
		holed := bytes.Clone(whole)
		holed[at] = 0
		writeFile(t, filepath.Join(dir, "00000001.jsonl"), holed)
		if l, err := audit.Open(dir, audit.Options{Key: key}); !errors.Is(err, audit.ErrDamaged) {
			if err == nil {
				l.Close()
			}
			t.Errorf("a hole at %d: %v", at, err)
		}
	}
}

func TestACheckpointWithAHoleIsCutOff(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	dir := closedLog(t, key, 2, 100)
	path := filepath.Join(dir, "checkpoints")
	whole := readFile(t, path)
	last := bytes.LastIndex(whole, []byte("\n\n"+audit.Origin)) + 2
	clear(whole[last+5 : last+40])
	writeFile(t, path, whole)
	mustClose(t, open(t, dir, audit.Options{Key: key}))
	mustVerify(t, dir, key, 7)
}

func TestATornCheckpointIsCutOffAndRecorded(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	base := closedLog(t, key, 2, 100)
	whole := readFile(t, filepath.Join(base, "checkpoints"))
	first := bytes.Index(whole, []byte("\n\n—"))
	first += bytes.Index(whole[first+2:], []byte("\n\n")) + 4
	for cut := first; cut < len(whole); cut++ {
		dir := copyDir(t, base)
		writeFile(t, filepath.Join(dir, "checkpoints"), whole[:cut])
		l, err := audit.Open(dir, audit.Options{Key: key})
		if err != nil {
			t.Fatalf("cut at %d of %d: %v", cut, len(whole), err)
		}
		mustClose(t, l)
		es := entries(t, dir)
		if torn := es[4].Action == "audit.torn" && es[4].Bytes == int64(cut-first); torn != (cut > first) {
			t.Fatalf("cut at %d: %+v", cut, es[4])
		}
		mustVerify(t, dir, key, uint64(len(es)))
	}
}

func TestOpenNeverVouchesForADamagedLog(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	base := closedLog(t, key, 10, 4)
	replaceLast := func(old, new string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, "00000003.jsonl")
			b := readFile(t, path)
			i := bytes.LastIndex(b, []byte(old))
			writeFile(t, path, append(append(bytes.Clone(b[:i]), new...), b[i+len(old):]...))
		}
	}
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, do := range map[string]func(*testing.T, string){
		"last record altered":       replaceLast("audit.stop", "audit.stap"),
		"last record's form":        replaceLast(`"}`, `'}`),
		"last record cut off":       replaceLast("\n", ""),
		"last segment removed":      remove("00000003.jsonl"),
		"middle segment removed":    remove("00000002.jsonl"),
		"checkpoints removed":       remove("checkpoints"),
		"last checkpoint altered":   func(t *testing.T, dir string) { mutate(t, filepath.Join(dir, "checkpoints"), -20) },
		"checkpoints are no such":   func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, "checkpoints"), make([]byte, 5000)) },
		"end replaced and rehashed": replaceEnd,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := copyDir(t, base)
			do(t, dir)
			if l, err := audit.Open(dir, audit.Options{Key: key}); !errors.Is(err, audit.ErrDamaged) {
				if err == nil {
					l.Close()
				}
				t.Errorf("Open: %v, want ErrDamaged", err)
			}
			if r := verify(t, dir, key); r.OK {
				t.Errorf("verify: %+v", r)
			}
		})
	}
}

// replaceEnd writes another last record, with a hash that fits.
func replaceEnd(t *testing.T, dir string) {
	path := filepath.Join(dir, "00000003.jsonl")
	all := lines(t, dir)
	forged := strings.SplitAfter(string(rewrite(all, func(_ int, s string) string { return s + `,"ref":1` })), "\n")
	writeFile(t, path, []byte(strings.Join(forged[8:12], "")))
}

// mutate flips a bit of the byte at, counted from the end when negative.
func mutate(t *testing.T, path string, at int) {
	t.Helper()
	b := readFile(t, path)
	if at < 0 {
		at += len(b)
	}
	b[at] ^= 1
	writeFile(t, path, b)
}

func TestAnEmptyLastSegmentIsContinued(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	dir := closedLog(t, key, 2, 100)
	writeFile(t, filepath.Join(dir, "00000002.jsonl"), nil)
	mustVerify(t, dir, key, 4)
	l := open(t, dir, audit.Options{Key: key})
	mustAppend(t, l, decision("a/b"))
	mustClose(t, l)
	mustVerify(t, dir, key, 7)
	if n := bytes.Count(readFile(t, filepath.Join(dir, "00000002.jsonl")), []byte("\n")); n != 3 {
		t.Errorf("segment 2 has %d records, want 3", n)
	}
}

func TestOpenReadsOnlyTheEnd(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	dir := closedLog(t, key, 2, 100)
	l := open(t, dir, audit.Options{Key: key})
	for range 3000 {
		l.Later(decision("a/b"))
	}
	mustClose(t, l)
	// Open does not read a record far from the end: it would refuse one that was
	// altered, which Verify finds.
	mutate(t, filepath.Join(dir, "00000001.jsonl"), 100)
	mustClose(t, open(t, dir, audit.Options{Key: key}))
	if r := verify(t, dir, key); r.OK || r.FirstBad != 1 {
		t.Errorf("%+v", r)
	}
}
