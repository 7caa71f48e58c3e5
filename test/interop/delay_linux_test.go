//go:build interop

package interop

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/fixture"
)

const (
	delayBound   = 1.2 // of the ratio
	delayCallers = 8   // at the same time
	delayCalls   = 25  // of each caller in a round
	delayInTurn  = 2   // rounds of one kind in a row, at least
	delayLeast   = 40  // rounds of each kind before the first judgement
	delayMost    = 300
)

// TestAnOpenQuestionDelaysNoOther: an open question to one client does not delay the calls
// of other clients of the same server. It times echo calls of eight clients in short rounds,
// with and without an open question. The order of the two kinds is random, because programs
// have periodic work. Compared is the 99th percentile of a round, averaged over the fastest
// fifth of the rounds of each kind: other work on the machine only makes rounds slower, and a
// delay by the question is in the fast rounds too. A delay of fewer than two in a hundred
// calls is not detected. The measurement ends when the ratio is below the bound by two
// standard errors. After the last round the test fails if it is above the bound by one.
func TestAnOpenQuestionDelaysNoOther(t *testing.T) {
	for _, modern := range []bool{false, true} {
		for _, era := range words("legacy modern") {
			name := map[bool]string{false: "legacy", true: "modern"}[modern] + " clients, " + era + " server"
			t.Run(name, func(t *testing.T) {
				d := house{servers: map[string]server{"recorder": stdio(fixture.Recorder(t, era), nil)}}.start(t)
				m := measureDelay(t, d, modern)
				t.Logf("measured: p99 %v with an open question, %v without, ratio %.2f within %.0f %%; %d rounds of each",
					calm(m.asked), calm(m.quiet), math.Exp(m.ratio()), 100*m.doubt(), len(m.quiet))
				if m.ratio()-m.doubt() > math.Log(delayBound) {
					t.Errorf("an open question delays the calls of other clients: their p99 is above %.1f of that without", delayBound)
				}
			})
		}
	}
}

// delays are the 99th percentiles of rounds with and without an open question.
type delays struct{ asked, quiet []time.Duration }

// ratio is the logarithm of the ratio of the two.
func (d delays) ratio() float64 { return math.Log(float64(calm(d.asked)) / float64(calm(d.quiet))) }

// calm is the average of the fastest fifth of the rounds.
func calm(rounds []time.Duration) (average time.Duration) {
	fifth := slices.Sorted(slices.Values(rounds))[:len(rounds)/5]
	for _, r := range fifth {
		average += r / time.Duration(len(fifth))
	}
	return average
}

// doubt is the standard error of the ratio, by a bootstrap of 200 samples.
func (d delays) doubt() float64 {
	random := rand.New(rand.NewPCG(1, 2))
	again := func(rounds []time.Duration) []time.Duration {
		some := make([]time.Duration, len(rounds))
		for i := range some {
			some[i] = rounds[random.IntN(len(rounds))]
		}
		return some
	}
	var sum, squares float64
	const samples = 200
	for range samples {
		r := delays{again(d.asked), again(d.quiet)}.ratio()
		sum, squares = sum+r, squares+r*r
	}
	return math.Sqrt(max(0, squares/samples-(sum/samples)*(sum/samples)))
}

// settled reports that no further round is needed.
func (d delays) settled() bool {
	return len(d.quiet) >= delayMost ||
		len(d.quiet) >= delayLeast && d.ratio()+2*d.doubt() < math.Log(delayBound)
}

// measureDelay runs rounds until the ratio is settled.
func measureDelay(t *testing.T, d *doortest.Daemon, modern bool) (m delays) {
	t.Helper()
	callers := make([]*web, delayCallers)
	kept := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: delayCallers}}
	t.Cleanup(kept.CloseIdleConnections)
	for i := range callers {
		callers[i] = dialWeb(t, d.MCP("recorder"), modern)
		callers[i].client = kept
	}
	asker := newAnswerer(t, d, "http", modern)
	whole(t, asker) // a tool's first question may be refused if it names no call
	for range 2 {
		echoes(t, callers) // not counted: programs are slow at first
	}
	for !m.settled() && !t.Failed() {
		askFirst := rand.IntN(2) == 0
		if !askFirst {
			m.quiet = append(m.quiet, echoes(t, callers)...)
		}
		if at := asker.call(); at.question == "" {
			t.Fatalf("no question: %+v", at)
		}
		m.asked = append(m.asked, echoes(t, callers)...)
		asker.answer("1")
		if end := asker.answer("2"); end.result != "first=1 second=2" {
			t.Fatalf("the call that asks: %+v", end)
		}
		if askFirst {
			m.quiet = append(m.quiet, echoes(t, callers)...)
		}
	}
	return m
}

// echoes runs the rounds of one kind in a turn, and returns their 99th percentiles.
func echoes(t *testing.T, callers []*web) (all []time.Duration) {
	for range delayInTurn {
		all = append(all, round(t, callers))
	}
	return all
}

// round makes all callers call concurrently, and returns the 99th percentile.
func round(t *testing.T, callers []*web) time.Duration {
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
	all := slices.Sorted(slices.Values(slices.Concat(took...)))
	return all[len(all)*99/100]
}
