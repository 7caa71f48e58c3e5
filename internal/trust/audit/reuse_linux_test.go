package audit

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"
)

// TestKeptRecordsStayWhatTheyAre: the Later records of failed writes are written as they were
// made, although the buffers of their groups are used again, and each Append has its own line.
func TestKeptRecordsStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openLog(t, dir, Options{Interval: time.Hour})
	good := swapFile(l, writeFails(t))
	const rounds, each = 8, 5
	for i := range rounds {
		for j := range each {
			l.Later(&Record{Kind: Outcome, Source: "gate", Resource: fmt.Sprintf("kept/%d-%d.", i, j)})
		}
		if _, err := l.Append(&Record{Kind: Decision, Source: "gate", Resource: fmt.Sprintf("refused/%d.", i)}); err == nil {
			t.Fatal("a failed write has no error")
		}
	}
	swapFile(l, good)
	for i := range rounds {
		seq, err := l.Append(&Record{Kind: Decision, Source: "gate", Resource: fmt.Sprintf("written/%d.", i)})
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(SegmentPath(dir, 1))
		if err != nil {
			t.Fatal(err)
		}
		if line := bytes.Split(text, []byte("\n"))[seq-1]; !bytes.Contains(line, fmt.Appendf(nil, `"written/%d."`, i)) {
			t.Errorf("record %d is %s", seq, line)
		}
	}
	text, err := os.ReadFile(SegmentPath(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	for i := range rounds {
		for j := range each {
			if n := bytes.Count(text, fmt.Appendf(nil, `"kept/%d-%d."`, i, j)); n != 1 {
				t.Errorf("record %d-%d is written %d times", i, j, n)
			}
		}
	}
	if bytes.Contains(text, []byte("refused/")) {
		t.Error("a refused record is written")
	}
}
