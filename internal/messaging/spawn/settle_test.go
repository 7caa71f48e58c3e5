package spawn

import (
	"os"
	"strings"
	"testing"
	"time"
)

// A whole output is kept for its seven days after the end of its agent, however long the agent was
// silent before.
func TestAnOutputIsAsOldAsItsEnd(t *testing.T) {
	t.Parallel()
	for _, silent := range []time.Duration{0, outputsKept - time.Minute, outputsKept + time.Hour, 10 * outputsKept} {
		state := t.TempDir()
		o := newOutput(state, "s1", 1<<20)
		o.take(strings.NewReader(strings.Repeat("x", resultBytes+1)))
		last := time.Now().Add(-silent)
		if err := os.Chtimes(o.path(unseen), last, last); err != nil {
			t.Fatal(err)
		}
		if o.settle(true) == nil {
			t.Fatal("the output is not kept")
		}
		sweepOutputs(state, false)
		fi, err := os.Stat(o.path(seen))
		if err != nil {
			t.Errorf("after a silence of %s: %v", silent, err)
			continue
		}
		if age := time.Since(fi.ModTime()); age > time.Hour/2 {
			t.Errorf("after a silence of %s it is %s old", silent, age)
		}
	}
}
