package upstream

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// After each standing stream that does not continue an earlier one, the owner of the
// connection learns that it may have missed messages.
func TestAGapOfTheStandingStreamIsReported(t *testing.T) {
	t.Parallel()
	const retry, id = "retry: 1\n\n", "id: e1\n" + listChanged
	for name, c := range map[string]struct {
		answers []any // of the attempts: a status, or what is sent on a stream that then ends
		gaps    int
	}{
		"the first stream":               {[]any{listChanged}, 0},
		"each later one":                 {[]any{retry, listChanged, listChanged}, 2},
		"a resumed one":                  {[]any{retry + id, listChanged, listChanged}, 0},
		"one behind an event without id": {[]any{retry + id, "id:\n" + listChanged, listChanged}, 1},
		"one that cannot be resumed":     {[]any{retry + id, 400, listChanged}, 1},
		"one that is resumed late":       {[]any{retry + id, 409, listChanged}, 0},
		"the first one, late":            {[]any{409, listChanged}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var gets atomic.Int32
			f := newFakeWeb(t, func(f *fakeWeb) {
				f.stream = func(w http.ResponseWriter, r *http.Request) {
					n := int(gets.Add(1))
					if n > len(c.answers) {
						w.WriteHeader(405)
						return
					}
					if status, ok := c.answers[n-1].(int); ok {
						w.WriteHeader(status)
						return
					}
					events(w)("%s", c.answers[n-1])
				}
			})
			var got recorder
			conn := dialLegacy(t, f.server(func(_ *Definition, d *Deps) { d.Log = slog.New(slog.DiscardHandler) }), got.on)
			conn.Listen()
			eventually(t, "the attempt after the last answer", func() bool { return int(gets.Load()) > len(c.answers) })
			gaps := 0
			eventually(t, "all events", func() bool {
				gaps = 0
				for _, ev := range got.all() {
					if ev.Missed {
						gaps++
					}
				}
				return gaps == c.gaps
			})
			if gaps != c.gaps {
				t.Errorf("%d gaps, want %d", gaps, c.gaps)
			}
		})
	}
}

// The pause before a stream is opened again grows with each one that ends soon and silent,
// and is short after one that was open for long.
func TestThePauseOfAStandingStream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asked, lived, want time.Duration
	}{
		"streams that end at once":             {0, 0, lastPause},
		"streams of a minute":                  {0, time.Minute, firstPause},
		"streams of a minute, a pause named":   {5 * time.Second, time.Minute, 5 * time.Second},
		"streams that end as the server asked": {100 * time.Millisecond, 0, 100 * time.Millisecond},
	} {
		l := &listener{pause: firstPause, asked: c.asked}
		for range 10 {
			l.opened()
			l.ended(c.lived)
		}
		if l.pause != c.want {
			t.Errorf("%s: %v, want %v", name, l.pause, c.want)
		}
	}
}
