package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A form is accepted only from the origin to which it is sent, with the media type
// of forms, and up to maxForm bytes.
func TestAFormComesFromTheConsoleItself(t *testing.T) {
	t.Parallel()
	v := Visit{Listener: "127.0.0.1:7866", Scheme: "http"}
	for _, c := range []struct {
		name, origin, kind string
		want               error
	}{
		{"its own page", "http://localhost:7866", "application/x-www-form-urlencoded", nil},
		{"with a charset", "http://localhost:7866", "application/x-www-form-urlencoded;charset=UTF-8", nil},
		{"no origin", "", "application/x-www-form-urlencoded", errOrigin},
		{"an anonymous frame", "null", "application/x-www-form-urlencoded", errOrigin},
		{"another port", "http://localhost:3000", "application/x-www-form-urlencoded", errOrigin},
		{"another name of this machine", "http://127.0.0.1:7866", "application/x-www-form-urlencoded", errOrigin},
		{"another scheme", "https://localhost:7866", "application/x-www-form-urlencoded", errOrigin},
		{"a name that begins so", "http://localhost:7866.evil.example", "application/x-www-form-urlencoded", errOrigin},
		{"another kind", "http://localhost:7866", "text/plain", errForm},
		{"no kind", "http://localhost:7866", "", errForm},
	} {
		r := httptest.NewRequest(http.MethodPost, "http://localhost:7866/ui/session", strings.NewReader("code=x"))
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		r.Header.Set("Content-Type", c.kind)
		f, err := form(httptest.NewRecorder(), r, v)
		if err != c.want || err == nil && f.Get("code") != "x" {
			t.Errorf("%s: %v %v", c.name, f, err)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "http://localhost:7866/ui/session", strings.NewReader("code="+strings.Repeat("x", maxForm)))
	r.Header.Set("Origin", "http://localhost:7866")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if _, err := form(httptest.NewRecorder(), r, v); err != errForm {
		t.Errorf("a form that is too large: %v", err)
	}
}

func TestTheConsoleHasOnlyLoopbackNames(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost:7866": true, "LOCALHOST:7866": true, "localhost": true, "127.0.0.1:7866": true, "127.8.9.1:7866": true, "[::1]:7866": true,
		"door.example:7866": false, "localhost.evil.example:7866": false, "192.168.1.2:7866": false, "0.0.0.0:7866": false, "": false, "2130706433:7866": false,
	} {
		if got := loopbackHost(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

func TestACookieIsTakenOnceAndSetForTheConsoleAlone(t *testing.T) {
	t.Parallel()
	v := Visit{Listener: "127.0.0.1:7866", Scheme: "http"}
	w := httptest.NewRecorder()
	setCookie(w, v, "SECRET")
	const want = "doorward-7866=SECRET; Path=/ui/; HttpOnly; SameSite=Strict"
	if got := w.Header().Get("Set-Cookie"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	w = httptest.NewRecorder()
	setCookie(w, Visit{Listener: "[::1]:443", Scheme: "https"}, "SECRET")
	if got := w.Header().Get("Set-Cookie"); !strings.Contains(got, "; Secure") {
		t.Errorf("over TLS: %q", got)
	}
	r := httptest.NewRequest(http.MethodGet, "/ui/", nil)
	r.Header.Set("Cookie", "doorward-7866=A")
	if got := cookie(r, v); got != "A" {
		t.Errorf("%q", got)
	}
	r.Header.Set("Cookie", "doorward-7866=A; doorward-7866=B")
	if got := cookie(r, v); got != "" {
		t.Errorf("of two it takes %q", got)
	}
}

func TestEveryAnswerForbidsWhatIsNotTheConsoles(t *testing.T) {
	t.Parallel()
	h := make(http.Header)
	protect(h)
	policy := h.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self';", "connect-src 'self';", "img-src 'self';",
		"frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy lacks %s: %s", want, policy)
		}
	}
	if strings.Contains(policy, "unsafe") || h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v", h)
	}
}

// TestAForgedDecisionIsABadRequest: it has the status 400, not that of a failure.
func TestAForgedDecisionIsABadRequest(t *testing.T) {
	t.Parallel()
	if status, _ := failure(fmt.Errorf("deciding: %w", ErrVerdict)); status != http.StatusBadRequest {
		t.Errorf("status %d", status)
	}
}
