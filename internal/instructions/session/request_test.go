package session

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestTheNumberOfSessionsIsBounded(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		b.limits.subject, b.limits.all = 2, 3
		_, first := b.issue(ask())
		b.issue(ask())
		if _, _, err := b.Issue(t.Context(), ask(), said); !errors.Is(err, ErrTooMany) {
			t.Errorf("the third of a subject: %v", err)
		}
		r := ask()
		r.Subject = "uid:1001"
		b.issue(r)
		r.Subject = "uid:1002"
		if _, _, err := b.Issue(t.Context(), r, said); !errors.Is(err, ErrTooMany) {
			t.Errorf("the fourth in all: %v", err)
		}
		_, err := b.End(t.Context(), first.ID, ReasonEnded, said)
		must(t, err)
		b.issue(r)
		b.restart() // the number is counted again
		b.limits.subject, b.limits.all = 2, 4
		b.issue(ask())
		if _, _, err := b.Issue(t.Context(), ask(), said); !errors.Is(err, ErrTooMany) {
			t.Errorf("the third of a subject after a restart: %v", err)
		}
	})
}

func TestAClaimedClientNameIsCleaned(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		for in, want := range map[string]string{
			"":                                   "",
			"claude-code/2.1":                    "claude-code/2.1",
			"  a / 1  ":                          "a / 1",
			"a\nb\r\x00\x1b[31m\u202e\u200bc/1":  "ab[31mc/1",
			"\xff\xfea/1":                        "a/1",
			"a\u00adb\U000e0041/1\u2028":         "ab/1",
			strings.Repeat("x", 200):             strings.Repeat("x", 128),
			strings.Repeat("é", 100):             strings.Repeat("é", 64),
			strings.Repeat("x", 127) + "é":       strings.Repeat("x", 127),
			strings.Repeat("x", 127) + " \u00e9": strings.Repeat("x", 127),
		} {
			r := ask()
			r.Client = in
			if _, s := b.issue(r); s.Client != want {
				t.Errorf("%q is kept as %q", in, s.Client)
			}
		}
	})
}

func TestAnInvalidRequestMakesNoSession(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		for what, change := range map[string]func(r *Request){
			"no subject":            func(r *Request) { r.Subject = "" },
			"a subject of lines":    func(r *Request) { r.Subject = "uid:1\nuid:2" },
			"a hidden subject":      func(r *Request) { r.Subject = "uid:1\u200b" },
			"a subject not UTF-8":   func(r *Request) { r.Subject = "uid:\xff" },
			"a subject with NUL":    func(r *Request) { r.Subject = "uid:1\x00" },
			"an endless subject":    func(r *Request) { r.Subject = strings.Repeat("a", 1025) },
			"no scope":              func(r *Request) { r.Scope = nil },
			"an unknown scope":      func(r *Request) { r.Scope = []string{Structural, "admin"} },
			"a scope of two words":  func(r *Request) { r.Scope = []string{"structural behavioural"} },
			"an empty scope":        func(r *Request) { r.Scope = []string{""} },
			"a life before now":     func(r *Request) { r.TTL = -1 },
			"more than a day":       func(r *Request) { r.TTL = MaxLife + 1 },
			"a project of capitals": func(r *Request) { r.Project = "Demo" },
			"a project with a dot":  func(r *Request) { r.Project = ".demo" },
			"a project of a path":   func(r *Request) { r.Project = "../demo" },
			"a project of lines":    func(r *Request) { r.Project = "a\n" },
			"a long project":        func(r *Request) { r.Project = strings.Repeat("a", 64) },
			"a binding of words":    func(r *Request) { r.Bind = "boot/1 @2" },
			"a binding of lines":    func(r *Request) { r.Bind = "boot/1@2\n" },
			"a long binding":        func(r *Request) { r.Bind = strings.Repeat("b", 129) },
		} {
			r := ask()
			change(&r)
			if token, s, err := b.Issue(t.Context(), r, said); !errors.Is(err, ErrRequest) || token != "" || s != nil {
				t.Errorf("%s: %q, %+v, %v", what, token, s, err)
			}
		}
		same(t, "sessions", len(b.Sessions()), 0)
		scope := []string{Structural, Behavioural, Structural}
		r := ask()
		r.Scope, r.Project = scope, strings.Repeat("a", 63)
		_, s := b.issue(r)
		equal(t, "scope", s.Scope, Behavioural, Structural)
		equal(t, "the caller's own", scope, Structural, Behavioural, Structural)
		s.Scope[0] = "everything"
		equal(t, "scope after the caller's change", b.mustFind(s.ID).Scope, Behavioural, Structural)
	})
}

// The life of a session is a whole number of seconds, rounded up, and at most a day.
func TestALifeIsOfWholeSeconds(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		b.pass(700 * time.Millisecond)
		for ttl, want := range map[time.Duration]time.Duration{1: time.Second, time.Second: 2 * time.Second, MaxLife: MaxLife, 0: MaxLife, MaxLife - 1: MaxLife} {
			r := ask()
			r.TTL = ttl
			if _, s := b.issue(r); s.Expires.Sub(s.Issued) != want || s.Issued.Nanosecond() != 0 {
				t.Errorf("%s: from %s to %s", ttl, s.Issued, s.Expires)
			}
		}
	})
}
