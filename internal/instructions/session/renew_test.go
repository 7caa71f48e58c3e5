package session

import (
	"errors"
	"testing"
	"time"
)

func TestARenewedTokenTakesTheOldOnesPlace(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		r := ask()
		r.TTL = time.Hour
		old, s := b.issue(r)
		b.pass(50 * time.Minute)
		token, renewed, err := b.Renew(t.Context(), b.good(old, owner()), said)
		must(t, err)
		if token == old || renewed.ID != s.ID || !renewed.Issued.Equal(s.Issued) || !renewed.Expires.Equal(b.now().Add(time.Hour)) ||
			!renewed.RefreshAfter.Equal(b.now().Add(45*time.Minute)) {
			t.Fatalf("before %+v, after %+v", s, renewed)
		}
		same(t, "by the old one", b.good(old, owner()).Expires, renewed.Expires)
		same(t, "by the new one", b.good(token, owner()).Expires, renewed.Expires)
		b.pass(Overlap - time.Nanosecond)
		b.good(old, owner())
		b.pass(time.Nanosecond)
		b.bad(old, owner(), Expired)
		upkeep{b.Keeper}.turn()
		b.bad(old, owner(), Revoked) // forgotten
		b.good(token, owner())
		b.restart()
		b.bad(old, owner(), Revoked)
		same(t, "after a restart", b.good(token, owner()).RefreshAfter, renewed.RefreshAfter)
		must(t, upkeep{b.Keeper}.tidy(t.Context()))
		same(t, "rows of tokens", b.rows("instruct_tokens"), 1)
		b.pass(time.Hour)
		upkeep{b.Keeper}.turn()
		b.bad(token, owner(), Expired)
	})
}

// A restart within the overlap does not change how long the old token is valid.
func TestTheOverlapOutlivesARestart(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		old, s := b.issue(ask())
		token, _, err := b.Renew(t.Context(), s, said)
		must(t, err)
		b.restart()
		b.pass(Overlap - time.Second)
		b.good(old, owner())
		b.pass(time.Second)
		b.bad(old, owner(), Expired)
		b.good(token, owner())
	})
}

func TestNoSessionLivesLongerThanADay(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		r := ask()
		r.TTL = 7 * time.Hour
		token, s := b.issue(r)
		first := s
		for range 4 {
			b.pass(6 * time.Hour)
			upkeep{b.Keeper}.turn()
			next, renewed, err := b.Renew(t.Context(), s, said)
			if !b.now().Before(first.Issued.Add(MaxLife)) {
				if !errors.Is(err, ErrUnknown) {
					t.Errorf("renewed after a day: %+v, %v", renewed, err)
				}
				break
			}
			must(t, err)
			if end := first.Issued.Add(MaxLife); renewed.Expires.After(end) || renewed.RefreshAfter.After(end) || renewed.Expires.Before(s.Expires) {
				t.Fatalf("before %+v, after %+v", s, renewed)
			}
			token, s = next, renewed
		}
		same(t, "the last end", s.Expires, first.Issued.Add(MaxLife))
		same(t, "refresh_after", s.RefreshAfter, s.Expires) // renewing does not help any more
		b.bad(token, owner(), Expired)
	})
}

// An expired session is not renewed, although the tolerance for clocks still accepts
// its token.
func TestAnExpiredSessionIsNotRenewed(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		r := ask()
		r.TTL = time.Minute
		token, s := b.issue(r)
		b.pass(time.Minute)
		b.good(token, owner()) // upkeep has not run yet
		if text, renewed, err := b.Renew(t.Context(), s, said); !errors.Is(err, ErrUnknown) || text != "" || renewed != nil {
			t.Errorf("renewed: %+v, %v", renewed, err)
		}
	})
}

func TestTheNumberOfRenewalsIsBounded(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		b.limits.renewals = 3
		_, s := b.issue(ask())
		var err error
		n := 0
		for ; err == nil && n < 10; n++ {
			_, _, err = b.Renew(t.Context(), s, said)
		}
		if !errors.Is(err, ErrTooMany) || n != 4 {
			t.Errorf("after %d: %v", n, err)
		}
		b.pass(Overlap)
		upkeep{b.Keeper}.turn()
		_, _, err = b.Renew(t.Context(), s, said)
		must(t, err)
	})
}
