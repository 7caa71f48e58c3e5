package main

import (
	"testing"
)

// TestFollowingBeginsBehindTheLastRecord: however many of the last records are shown,
// following goes on behind the end of the log.
func TestFollowingBeginsBehindTheLastRecord(t *testing.T) {
	t.Parallel()
	dir, log := openLog(t)
	write(t, log, fourActs(log.State().Seq+1))
	end := log.State().Seq
	for n := -2; n <= int(end)+2; n++ {
		var shown []uint64
		last, err := lastRecords(dir, n, func(line []byte) error {
			shown = append(shown, seqOf(line))
			return nil
		})
		if err != nil || last != end {
			t.Errorf("-n %d: following begins behind %d of %d, %v", n, last, end, err)
		}
		if want := min(max(n, 0), int(end)); len(shown) != want || want > 0 && shown[0] != end+1-uint64(want) {
			t.Errorf("-n %d shows %d", n, shown)
		}
	}
	if last, err := lastRecords(t.TempDir(), 0, nil); last != 0 || err != nil {
		t.Errorf("without a record: %d, %v", last, err)
	}
}
