package audit_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/doorward/doorward/internal/trust/audit"
)

// FuzzVerify: for any bytes that are cut out of, put into or flipped in a log's
// files, Verify gives a report and no error, and records that it reports as covered
// are those that were written.
func FuzzVerify(f *testing.F) {
	key := newKey(f)
	base := closedLog(f, key, 3, 100)
	names := []string{"00000001.jsonl", "checkpoints"}
	var original [2][]byte
	for i, name := range names {
		original[i] = readFile(f, filepath.Join(base, name))
	}
	records := bytes.SplitAfter(original[0], []byte("\n"))
	f.Add(0, 0, 1, []byte(""), byte(0))
	f.Add(0, len(records[0]), len(records[1]), []byte(""), byte(0))
	f.Add(1, 10, 0, []byte("\n"), byte(1))
	f.Add(1, 0, 1<<20, []byte(nil), byte(0))
	f.Add(0, 0, 0, records[0], byte(0))
	f.Fuzz(func(t *testing.T, file, at, length int, insert []byte, mask byte) {
		if file < 0 || at < 0 || length < 0 {
			return
		}
		was := original[file%2]
		at %= len(was)
		length = min(length, len(was)-at)
		now := append(append(bytes.Clone(was[:at]), insert...), was[at+length:]...)
		if len(now) > 0 {
			now[at%len(now)] ^= mask
		}
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, names[file%2]), now)
		writeFile(t, filepath.Join(dir, names[1-file%2]), original[1-file%2])
		r := verify(t, dir, key)
		if r.OK != (r.FirstBad == 0 && r.Reason == "") {
			t.Fatalf("%+v", r)
		}
		if !r.OK {
			return
		}
		// Only the end behind the last checkpoint can be missing unnoticed.
		log := original[0]
		if file%2 == 0 {
			log = now
		}
		covered := bytes.Join(records[:r.Covered], nil)
		if !bytes.HasPrefix(log, covered) || r.Records < r.Covered || file%2 == 0 && !bytes.Equal(now, was) {
			t.Fatalf("passed: %+v with %q", r, now)
		}
	})
}

// FuzzOpen: Open does not refuse files that verify, and they verify after an append.
// Other files are refused or opened without a panic.
func FuzzOpen(f *testing.F) {
	key := newKey(f)
	base := closedLog(f, key, 1, 100)
	segment, checkpoints := readFile(f, filepath.Join(base, "00000001.jsonl")), readFile(f, filepath.Join(base, "checkpoints"))
	f.Add(segment, checkpoints)
	f.Add(segment[:len(segment)-9], checkpoints[:len(checkpoints)/2])
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, segment, checkpoints []byte) {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, "00000001.jsonl"), segment)
		writeFile(t, filepath.Join(dir, "checkpoints"), checkpoints)
		before := verify(t, dir, key)
		l, err := audit.Open(dir, audit.Options{Key: key})
		if err != nil {
			if before.OK {
				t.Fatalf("a good log is not opened: %v, %+v", err, before)
			}
			return
		}
		mustAppend(t, l, decision("a/b"))
		mustClose(t, l)
		if after := verify(t, dir, key); before.OK && !after.OK {
			t.Fatalf("good before and bad after: %+v", after)
		}
	})
}
