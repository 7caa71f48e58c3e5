package audit_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/trust/audit"
)

// closedLog makes a log with n decisions that was closed: n+2 records in
// segments of about perSegment, every one of them covered by a checkpoint.
func closedLog(t testing.TB, key *audit.Key, n, perSegment int) string {
	t.Helper()
	dir := t.TempDir()
	l := open(t, dir, audit.Options{Key: key, SegmentBytes: int64(perSegment) * 370})
	for i := range n {
		mustAppend(t, l, short(fmt.Sprintf("srv/%02d", i)))
	}
	mustClose(t, l)
	return dir
}

func TestEveryFlippedByteIsFound(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	dir := closedLog(t, key, 1, 2)
	mustVerify(t, dir, key, 3)
	names := append(segmentNames(t, dir), "checkpoints")
	if len(names) < 3 {
		t.Fatalf("only %v", names)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		good := readFile(t, path)
		for i := range good {
			for _, mask := range []byte{1 << (i % 8), 0x20} {
				bad := bytes.Clone(good)
				bad[i] ^= mask
				writeFile(t, path, bad)
				if r := verify(t, dir, key); r.OK || r.FirstBad == 0 || r.Reason == "" {
					t.Fatalf("%s: byte %d (%q) xor %#x: %+v", name, i, good[i], mask, r)
				}
			}
		}
		writeFile(t, path, good)
	}
	mustVerify(t, dir, key, 3)
}

// rewrite makes a consistent chain of the lines after edit, which is possible without
// the signing key.
func rewrite(all [][]byte, edit func(i int, line string) string) []byte {
	prev := strings.Repeat("0", 64)
	var out bytes.Buffer
	for i, line := range all {
		body, _, _ := strings.Cut(string(line), `,"prev":`)
		signed := edit(i, body) + `,"prev":"` + prev + `"`
		sum := sha256.Sum256([]byte(signed))
		prev = hex.EncodeToString(sum[:])
		fmt.Fprintf(&out, "%s,\"hash\":\"%s\"}\n", signed, prev)
	}
	return out.Bytes()
}

func TestMutations(t *testing.T) {
	t.Parallel()
	key, other := newKey(t), newKey(t)
	const seg1, seg2 = "00000001.jsonl", "00000002.jsonl"
	// Record 1 is audit.start; segment 1 holds the records 1 to 4, segment 2 the
	// records 5 to 8, segment 3 the rest.
	base := closedLog(t, key, 10, 4)
	counts := []int{}
	for _, name := range segmentNames(t, base) {
		counts = append(counts, bytes.Count(readFile(t, filepath.Join(base, name)), []byte("\n")))
	}
	if !slices.Equal(counts, []int{4, 4, 4}) {
		t.Fatalf("segments have %v records", counts)
	}
	edit := func(name string, fn func(lines []string) []string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			ls := strings.SplitAfter(string(readFile(t, path)), "\n")
			writeFile(t, path, []byte(strings.Join(fn(ls[:len(ls)-1]), "")))
		}
	}
	remove := func(names ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			for _, name := range names {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	all := lines(t, base)
	rewritten := func(n int, fn func(int, string) string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			remove("00000002.jsonl", "00000003.jsonl")(t, dir)
			writeFile(t, filepath.Join(dir, seg1), rewrite(all[:n], fn))
		}
	}
	same := func(_ int, s string) string { return s }
	for _, c := range []struct {
		name   string
		bad    uint64
		reason string
		do     func(*testing.T, string)
	}{
		{"a decision turned round", 3, "altered", edit(seg1, func(l []string) []string {
			l[2] = strings.Replace(l[2], `"allow"`, `"deny"`, 1)
			return l
		})},
		{"a record deleted", 3, "record 3 is missing", edit(seg1, func(l []string) []string { return slices.Delete(l, 2, 3) })},
		{"the first record deleted", 1, "record 1 is missing", edit(seg1, func(l []string) []string { return l[1:] })},
		{"the last of a segment deleted", 4, "record 4 is missing", edit(seg1, func(l []string) []string { return l[:3] })},
		{"the last of the log deleted", 12, "record 12 is missing: the log ends with record 11", edit("00000003.jsonl", func(l []string) []string { return l[:3] })},
		{"two records exchanged", 2, "record 2 is missing", edit(seg1, func(l []string) []string { l[1], l[2] = l[2], l[1]; return l })},
		{"a record doubled", 3, "not in its place", edit(seg1, func(l []string) []string { return slices.Insert(l, 2, l[1]) })},
		{"an empty line", 2, "form", edit(seg1, func(l []string) []string { return slices.Insert(l, 1, "\n") })},
		{"a carriage return", 2, "form", edit(seg1, func(l []string) []string { l[1] = strings.TrimSuffix(l[1], "\n") + "\r\n"; return l })},
		{"a line of a megabyte", 2, "too long", edit(seg1, func(l []string) []string { l[1] = strings.Repeat("x", 1<<20) + "\n"; return l })},
		{"the end torn off", 12, "record 12 is unfinished", edit("00000003.jsonl", func(l []string) []string { l[3] = l[3][:50]; return l })},
		{"the end of a closed segment torn off", 4, "record 4 is unfinished", edit(seg1, func(l []string) []string { l[3] = l[3][:50]; return l })},
		{"the last newline gone", 12, "record 12 is unfinished", edit("00000003.jsonl", func(l []string) []string { l[3] = l[3][:len(l[3])-1]; return l })},
		{"zeros at the end", 13, "record 13 is unfinished", edit("00000003.jsonl", func(l []string) []string { return append(l, "\x00\x00\x00") })},
		{"the first segment removed", 1, "segment 00000001.jsonl is missing", remove(seg1)},
		{"a segment removed", 5, "segment 00000002.jsonl is missing", remove(seg2)},
		{"the last segment removed", 9, "record 9 is missing", remove("00000003.jsonl")},
		{"all segments removed", 1, "record 1 is missing", remove(seg1, seg2, "00000003.jsonl")},
		{"a segment emptied", 5, "segment 00000002.jsonl is empty", edit(seg2, func([]string) []string { return nil })},
		{"segments exchanged", 1, "record 1 is missing", func(t *testing.T, dir string) {
			a, b := readFile(t, filepath.Join(dir, seg1)), readFile(t, filepath.Join(dir, seg2))
			writeFile(t, filepath.Join(dir, seg1), b)
			writeFile(t, filepath.Join(dir, seg2), a)
		}},
		{"one record replaced by one that fits in itself", 4, "record 4 in 00000001.jsonl does not continue", func(t *testing.T, dir string) {
			forged := strings.SplitAfter(string(rewrite(all[:3], func(i int, s string) string {
				return strings.Replace(s, "srv/01", "srv/99", 1)
			})), "\n")
			edit(seg1, func(l []string) []string { l[2] = forged[2]; return l })(t, dir)
		}},
		{"everything rewritten", 4, "the log was rewritten", rewritten(12, func(i int, s string) string { return strings.Replace(s, "srv/01", "srv/99", 1) })},
		{"rewritten and shorter", 4, "record 4 is missing", rewritten(3, same)},
		{"a member twice", 2, "form", rewritten(12, func(i int, s string) string {
			if i == 1 {
				s += `,"decision":"deny"`
			}
			return s
		})},
		{"a hash inside", 2, "form", rewritten(12, func(i int, s string) string {
			if i == 1 {
				s += `,"x":{"a":1,"hash":"y"}`
			}
			return s
		})},
		{"a seq with a zero in front", 2, "form", rewritten(12, func(i int, s string) string { return strings.Replace(s, `"seq":2,`, `"seq":02,`, 1) })},
		{"checkpoints removed", 1, "there is no checkpoint", remove("checkpoints")},
		{"checkpoints emptied", 1, "there is no checkpoint", edit("checkpoints", func([]string) []string { return nil })},
		{"a checkpoint torn off", 5, "it is unfinished", edit("checkpoints", func(l []string) []string { return l[:7+7+3] })},
		{"a checkpoint with another count", 5, "signature", edit("checkpoints", func(l []string) []string { l[7+7+1] = "7\n"; return l })},
		{"a checkpoint with another time", 5, "signature", edit("checkpoints", func(l []string) []string { l[7+7+3] = "time 2026-01-01T00:00:00.000000Z\n"; return l })},
		{"a checkpoint of another origin", 1, "form", edit("checkpoints", func(l []string) []string { l[0] = "doorward/other\n"; return l })},
		{"a signature from another checkpoint", 5, "signature", edit("checkpoints", func(l []string) []string { l[7+7+5] = l[7+5]; return l })},
		{"a second signature", 1, "form", edit("checkpoints", func(l []string) []string { return slices.Insert(l, 6, l[5]) })},
		{"checkpoints exchanged", 5, "comes after one over more", edit("checkpoints", func(l []string) []string {
			return slices.Concat(l[:7], l[14:21], l[7:14], l[21:])
		})},
		{"checkpoints signed by another key", 1, "signature", func(t *testing.T, dir string) {
			writeFile(t, filepath.Join(dir, "checkpoints"), readFile(t, filepath.Join(closedLog(t, other, 10, 4), "checkpoints")))
		}},
		{"checkpoints of another log", 4, "record 4 differs from the one", func(t *testing.T, dir string) {
			writeFile(t, filepath.Join(dir, "checkpoints"), readFile(t, filepath.Join(closedLog(t, key, 10, 4), "checkpoints")))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := copyDir(t, base)
			mustVerify(t, dir, key, 12)
			c.do(t, dir)
			r := verify(t, dir, key)
			if r.OK || r.FirstBad != c.bad || !strings.Contains(r.Reason, c.reason) {
				t.Errorf("got first bad %d, %q, ok=%v; want %d and %q", r.FirstBad, r.Reason, r.OK, c.bad, c.reason)
			}
		})
	}
}

func TestVerifyWithoutAKeyChecksTheChainAndTheCounts(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	dir := closedLog(t, key, 4, 100)
	r, err := auditlog.Verify(dir, nil)
	if err != nil || !r.OK || r.Signatures || r.Checkpoints != 2 || r.Covered != 6 {
		t.Errorf("%+v %v", r, err)
	}
	all := lines(t, dir)
	writeFile(t, filepath.Join(dir, "00000001.jsonl"), append(bytes.Join(all[:5], []byte("\n")), '\n'))
	if r, err := auditlog.Verify(dir, nil); err != nil || r.OK || r.FirstBad != 6 {
		t.Errorf("rolled back: %+v %v", r, err)
	}
}

func TestVerifyOfNothing(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	if r := verify(t, t.TempDir(), key); !r.OK || r.Records != 0 {
		t.Errorf("an empty directory: %+v", r)
	}
	if _, err := auditlog.Verify(filepath.Join(t.TempDir(), "none"), key.Verifier); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

func TestTimesNeedNotRise(t *testing.T) {
	t.Parallel()
	dir, key := t.TempDir(), newKey(t)
	var reads atomic.Int64
	l := open(t, dir, audit.Options{Key: key, Now: func() time.Time { return fixedClock().Add(-time.Duration(reads.Add(1)) * time.Hour) }, Interval: time.Hour})
	mustAppend(t, l, decision("a/b"))
	mustAppend(t, l, decision("a/b"))
	mustClose(t, l)
	mustVerify(t, dir, key, 4)
}

// Verify finds a log whole at every moment while it is written, over rotations and
// checkpoints, and accepts an unfinished line at the end while there is a writer.
func TestVerifyWhileItIsWritten(t *testing.T) {
	t.Parallel()
	dir, key := t.TempDir(), newKey(t)
	l := open(t, dir, audit.Options{Key: key, SegmentBytes: 20_000, CheckpointEvery: time.Millisecond})
	const acts = 1500
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range acts {
			l.Later(decision("later"))
			if _, err := l.Append(decision("a/b")); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for seen := uint64(0); seen < 1+2*acts && !t.Failed(); {
		r := verify(t, dir, key)
		if !r.OK || r.Records < seen {
			t.Fatalf("%+v after %d records", r, seen)
		}
		seen = r.Records
	}
	<-done

	names := segmentNames(t, dir)
	last := filepath.Join(dir, names[len(names)-1])
	whole := readFile(t, last)
	writeFile(t, last, append(bytes.Clone(whole), `{"seq":`...))
	if r := verify(t, dir, key); !r.OK {
		t.Errorf("unfinished line of a living writer: %+v", r)
	}
	writeFile(t, last, append(bytes.Clone(whole), "{\"seq\":\n"...))
	if r := verify(t, dir, key); r.OK {
		t.Error("a finished line that is none passed, because the log is being written")
	}
	writeFile(t, last, whole)
}
