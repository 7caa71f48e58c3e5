//go:build interop

package interop

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

const (
	delayRounds  = 8   // of each kind, in turns
	delayCallers = 8   // at the same time
	delayCalls   = 100 // of each caller in a round
)

// TestAnOpenQuestionDelaysNoOther times echo calls of eight clients while the call of
// another client of the same server waits for an answer, and while none waits, in
// turns. The ratio of the 99th percentiles is logged, since a single late call on a
// busy machine decides it; the bound is on the medians.
func TestAnOpenQuestionDelaysNoOther(t *testing.T) {
	for _, modern := range []bool{false, true} {
		for _, era := range words("legacy modern") {
			name := map[bool]string{false: "legacy", true: "modern"}[modern] + " clients, " + era + " server"
			t.Run(name, func(t *testing.T) {
				d := house{servers: map[string]server{"recorder": stdio(fixture.Recorder(t, era), nil)}}.start(t)
				asked, quiet := timeEchoes(t, d, modern)
				t.Logf("measured: p99 %v with an open question, %v without, ratio %.2f; medians %v and %v", at99(asked), at99(quiet),
					float64(at99(asked))/float64(at99(quiet)), middle(asked), middle(quiet))
				if middle(asked) > 3*middle(quiet) {
					t.Error("an open question delays the calls of other clients")
				}
			})
		}
	}
}

// timeEchoes times calls with and without an open question.
func timeEchoes(t *testing.T, d *doortest.Daemon, modern bool) (asked, quiet []time.Duration) {
	t.Helper()
	callers := make([]*web, delayCallers)
	kept := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: delayCallers}}
	t.Cleanup(kept.CloseIdleConnections)
	for i := range callers {
		callers[i] = dialWeb(t, d.MCP("recorder"), modern)
		callers[i].client = kept
	}
	asker := newAnswerer(t, d, "http", modern)
	whole(t, asker) // the first question of a tool may be refused where it names no call
	echoes(t, callers)
	for range delayRounds {
		if at := asker.call(); at.question == "" {
			t.Fatalf("no question: %+v", at)
		}
		asked = append(asked, echoes(t, callers)...)
		asker.answer("1")
		if end := asker.answer("2"); end.result != "first=1 second=2" {
			t.Fatalf("the call that asks: %+v", end)
		}
		quiet = append(quiet, echoes(t, callers)...)
	}
	return asked, quiet
}

// echoes has all callers call at the same time, and returns how long each call took.
func echoes(t *testing.T, callers []*web) []time.Duration {
	took := make([][]time.Duration, len(callers))
	var group sync.WaitGroup
	for i, c := range callers {
		group.Go(func() {
			for n := range delayCalls {
				began := time.Now()
				result, failure := c.call(t, "tools/call", fmt.Sprintf(`{"name":"echo","arguments":{"n":%d}}`, n))
				if took[i] = append(took[i], time.Since(began)); failure != nil || result == nil {
					t.Errorf("echo: %s", failure)
				}
			}
		})
	}
	group.Wait()
	return slices.Concat(took...)
}

func at99(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)*99/100]
}

func middle(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}
