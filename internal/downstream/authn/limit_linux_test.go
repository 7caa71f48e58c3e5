package authn

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"
)

func TestFailuresAreLimitedAndCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	known := enforced()
	if _, err := w.ask(known, "Bearer "+envToken); err != nil {
		t.Fatal(err)
	}
	for i := range burst {
		if _, err := w.ask(enforced(), fmt.Sprintf("Bearer wrong-%d", i)); err != ErrUnauthenticated {
			t.Fatalf("failure %d: %v", i, err)
		}
	}
	var wait time.Duration
	for _, auth := range []string{"Bearer wrong", "Bearer " + envToken} {
		_, err := w.ask(enforced(), auth)
		var many *TooManyError
		if !errors.Is(err, ErrTooMany) || !errors.As(err, &many) || many.Wait <= 0 || many.Wait > refill {
			t.Fatalf("over the limit: %v", err)
		}
		wait = many.Wait
	}
	if _, err := w.ask(known, "Bearer "+envToken); err != nil {
		t.Errorf("a connection that is known: %v", err)
	}
	other := enforced()
	other.Remote = addr("192.0.2.2")
	if _, err := w.ask(other, "Bearer "+envToken); err != nil {
		t.Errorf("another source: %v", err)
	}
	for range 100 { // a request without a header is not a guess
		if _, err := w.ask(&Caller{Enforce: true, Remote: addr("192.0.2.3")}); err != ErrUnauthenticated {
			t.Fatalf("no header: %v", err)
		}
	}
	if got := w.Failures(); got != (Failures{Missing: 100, Invalid: burst, Limited: 2}) {
		t.Errorf("counted %+v", got)
	}
	w.clock.advance(wait - 1)
	if _, err := w.ask(enforced(), "Bearer "+envToken); !errors.Is(err, ErrTooMany) {
		t.Errorf("before the time in the answer: %v", err)
	}
	w.clock.advance(1)
	if _, err := w.ask(enforced(), "Bearer "+envToken); err != nil {
		t.Errorf("at the time in the answer: %v", err)
	}
}

// A token that Doorward generated is accepted although its source is at the limit, until it
// is revoked: it cannot be guessed. A chosen token is refused meanwhile.
func TestAGeneratedTokenIsNotLockedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made, id := mustNew(t, w.store, "ci", 0, "")
	w.clock.advance(2 * time.Second)
	for range burst {
		w.ask(enforced(), "Bearer wrong")
	}
	for range 3 {
		if _, err := w.ask(enforced(), "Bearer "+envToken); !errors.Is(err, ErrTooMany) {
			t.Errorf("a chosen token: %v", err)
		}
		if got, err := w.ask(enforced(), "Bearer "+made); got != "token:ci" {
			t.Errorf("a generated token: %v", err)
		}
	}
	if _, err := w.store.Revoke(id); err != nil {
		t.Fatal(err)
	}
	w.clock.advance(1100 * time.Millisecond)
	for range burst {
		w.ask(enforced(), "Bearer dw_wrong")
	}
	if _, err := w.ask(enforced(), "Bearer "+made); !errors.Is(err, ErrTooMany) {
		t.Errorf("once it is revoked: %v", err)
	}
}

// A connection that has authenticated stays accepted with its token when its source is at the
// limit, also after the tokens were read again. Another token on it is limited.
func TestAKnownConnectionGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, other := mustNew(t, w.store, "other", 0, "")
	w.clock.advance(2 * time.Second)
	known := enforced()
	if _, err := w.ask(known, "Bearer "+envToken); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := w.store.Revoke(other); err != nil {
			t.Fatal(err)
		}
		_, other = mustNew(t, w.store, "other", 0, "")
		w.clock.advance(1100 * time.Millisecond)
		for range burst {
			w.ask(enforced(), "Bearer wrong")
		}
		if _, err := w.ask(known, "Bearer "+envToken); err != nil {
			t.Fatalf("a connection that is known: %v", err)
		}
	}
	if _, err := w.ask(known, "Bearer wrong"); !errors.Is(err, ErrTooMany) {
		t.Errorf("another token on it: %v", err)
	}
}

func TestSuccessesDoNotCountAgainstASource(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 10 * burst {
		if _, err := w.ask(enforced(), "Bearer "+envToken); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(w.failures.buckets); n != 0 {
		t.Errorf("%d sources are remembered without a failure", n)
	}
}

func TestSourcesAreDistinguished(t *testing.T) {
	t.Parallel()
	local := func(uid uint32, known bool) *Caller {
		return &Caller{Loopback: true, Listener: "l", Remote: addr("127.0.0.1"), OwnerUID: uid, OwnerKnown: known}
	}
	remote := func(s string) *Caller { return &Caller{Listener: "l", Remote: addr(s)} }
	for _, tc := range []struct {
		a, b *Caller
		same bool
	}{
		{remote("192.0.2.1"), remote("192.0.2.1"), true},
		{remote("192.0.2.1"), remote("::ffff:192.0.2.1"), true},
		{remote("192.0.2.1"), remote("192.0.2.2"), false},
		{remote("2001:db8::1"), remote("2001:db8::2"), true},
		{remote("2001:db8::1"), remote("2001:db8:0:1::1"), false},
		{local(1, true), local(1, true), true},
		{local(1, true), local(2, true), false},
		{local(0, false), local(0, true), false},
		{local(0, false), remote("::1"), true},
		{local(0, false), &Caller{Listener: "m", Remote: addr("127.0.0.1")}, false},
	} {
		if a, b := sourceOf(tc.a, netip.Addr{}, kindChosen), sourceOf(tc.b, netip.Addr{}, kindChosen); (a == b) != tc.same {
			t.Errorf("%q and %q", a, b)
		}
	}
}

// The number of sources that are remembered is bounded. Over the bound new sources share
// buckets, and after a minute the sources are forgotten.
func TestManySourcesStayBounded(t *testing.T) {
	t.Parallel()
	l := newLimiter()
	now := time.Now()
	for i := range maxSources {
		l.take(origin{at: fmt.Sprint("s", i)}, now)
	}
	for i := range 60 * maxShared {
		l.take(origin{at: fmt.Sprint("t", i)}, now)
	}
	if n := len(l.buckets); n > maxSources+maxShared {
		t.Errorf("%d sources", n)
	}
	limited := 0
	for i := range 100 {
		if l.take(origin{at: fmt.Sprint("new", i)}, now) > 0 {
			limited++
		}
	}
	if limited < 90 {
		t.Errorf("%d of 100 sources over the number are limited", limited)
	}
	l.refund(origin{at: "never seen"}, now)
	later := now.Add(time.Minute)
	if l.take(origin{at: "new"}, later) > 0 || len(l.buckets) > 2 {
		t.Errorf("after a minute %d sources are left", len(l.buckets))
	}
}

// One source that fails while the table is full limits at most 2 % of the new sources.
func TestAFullTableLocksFewOut(t *testing.T) {
	t.Parallel()
	l := newLimiter()
	now := time.Now()
	for i := range maxSources {
		l.take(origin{at: fmt.Sprint("s", i)}, now)
	}
	for range 10 * burst {
		l.take(origin{at: "one more"}, now)
	}
	limited := 0
	for i := range 1000 {
		if l.take(origin{at: fmt.Sprint("new", i)}, now) > 0 {
			limited++
		}
	}
	if limited > 20 {
		t.Errorf("%d of 1000 new sources are limited for one", limited)
	}
}

func BenchmarkAttackFromEverywhere(b *testing.B) {
	l := newLimiter()
	now := time.Now()
	for i := range maxSources {
		l.take(origin{at: fmt.Sprint("s", i)}, now)
	}
	names := make([]string, 1024)
	for i := range names {
		names[i] = fmt.Sprint("new", i)
	}
	for i := 0; b.Loop(); i++ {
		l.take(origin{at: names[i%len(names)]}, now)
	}
}

func TestManyGuessesAtOnceDoNotPassTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() { w.ask(enforced(), fmt.Sprint("Bearer guess-", i)) })
	}
	wg.Wait()
	if got := w.Failures(); got.Invalid != burst || got.Limited != 200-burst {
		t.Errorf("%+v", got)
	}
}

// A token that cannot be judged counts as a failure of its source, so it may not be tried more
// often than a wrong one.
func TestAnUnjudgedTokenIsAFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range burst {
		if err := w.Unjudged(enforced(), netip.Addr{}); err != nil {
			t.Fatalf("failure %d: %v", i, err)
		}
	}
	var many *TooManyError
	if err := w.Unjudged(enforced(), netip.Addr{}); !errors.As(err, &many) || many.RetryAfter() != 1 {
		t.Errorf("over the limit: %v", err)
	}
	if _, err := w.ask(enforced(), "Bearer dws1.wrong"); !errors.Is(err, ErrTooMany) {
		t.Errorf("another guess: %v", err)
	}
	if got := w.Failures(); got != (Failures{Invalid: burst, Limited: 2}) {
		t.Errorf("counted %+v", got)
	}
}
