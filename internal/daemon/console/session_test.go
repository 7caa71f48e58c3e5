package console

import (
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/principal"
)

// clock is a time that a test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time       { return c.at }
func (c *clock) pass(d time.Duration) { c.at = c.at.Add(d) }
func newClock() *clock                { return &clock{at: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)} }
func operator() Caller {
	return Caller{Who: principal.New("uid:1000").WithLocal(), Processes: []string{"boot/1@1"}}
}
func visit(listener, program string) Visit {
	return Visit{Listener: listener, Scheme: "http", Program: program}
}

// signedIn is a book with one session, and the secret of its cookie.
func signedIn(t *testing.T) (*book, *clock, string, *session) {
	t.Helper()
	c := newClock()
	b := newBook(c.now)
	code, _ := b.issue(operator(), "127.0.0.1:7866")
	secret, s, err := b.redeem(code, visit("127.0.0.1:7866", "/usr/bin/browser"))
	if err != nil {
		t.Fatal(err)
	}
	return b, c, secret, s
}

func TestACodeBeginsOneSession(t *testing.T) {
	t.Parallel()
	b, _, secret, s := signedIn(t)
	if got := b.find(secret, visit("127.0.0.1:7866", "/usr/bin/browser")); got != s {
		t.Errorf("the cookie finds %v", got)
	}
	if got := b.find("another", visit("127.0.0.1:7866", "/usr/bin/browser")); got != nil {
		t.Errorf("a made-up cookie finds %v", got)
	}
	if got := b.find("", visit("127.0.0.1:7866", "/usr/bin/browser")); got != nil {
		t.Errorf("no cookie finds %v", got)
	}
}

// A code that is used twice ends the session that it began, and begins no other:
// it may have been stolen.
func TestACodeThatComesTwiceEndsItsSession(t *testing.T) {
	t.Parallel()
	c := newClock()
	b, v := newBook(c.now), visit("127.0.0.1:7866", "p")
	code, _ := b.issue(operator(), "127.0.0.1:7866")
	secret, s, err := b.redeem(code, v)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.redeem(code, v); err != errSpent {
		t.Errorf("the second time: %v", err)
	}
	if b.find(secret, v) != nil {
		t.Error("the session goes on")
	}
	select {
	case <-s.over:
	default:
		t.Error("the channel over of the session is not closed")
	}
}

func TestACodeIsGoodForAMinuteOnItsListener(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := newBook(c.now)
	late, until := b.issue(operator(), "127.0.0.1:7866")
	if until != c.at.Add(time.Minute) {
		t.Errorf("good until %s", until)
	}
	c.pass(time.Minute)
	if _, _, err := b.redeem(late, visit("127.0.0.1:7866", "p")); err != errCode {
		t.Errorf("after a minute: %v", err)
	}
	elsewhere, _ := b.issue(operator(), "127.0.0.1:7866")
	if _, _, err := b.redeem(elsewhere, visit("127.0.0.1:7867", "p")); err != errCode {
		t.Errorf("on another listener: %v", err)
	}
	for _, made := range []string{"", "AAAAAAAAAAAAAAAAAAAAAAAAAA"} {
		if _, _, err := b.redeem(made, visit("127.0.0.1:7866", "p")); err != errCode {
			t.Errorf("a made-up code: %v", err)
		}
	}
}

// A cookie is valid on one listener and for one program. The ports of a host share
// cookies, so another listener refuses it and keeps the session. Another program
// must have stolen it, so the session ends.
func TestACookieIsOfOneListenerAndOneProgram(t *testing.T) {
	t.Parallel()
	b, _, secret, _ := signedIn(t)
	if b.find(secret, visit("127.0.0.1:7867", "/usr/bin/browser")) != nil {
		t.Error("another listener takes the cookie")
	}
	if b.find(secret, visit("127.0.0.1:7866", "/usr/bin/browser")) == nil {
		t.Error("asking elsewhere ends the session")
	}
	if b.find(secret, visit("127.0.0.1:7866", "")) != nil {
		t.Error("a program that cannot be told uses the cookie")
	}
	if b.find(secret, visit("127.0.0.1:7866", "/usr/bin/browser")) == nil {
		t.Error("a program that cannot be told ends the session")
	}
	if b.find(secret, visit("127.0.0.1:7866", "/usr/bin/thief")) != nil {
		t.Error("another program uses the cookie")
	}
	if b.find(secret, visit("127.0.0.1:7866", "/usr/bin/browser")) != nil {
		t.Error("a stolen session goes on")
	}
}

func TestASessionEndsAfterTwelveHoursOfSilence(t *testing.T) {
	t.Parallel()
	b, c, secret, s := signedIn(t)
	v := visit("127.0.0.1:7866", "/usr/bin/browser")
	c.pass(silence)
	if b.find(secret, v) == nil {
		t.Fatal("it ends too early")
	}
	b.touch(s)
	c.pass(silence)
	if b.find(secret, v) == nil {
		t.Fatal("an act does not keep it")
	}
	c.pass(time.Second) // find alone does not keep it
	if b.find(secret, v) != nil {
		t.Error("it goes on after 12 hours")
	}
}

func TestSigningOutEndsAllSessionsAndCodes(t *testing.T) {
	t.Parallel()
	b, _, secret, _ := signedIn(t)
	code, _ := b.issue(operator(), "127.0.0.1:7866")
	if n := b.endAll(); n != 1 {
		t.Errorf("%d sessions ended", n)
	}
	if b.find(secret, visit("127.0.0.1:7866", "/usr/bin/browser")) != nil {
		t.Error("a session goes on")
	}
	if _, _, err := b.redeem(code, visit("127.0.0.1:7866", "p")); err != errCode {
		t.Errorf("a code of before: %v", err)
	}
}

func TestSessionsAndCodesAreBounded(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := newBook(c.now)
	v := visit("127.0.0.1:7866", "p")
	first := ""
	for i := range 2 * mostSessions {
		c.pass(time.Second)
		code, _ := b.issue(operator(), v.Listener)
		secret, _, err := b.redeem(code, v)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = secret
		}
	}
	if len(b.sessions) > mostSessions || len(b.codes) > mostCodes {
		t.Errorf("%d sessions, %d codes", len(b.sessions), len(b.codes))
	}
	if b.find(first, v) != nil {
		t.Error("the oldest session does not make room")
	}
}

func TestAFlashIsSaidOnce(t *testing.T) {
	t.Parallel()
	b, _, _, s := signedIn(t)
	b.say(s, "done")
	if got := b.touch(s); got != "done" {
		t.Errorf("%q", got)
	}
	if got := b.touch(s); got != "" {
		t.Errorf("again %q", got)
	}
}
