package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSessionsOutliveARestart(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		r := ask()
		r.Bind, r.CI, r.TTL = "boot/5@1", true, 2*time.Hour
		bound, _ := b.issue(r)
		free, _ := b.issue(ask())
		ended, s := b.issue(ask())
		_, err := b.End(t.Context(), s.ID, ReasonEnded, said)
		must(t, err)
		before := b.Sessions()
		wanted := b.good(bound, owner())
		b.restart()
		b.good(free, owner())
		got := b.good(bound, owner())
		if got.ID != wanted.ID || got.Bind != r.Bind || !got.CI || !got.Expires.Equal(wanted.Expires) || !got.RefreshAfter.Equal(wanted.RefreshAfter) ||
			got.Client != wanted.Client || got.Project != wanted.Project || strings.Join(got.Scope, " ") != strings.Join(wanted.Scope, " ") {
			t.Errorf("before %+v, after %+v", wanted, got)
		}
		b.bad(bound, Caller{Unix: true, Principal: "uid:1000", Processes: []string{"boot/9@1"}}, Binding)
		b.bad(ended, owner(), Revoked)
		same(t, "sessions", len(b.Sessions()), len(before))
		same(t, "live", b.Stats().Live, 2)
		same(t, "why", b.mustFind(s.ID).Reason, ReasonEnded)
		same(t, "done", isClosed(b.Done(s.ID)), true)
		same(t, "told", len(b.heard()), 1)
		token, _, err := b.Renew(t.Context(), got, said)
		must(t, err)
		b.restart()
		b.good(token, owner())
		same(t, "its end", b.good(bound, owner()).ID, wanted.ID)
	})
}

func TestWhatEndedWhileNoDaemonRanEndsAtTheStart(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		r := ask()
		r.Bind = "boot/5@1"
		bound, a := b.issue(r)
		r.Bind, r.TTL = "", time.Minute
		short, c := b.issue(r)
		free, _ := b.issue(ask())
		b.kill("boot/5@1")
		b.pass(time.Minute)
		b.restart()
		b.bad(bound, owner(), Revoked)
		b.bad(short, owner(), Expired)
		b.good(free, owner())
		same(t, "why", b.mustFind(a.ID).Reason, ReasonProcess)
		same(t, "why", b.mustFind(c.ID).Reason, ReasonExpired)
		same(t, "done", isClosed(b.Done(a.ID)), true)
		same(t, "told before Run", len(b.heard()), 0)
		upkeep{b.Keeper}.turn()
		upkeep{b.Keeper}.turn()
		same(t, "told", len(b.heard()), 2)
		b.mu.Lock()
		b.gone, b.ended = make(map[string]bool), nil // another process has that number now
		b.mu.Unlock()
		b.restart()
		upkeep{b.Keeper}.turn()
		b.bad(bound, owner(), Revoked)
		same(t, "told again", len(b.heard()), 0)
	})
}

func TestWithLostKeysTokensEndAndSessionsBegin(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		token, s := b.issue(ask())
		must(t, os.Remove(filepath.Join(b.dir, keyFile)))
		b.good(token, owner()) // a running daemon has them in memory
		b.restart()
		b.bad(token, owner(), MAC)
		if again, ok := b.Find(s.ID); !ok || !again.Ended.IsZero() {
			t.Errorf("its session is %+v", again)
		}
		fresh, _ := b.issue(ask())
		b.good(fresh, owner())
		b.restart()
		b.good(fresh, owner())
		_, err := b.End(t.Context(), s.ID, ReasonRevoked, said)
		must(t, err)
	})
}

func TestASessionEndsWithItsProcess(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		r := ask()
		r.Bind = "boot/5@1"
		token, s := b.issue(r)
		free, _ := b.issue(ask())
		upkeep{b.Keeper}.turn()
		b.good(token, owner())
		b.kill("boot/1@0") // above it
		upkeep{b.Keeper}.turn()
		b.good(token, owner())
		b.kill("boot/5@1")
		b.bad(token, owner(), Revoked) // upkeep has not run yet
		b.bad(token, Caller{}, Revoked)
		same(t, "requests for upkeep", len(b.poke), 1)
		same(t, "done before the look", isClosed(b.Done(s.ID)), false)
		upkeep{b.Keeper}.turn()
		same(t, "done", isClosed(b.Done(s.ID)), true)
		same(t, "why", b.mustFind(s.ID).Reason, ReasonProcess)
		equal(t, "told", b.heard(), s.ID+" process")
		b.good(free, owner())
		must(t, upkeep{b.Keeper}.save(t.Context()))
		same(t, "tokens", b.rows("instruct_tokens"), 1)
	})
}

// A session ends by its time while the database cannot be written, and its end is
// saved later.
func TestAnEndDoesNotWaitForTheDatabase(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		r := ask()
		r.TTL = time.Minute
		token, s := b.issue(r)
		b.exec(`CREATE TRIGGER stuck BEFORE UPDATE ON instruct_sessions BEGIN SELECT RAISE(ABORT, 'stuck'); END`)
		b.pass(time.Minute)
		upkeep{b.Keeper}.turn()
		b.bad(token, owner(), Expired)
		same(t, "done", isClosed(b.Done(s.ID)), true)
		if err := (upkeep{b.Keeper}).save(t.Context()); err == nil {
			t.Fatal("it was saved: the test shows nothing")
		}
		must(t, upkeep{b.Keeper}.tidy(t.Context()))
		b.pass(100 * Kept)
		must(t, upkeep{b.Keeper}.tidy(t.Context()))
		same(t, "still known", b.mustFind(s.ID).Reason, ReasonExpired) // not saved, not forgotten
		b.restart()                                                    // a daemon that starts now ends it too
		same(t, "after a restart", b.mustFind(s.ID).Reason, ReasonExpired)
		if !strings.Contains(b.log.String(), "stuck") {
			t.Errorf("the operator hears %q", b.log.String())
		}
		b.exec(`DROP TRIGGER stuck`)
		must(t, upkeep{b.Keeper}.save(t.Context()))
		same(t, "ended rows", b.exec(`UPDATE instruct_sessions SET reason = reason WHERE ended_at > 0 AND reason = 'expired'`), 1)
		if _, err := b.End(t.Context(), s.ID, ReasonEnded, said); err != ErrUnknown {
			t.Errorf("ended again: %v", err)
		}
	})
}

func TestWithoutADatabaseTokensAreCheckedAndNoneIsMade(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		token, s := b.issue(ask())
		must(t, b.db.Close())
		b.good(token, owner())
		if text, _, err := b.Issue(t.Context(), ask(), said); err == nil || text != "" {
			t.Errorf("made %q", text)
		}
		if text, _, err := b.Renew(t.Context(), s, said); err == nil || text != "" {
			t.Errorf("renewed: %q", text)
		}
		b.good(token, owner())
		other := b.mustFind(s.ID)
		if ended, err := b.End(t.Context(), other.ID, ReasonEnded, said); !errors.Is(err, ErrUnsaved) || ended == nil || !isClosed(b.Done(other.ID)) {
			t.Errorf("ended: %v", err)
		}
		b.bad(token, owner(), Revoked)
		equal(t, "told", b.heard(), s.ID+" ended")
		if _, err := Open(t.Context(), b.options()); err == nil {
			t.Error("opened without a database")
		}
	})
}

func TestMoreEndsThanOneTransactionTakesAreSaved(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		r := ask()
		r.TTL = time.Minute
		for range chunk + 10 {
			b.issue(r)
		}
		b.pass(time.Minute)
		upkeep{b.Keeper}.turn()
		must(t, upkeep{b.Keeper}.save(t.Context()))
		same(t, "ended rows", b.exec(`UPDATE instruct_sessions SET reason = reason WHERE ended_at > 0`), chunk+10)
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() { b.Run(ctx); close(ended) }()
		cancel()
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Error("it goes on")
		}
	})
}

func TestAKeeperNeedsItsOptions(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		for what, change := range map[string]func(o *Options){
			"a database":      func(o *Options) { o.DB = nil },
			"a directory":     func(o *Options) { o.Dir = "" },
			"an installation": func(o *Options) { o.Installation = "" },
			"one of its own":  func(o *Options) { o.Dir = "/proc/1/state" },
		} {
			o := b.options()
			change(&o)
			if _, err := Open(t.Context(), o); err == nil {
				t.Errorf("opened without %s", what)
			}
		}
	})
}

// The token that made a session is in its row, and survives a restart.
func TestASessionKnowsItsMaker(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		r := ask()
		r.Subject, r.Maker = "token:ci", "T0123"
		token, s := b.issue(r)
		b.restart()
		same(t, "its maker", b.good(token, Caller{}).Maker, "T0123")
		equal(t, "its scope", b.mustFind(s.ID).Scope, Behavioural, Structural)
		r.Maker = "T0123 behavioural"
		if _, _, err := b.Issue(t.Context(), r, said); !errors.Is(err, ErrRequest) {
			t.Errorf("a maker of two words: %v", err)
		}
	})
}

// An end while the database is away counts at once, and is saved when it is back.
func TestAnEndOnAStuckDatabaseIsSavedLater(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		token, s := b.issue(ask())
		b.exec(`CREATE TRIGGER stuck BEFORE UPDATE ON instruct_sessions BEGIN SELECT RAISE(ABORT, 'stuck'); END`)
		if _, err := b.End(t.Context(), s.ID, ReasonRevoked, said); !errors.Is(err, ErrUnsaved) {
			t.Fatalf("the test shows nothing: %v", err)
		}
		b.bad(token, owner(), Revoked)
		b.exec(`DROP TRIGGER stuck`)
		must(t, upkeep{b.Keeper}.save(t.Context()))
		b.restart()
		b.bad(token, owner(), Revoked)
		same(t, "why", b.mustFind(s.ID).Reason, ReasonRevoked)
	})
}
