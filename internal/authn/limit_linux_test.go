package authn

import (
	"fmt"
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
	for _, auth := range []string{"Bearer wrong", "Bearer " + envToken} {
		if _, err := w.ask(enforced(), auth); err != ErrTooMany {
			t.Errorf("over the limit: %v", err)
		}
	}
	if _, err := w.ask(known, "Bearer "+envToken); err != nil {
		t.Errorf("a connection that is known: %v", err)
	}
	other := enforced()
	other.Remote = addr("192.0.2.2")
	if _, err := w.ask(other, "Bearer "+envToken); err != nil {
		t.Errorf("another source: %v", err)
	}
	for range 100 { // no header is no guess
		if _, err := w.ask(&Caller{Enforce: true, Remote: addr("192.0.2.3")}); err != ErrUnauthenticated {
			t.Fatalf("no header: %v", err)
		}
	}
	if got := w.Failures(); got != (Failures{Missing: 100, Invalid: burst, Limited: 2}) {
		t.Errorf("counted %+v", got)
	}
	w.clock.advance(RetryAfter)
	if _, err := w.ask(enforced(), "Bearer "+envToken); err != nil {
		t.Errorf("after the wait: %v", err)
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
		t.Errorf("%d sources are remembered for nothing", n)
	}
}

func TestSourcesAreToldApart(t *testing.T) {
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
		if a, b := sourceOf(tc.a), sourceOf(tc.b); (a == b) != tc.same {
			t.Errorf("%q and %q", a, b)
		}
	}
}

// From ever new addresses: memory stays bounded, and it is the new ones that
// share a bucket.
func TestManySourcesStayBounded(t *testing.T) {
	t.Parallel()
	l := limiter{buckets: map[string]*bucket{}}
	now := time.Now()
	for i := range 3 * maxSources {
		l.take(fmt.Sprint("s", i), now)
	}
	if n := len(l.buckets); n > maxSources+1 {
		t.Errorf("%d sources", n)
	}
	if l.take("new", now) {
		t.Error("a source over the number is not limited")
	}
	l.refund("never seen", now)
	later := now.Add(time.Minute)
	if !l.take("new", later) || len(l.buckets) > 2 {
		t.Errorf("after a minute %d sources are left", len(l.buckets))
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
