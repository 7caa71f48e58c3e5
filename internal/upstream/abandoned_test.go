package upstream

import (
	"testing"
	"time"
)

// A call that may ask and was given up counts as running at its server until it is answered, for a
// minute at most. Any other call does not count, nor one that was answered in time.
func TestAGivenUpCallCountsUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		asks bool
		do   func(p *pending, id int64)
		at   time.Duration
		want bool
	}{
		"given up":        {true, func(p *pending, id int64) { p.giveUp(id, now) }, leftTime - 1, true},
		"long ago":        {true, func(p *pending, id int64) { p.giveUp(id, now) }, leftTime, false},
		"answered late":   {true, func(p *pending, id int64) { p.giveUp(id, now); p.take(id) }, 0, false},
		"asks nothing":    {false, func(p *pending, id int64) { p.giveUp(id, now) }, 0, false},
		"answered before": {true, func(p *pending, id int64) { p.take(id); p.giveUp(id, now) }, 0, false},
	} {
		var p pending
		call := &call{asks: c.asks}
		if err := p.add(call); err != nil {
			t.Fatal(err)
		}
		c.do(&p, call.id)
		if got := p.abandoned(now.Add(c.at)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
