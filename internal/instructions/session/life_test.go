package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/store"
)

func TestASessionIsRecordedBeforeItCounts(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		say := func(what string) func(s *Session) any {
			return func(s *Session) any { return fmt.Sprint(what, " ", s.ID, " ", s.Reason) }
		}
		token, s, err := b.Issue(t.Context(), ask(), say("made"))
		must(t, err)
		_, _, err = b.Renew(t.Context(), s, say("renewed"))
		must(t, err)
		_, err = b.End(t.Context(), s.ID, ReasonRevoked, say("ended"))
		must(t, err)
		equal(t, "records", b.notes, any("made "+s.ID+" "), any("renewed "+s.ID+" "), any("ended "+s.ID+" revoked"))
		b.bad(token, owner(), Revoked)

		token, s = b.issue(ask())
		before := len(b.Sessions())
		b.broken = errors.New("the audit disk is full")
		text, made, err := b.Issue(t.Context(), ask(), say("made"))
		if !errors.Is(err, store.ErrRecord) || text != "" || made != nil || len(b.Sessions()) != before || b.rows("instruct_sessions") != int64(before) {
			t.Errorf("made without a record: %q %+v, %v", text, made, err)
		}
		text, made, err = b.Renew(t.Context(), s, say("renewed"))
		if !errors.Is(err, store.ErrRecord) || text != "" || made != nil {
			t.Errorf("renewed without a record: %q %+v, %v", text, made, err)
		}
		b.pass(Overlap + time.Second)
		b.good(token, owner())
		b.restart()
		b.good(token, owner())
		// An end does not need its record: its caller is told that there is none.
		ended, err := b.End(t.Context(), s.ID, ReasonEnded, say("ended"))
		if !errors.Is(err, store.ErrRecord) || !errors.Is(err, ErrUnsaved) || ended == nil || ended.Reason != ReasonEnded {
			t.Errorf("ended without a record: %+v, %v", ended, err)
		}
		b.bad(token, owner(), Revoked)
		b.broken = nil
		must(t, upkeep{b.Keeper}.save(t.Context()))
		b.restart()
		b.bad(token, owner(), Revoked)
		same(t, "sessions", len(b.Sessions()), before)
	})
}

func TestASessionEndsWithItsTime(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		r := ask()
		r.TTL = time.Hour
		token, s := b.issue(r)
		same(t, "life", s.Expires.Sub(s.Issued), time.Hour)
		same(t, "refresh", s.RefreshAfter.Sub(s.Issued), 45*time.Minute)
		b.pass(time.Hour - time.Nanosecond)
		upkeep{b.Keeper}.turn()
		b.good(token, owner())
		b.pass(time.Nanosecond)
		upkeep{b.Keeper}.turn()
		b.bad(token, owner(), Expired)
		ended, _ := b.Find(s.ID)
		same(t, "why", ended.Reason, ReasonExpired)
		same(t, "when", ended.Ended, s.Expires)
		equal(t, "told", b.heard(), s.ID+" expired")
		for range 3 {
			b.pass(time.Minute)
			upkeep{b.Keeper}.turn()
			b.bad(token, owner(), Expired)
		}
		equal(t, "told again", b.heard(), s.ID+" expired")
	})
}

// The times in a token are compared with a tolerance of a minute, because clocks may
// differ. The session itself is not ended here: upkeep, which does that, does not run.
func TestClocksMayDifferByAMinute(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		r := ask()
		r.TTL = time.Hour
		token, _ := b.issue(r)
		for _, tc := range []struct {
			at   time.Duration
			good bool
		}{
			{-24 * time.Hour, false}, {-61 * time.Second, false}, {-60*time.Second - 1, false}, {-60 * time.Second, true}, {-1, true}, {0, true},
			{time.Hour, true}, {time.Hour + 60*time.Second - 1, true}, {time.Hour + 60*time.Second, false}, {time.Hour + 61*time.Second, false}, {1000 * time.Hour, false},
		} {
			b.clock.Store(int64(tc.at))
			if tc.good {
				b.good(token, owner())
			} else {
				b.bad(token, owner(), Expired)
			}
		}
	})
}

func TestARevokedTokenIsRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		for _, reason := range []string{ReasonEnded, ReasonRevoked, ReasonProcess} {
			token, s := b.issue(ask())
			other, _ := b.issue(ask())
			done := b.Done(s.ID)
			same(t, "done before", isClosed(done), false)
			ended, err := b.End(t.Context(), s.ID, reason, said)
			must(t, err)
			same(t, "why", ended.Reason, reason)
			same(t, "when", ended.Ended, milli(b.now()))
			same(t, "done", isClosed(done) && isClosed(b.Done(s.ID)), true)
			b.bad(token, owner(), Revoked)
			b.bad(token, Caller{}, Revoked)
			b.good(other, owner())
			if again, err := b.End(t.Context(), s.ID, ReasonRevoked, said); !errors.Is(err, ErrUnknown) || again != nil {
				t.Errorf("ended twice: %+v, %v", again, err)
			}
			if text, again, err := b.Renew(t.Context(), s, said); !errors.Is(err, ErrUnknown) || text != "" || again != nil {
				t.Errorf("renewed after its end: %+v, %v", again, err)
			}
			if h := b.heard(); h[len(h)-1] != s.ID+" "+reason {
				t.Errorf("told %v", h)
			}
			upkeep{b.Keeper}.turn()
			b.restart()
			upkeep{b.Keeper}.turn()
			b.bad(token, owner(), Revoked)
			b.good(other, owner())
			same(t, "kept", b.mustFind(s.ID).Reason, reason)
		}
		same(t, "told", len(b.heard()), 3)
	})
}

func (b *bed) mustFind(id string) Session {
	b.t.Helper()
	s, ok := b.Find(id)
	if !ok {
		b.t.Fatalf("session %s is not known", id)
	}
	return s
}

func TestAnUnknownSessionCannotBeEnded(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		token, s := b.issue(ask())
		for _, id := range []string{"", "x", s.ID[:15], strings.ToUpper(s.ID) + "x", token} {
			if _, err := b.End(t.Context(), id, ReasonEnded, said); !errors.Is(err, ErrUnknown) {
				t.Errorf("%q: %v", id, err)
			}
			if _, _, err := b.Renew(t.Context(), &Session{ID: id}, said); !errors.Is(err, ErrUnknown) {
				t.Errorf("%q: %v", id, err)
			}
			if _, ok := b.Find(id); ok || !isClosed(b.Done(id)) {
				t.Errorf("%q is found", id)
			}
		}
		if _, err := b.End(t.Context(), s.ID, "because", said); err == nil {
			t.Error("ended for no reason")
		}
		b.good(token, owner())
	})
}

func TestSessionsAreListedNewestFirstForThirtyDays(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		ids := func() (out []string) {
			for _, s := range b.Sessions() {
				out = append(out, s.ID)
			}
			return out
		}
		_, a := b.issue(ask())
		b.pass(time.Hour)
		_, c := b.issue(ask())
		equal(t, "sessions", ids(), c.ID, a.ID)
		_, err := b.End(t.Context(), a.ID, ReasonEnded, said)
		must(t, err)
		b.pass(Kept - time.Millisecond)
		upkeep{b.Keeper}.turn()
		must(t, upkeep{b.Keeper}.save(t.Context()))
		must(t, upkeep{b.Keeper}.tidy(t.Context()))
		_, d := b.issue(ask())
		equal(t, "almost thirty days later", ids(), d.ID, c.ID, a.ID)
		b.restart()
		equal(t, "after a restart", ids(), d.ID, c.ID, a.ID)
		b.pass(time.Millisecond)
		must(t, upkeep{b.Keeper}.tidy(t.Context()))
		equal(t, "after thirty days", ids(), d.ID, c.ID)
		b.restart()
		equal(t, "after another restart", ids(), d.ID, c.ID)
		same(t, "rows", b.rows("instruct_sessions"), 2)
		b.pass(100 * Kept)
		upkeep{b.Keeper}.turn()
		must(t, upkeep{b.Keeper}.save(t.Context()))
		b.pass(Kept)
		must(t, upkeep{b.Keeper}.tidy(t.Context()))
		same(t, "sessions at last", len(b.Sessions()), 0)
		same(t, "rows at last", b.rows("instruct_sessions")+b.rows("instruct_tokens"), 0)
		same(t, "in memory", len(b.sessions)+len(b.grants)+len(b.live)+b.alive, 0)
	})
}

func TestOfTooManyEndedSessionsTheOldestAreForgotten(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		var ids []string
		for range 6 {
			_, s := b.issue(ask())
			ids = append(ids, s.ID)
		}
		for _, id := range ids[:5] {
			b.pass(time.Second)
			_, err := b.End(t.Context(), id, ReasonEnded, said)
			must(t, err)
		}
		b.limits.ended = 2
		must(t, upkeep{b.Keeper}.tidy(t.Context()))
		for i, id := range ids {
			if _, known := b.Find(id); known != (i >= 3) {
				t.Errorf("session %d is known: %v", i, known)
			}
		}
		same(t, "rows", b.rows("instruct_sessions"), 3)
	})
}

func TestSessionsAndRefusalsAreCounted(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		token, s := b.issue(ask())
		b.issue(ask())
		r := ask()
		r.TTL = time.Minute
		b.issue(r)
		_, _, err := b.Renew(t.Context(), s, said)
		must(t, err)
		b.bad("x", owner(), Malformed)
		b.bad(token[:len(token)-1]+"!", owner(), Malformed)
		b.bad(token[:len(token)-2]+"AA", owner(), MAC)
		b.bad(token, Caller{Unix: true}, Binding)
		b.pass(time.Minute)
		upkeep{b.Keeper}.turn()
		_, err = b.End(t.Context(), s.ID, ReasonRevoked, said)
		must(t, err)
		got := b.Stats()
		if got.Issued != 3 || got.Renewed != 1 || got.Live != 1 || fmt.Sprint(got.Ended) != "map[expired:1 revoked:1]" ||
			fmt.Sprint(got.Failures) != "map[binding:1 mac:1 malformed:2]" {
			t.Errorf("counted %+v", got)
		}
		got.Ended[ReasonExpired] = 100
		if b.Stats().Ended[ReasonExpired] != 1 {
			t.Error("a caller changes the counts")
		}
	})
}

// A session that has ended in the database ends in memory at the next act. The two
// differ when the answer to a COMMIT was lost.
func TestASessionThatEndedInTheDatabaseEnds(t *testing.T) {
	for what, damage := range map[string]string{
		"an end that memory does not know": `UPDATE instruct_sessions SET ended_at = 5, reason = 'ended'`,
		"a row that is gone":               `DELETE FROM instruct_sessions`,
	} {
		t.Run(what, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *bed) {
				token, s := b.issue(ask())
				_, other := b.issue(ask())
				b.exec(damage)
				if _, _, err := b.Renew(t.Context(), s, said); !errors.Is(err, ErrUnknown) {
					t.Errorf("renewed: %v", err)
				}
				b.bad(token, owner(), Revoked)
				ended, err := b.End(t.Context(), other.ID, ReasonRevoked, func(*Session) any { return "ended" })
				if err != nil || ended.Reason != ReasonRevoked || !isClosed(b.Done(other.ID)) {
					t.Errorf("ended %+v, %v", ended, err)
				}
				same(t, "records", len(b.notes), 0)
				if h := b.heard(); len(h) != 2 || !slices.Contains(h, s.ID+" revoked") {
					t.Errorf("told %v", h)
				}
			})
		})
	}
}

// The callback Ended may act on sessions, even on the one that has ended.
func TestTheCallbackOfAnEndMayAct(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		o := b.options()
		var k *Keeper
		told := 0
		o.Ended = func(s Session) {
			told++
			if _, err := k.End(t.Context(), s.ID, ReasonEnded, said); !errors.Is(err, ErrUnknown) {
				t.Errorf("ended again: %v", err)
			}
			if _, _, err := k.Renew(t.Context(), &s, said); !errors.Is(err, ErrUnknown) {
				t.Errorf("renewed: %v", err)
			}
			if _, _, err := k.Issue(t.Context(), ask(), said); err != nil || !isClosed(k.Done(s.ID)) {
				t.Errorf("made another: %v", err)
			}
		}
		k = b.open(o)
		for _, end := range []func(s *Session) error{
			func(s *Session) error { _, err := k.End(t.Context(), s.ID, ReasonEnded, said); return err },
			func(s *Session) error { b.pass(MaxLife); upkeep{k}.turn(); return nil },
			func(s *Session) error {
				b.exec(`UPDATE instruct_sessions SET ended_at = 5 WHERE id = ?1`, s.ID)
				_, _, err := k.Renew(t.Context(), s, said)
				return unlessUnknown(err)
			},
		} {
			before := told
			_, s, err := k.Issue(t.Context(), ask(), said)
			must(t, err)
			must(t, end(s))
			if told == before {
				t.Error("Ended was not called")
			}
		}
	})
}

func unlessUnknown(err error) error {
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	return fmt.Errorf("got %w", err)
}
