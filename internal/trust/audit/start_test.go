package audit

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestALogWithoutARecordIsNew: its start is not that of a log that was not closed, unless
// records were removed from it.
func TestALogWithoutARecordIsNew(t *testing.T) {
	t.Parallel()
	key, err := freshKey()
	if err != nil {
		t.Fatal(err)
	}
	write := func(dir, name string, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cut := t.TempDir()
	l := openLog(t, cut, Options{Key: key})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	last, err := lastOf(cut, 1)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := Beginning{Mark{last.seq, string(last.hash[:]), Stamp(time.Now())}, 1}.sign(key)
	if err != nil {
		t.Fatal(err)
	}
	write(cut, beginName, signed)
	write(cut, "00000002.jsonl", nil)
	empty := t.TempDir()
	write(empty, "00000001.jsonl", nil)
	for _, c := range []struct {
		name, dir, segment string
		closed             bool
		seq                uint64
	}{
		{"no segment", t.TempDir(), "00000001.jsonl", true, 1},
		{"an empty segment", empty, "00000001.jsonl", true, 1},
		{"an empty segment behind those that were removed", cut, "00000002.jsonl", false, last.seq + 1},
		{"a segment with an end", cut, "00000002.jsonl", true, last.seq + 3},
	} {
		l := openLog(t, c.dir, Options{Key: key})
		if seq := l.State().Seq; seq != c.seq {
			t.Errorf("%s: the start is record %d, want %d", c.name, seq, c.seq)
		}
		text, err := os.ReadFile(filepath.Join(c.dir, c.segment))
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
		if closed := !bytes.Contains(lines[len(lines)-1], []byte(`"reason":"the log was not closed before"`)); closed != c.closed {
			t.Errorf("%s: closed %v: %s", c.name, closed, lines[len(lines)-1])
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAClosedSegmentHasARecord: a log with an empty segment before its last is not opened,
// because it would begin again with record 1.
func TestAClosedSegmentHasARecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, n := range []int{1, 2} {
		if err := os.WriteFile(SegmentPath(dir, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrDamaged) {
		t.Errorf("%v, want ErrDamaged", err)
	}
	if _, err := lastOf(dir, 1); !errors.Is(err, ErrDamaged) {
		t.Errorf("the last record of an empty segment: %v, want ErrDamaged", err)
	}
}

// TestASegmentHasARecordAndItsSize: it is filled up to SegmentBytes, and a record that is
// longer is written into an empty segment all the same.
func TestASegmentHasARecordAndItsSize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(SegmentPath(dir, 1), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l := openLog(t, dir, Options{SegmentBytes: 10, Interval: time.Hour})
	if l.seg.number != 1 || l.seg.size <= 10 {
		t.Errorf("the start is in segment %d of %d bytes", l.seg.number, l.seg.size)
	}
	l.o.SegmentBytes = l.seg.size + 100
	for i, more := range []int64{100, 101} {
		if err := l.ready(more); err != nil || l.seg.number != i+1 {
			t.Errorf("%d bytes more: segment %d, %v", more, l.seg.number, err)
		}
	}
}
