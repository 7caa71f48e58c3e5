package console

import (
	"testing"
	"time"
)

// A clock that is set back lengthens no code and no session.
func TestAClockThatIsSetBackLengthensNothing(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]struct {
		after time.Duration
		works bool
	}{
		"in time":        {codeLife - time.Second, true},
		"after its time": {codeLife, false},
	} {
		t.Run("a code "+name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			b := newBook(c.now)
			code, _ := b.issue(operator(), "127.0.0.1:7866")
			setBack(b, c, ends.after)
			if _, _, err := b.redeem(code, visit("127.0.0.1:7866", "p")); (err == nil) != ends.works {
				t.Errorf("redeemed: %v", err)
			}
		})
	}
	for name, ends := range map[string]struct {
		after time.Duration
		works bool
	}{
		"in time":        {silence - time.Second, true},
		"after its time": {silence + time.Second, false},
	} {
		t.Run("a session "+name, func(t *testing.T) {
			t.Parallel()
			b, c, secret, _ := signedIn(t)
			setBack(b, c, ends.after)
			if found := b.find(secret, visit("127.0.0.1:7866", "/usr/bin/browser")) != nil; found != ends.works {
				t.Errorf("found: %v", found)
			}
		})
	}
}

// setBack lets time pass, and sets the wall clock back by a day.
func setBack(b *book, c *clock, d time.Duration) {
	before := b.mono()
	b.mono = func() time.Duration { return before + d }
	c.pass(d - 24*time.Hour)
}
