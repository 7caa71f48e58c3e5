package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Under concurrent acts an ended session is never valid again, each end is told once,
// and the counts agree with the rows.
func TestConcurrentActsOnSessionsAgree(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		ctx, cancel := context.WithCancel(t.Context())
		var running, wg sync.WaitGroup
		running.Go(func() { b.Run(ctx) })
		until := time.Now().Add(1500 * time.Millisecond)
		var issued atomic.Int64
		for w := range 6 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(w), 1))
				for n := 0; time.Now().Before(until); n++ {
					r := ask()
					r.Bind = fmt.Sprint("boot/", w, "@", n)
					token, s, err := b.Issue(ctx, r, said)
					if err != nil {
						t.Error(err)
						return
					}
					issued.Add(1)
					b.alter(w, rng, token, s)
				}
			})
		}
		wg.Go(func() {
			for time.Now().Before(until) {
				upkeep{b.Keeper}.turn()
				b.Sessions()
				b.Stats()
				if err := (upkeep{b.Keeper}).tidy(ctx); err != nil {
					t.Error(err)
				}
				b.pass(time.Millisecond)
				time.Sleep(time.Millisecond)
			}
		})
		wg.Wait()
		cancel()
		running.Wait()
		must(t, upkeep{b.Keeper}.save(t.Context()))
		stats, ended := b.Stats(), int64(0)
		for _, n := range stats.Ended {
			ended += n
		}
		if stats.Issued != issued.Load() || stats.Issued != ended+int64(stats.Live) || issued.Load() < 6 {
			t.Errorf("%d were made, %d ended, %+v", issued.Load(), ended, stats)
		}
		told := make(map[string]int)
		for _, s := range b.ended {
			told[s.ID]++
		}
		if int64(len(told)) != ended || len(b.ended) != len(told) {
			t.Errorf("%d ended, %d told of %d", ended, len(b.ended), len(told))
		}
		before := b.Stats().Live
		b.restart()
		same(t, "live after a restart", b.Stats().Live, before)
	})
}

// alter renews a session twice and ends it, all concurrently.
func (b *bed) alter(w int, rng *rand.Rand, token string, s *Session) {
	c := Caller{Unix: true, Principal: s.Subject, Processes: []string{s.Bind}}
	good := func(token string) bool { _, err := b.Check(token, c); return err == nil }
	if !good(token) {
		b.t.Errorf("worker %d: a fresh token is refused", w)
	}
	var both sync.WaitGroup
	var renewed [2]string
	for i := range renewed {
		both.Go(func() {
			text, _, err := b.Renew(context.Background(), s, said)
			if err != nil && !errors.Is(err, ErrUnknown) {
				b.t.Error(err)
			}
			renewed[i] = text
		})
	}
	end := rng.IntN(3)
	if end > 0 {
		both.Go(func() {
			if end == 1 {
				b.kill(s.Bind)
			}
			_, err := b.End(context.Background(), s.ID, ReasonRevoked, said)
			if err != nil && !errors.Is(err, ErrUnknown) {
				b.t.Error(err)
			}
			if good(token) {
				b.t.Error("good after its end")
			}
		})
	}
	both.Wait()
	for _, text := range renewed {
		if text != "" && end > 0 && good(text) {
			b.t.Error("renewed over its end")
		}
		if text != "" && end == 0 && !good(text) {
			b.t.Error("a renewed token is refused")
		}
	}
}

// One of many concurrent ends of a session succeeds.
func TestASessionEndsOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		for range 40 {
			_, s := b.issue(ask())
			var wg sync.WaitGroup
			var did atomic.Int64
			for range 8 {
				wg.Go(func() {
					switch _, err := b.End(t.Context(), s.ID, ReasonEnded, func(s *Session) any { return s.ID }); {
					case err == nil:
						did.Add(1)
					case !errors.Is(err, ErrUnknown):
						t.Error(err)
					}
				})
			}
			wg.Wait()
			same(t, "ends", did.Load(), 1)
		}
		same(t, "records", len(b.notes), 40)
		same(t, "told", len(b.heard()), 40)
	})
}
