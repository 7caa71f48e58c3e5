package console

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// TestAnotherOriginNeitherReadsNorActs: a page on another port of this machine, in
// the browser that is signed in, can neither read the console nor act in it.
func TestAnotherOriginNeitherReadsNorActs(t *testing.T) {
	b, h := newBrowser(t), newHouse(t)
	b.signIn(h)
	evil := newEvil(t, base(h))
	b.open(evil.at("/attack"))
	within(t, 20*time.Second, "the end of the attack", func() bool { return b.text("document.title") == "over" })
	if got := b.words(); strings.Contains(got, "read") || strings.Contains(got, "sent") {
		t.Errorf("the attack succeeds: %s", got)
	}
	b.run(`document.querySelector('form').submit(); 0`)
	within(t, 20*time.Second, "an answer to the form", func() bool { return strings.HasPrefix(b.text("location.href"), base(h)) })
	if out := h.run("agent", "inbox", "planner", "--json"); strings.Contains(out, "forged") {
		t.Errorf("a forged form was taken: %s", out)
	}
}

// TestAStolenCookieIsOfNoUse: a server on another port that gets the console's cookie
// cannot use it, and its use ends the session. A browser sends cookies to all ports of
// a host.
func TestAStolenCookieIsOfNoUse(t *testing.T) {
	b, h := newBrowser(t), newHouse(t)
	b.signIn(h)
	evil := newEvil(t, base(h))
	b.open(evil.at("/ui/steal"))
	stolen := evil.cookie()
	if stolen == "" {
		t.Fatal("the browser has kept its cookie from another port: this test shows nothing")
	}
	r, err := http.NewRequest(http.MethodGet, base(h)+"servers", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Cookie", stolen)
	answer, err := doortest.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("a stolen cookie gets %s", answer.Status)
	}
	b.open(base(h) + "servers")
	if title := b.text("document.title"); !strings.HasPrefix(title, "Sign in") {
		t.Errorf("the session goes on: %s", title)
	}
}

// TestARebindingHostGetsNothing: a foreign host name that resolves to this machine
// (DNS rebinding) is not served.
func TestARebindingHostGetsNothing(t *testing.T) {
	b, h := newBrowser(t), newHouse(t)
	b.signIn(h)
	b.open(strings.Replace(base(h), "localhost", "rebound.example", 1))
	if text := b.words(); !strings.Contains(text, "Forbidden") {
		t.Errorf("%.500s", text)
	}
}

// TestACodeIsGoodOnce: a second use of a sign-in code is refused and ends the session
// of the first, because one of the two uses is a theft.
func TestACodeIsGoodOnce(t *testing.T) {
	b, h := newBrowser(t), newHouse(t)
	address := h.address()
	b.open(address)
	within(t, 20*time.Second, "the page Now", func() bool { return strings.HasPrefix(b.text("document.title"), "Now") })
	if at := b.text("location.href"); strings.Contains(at, "#") {
		t.Errorf("the code stays in the address: %s", at)
	}
	if c := b.text("document.cookie"); c != "" {
		t.Errorf("a script can read the cookie: %s", c)
	}
	b.open("about:blank")
	b.open(address)
	within(t, 20*time.Second, "a refusal", func() bool {
		text := b.words()
		return strings.Contains(text, "not valid") || strings.Contains(text, "doorward ui")
	})
	b.open(base(h) + "servers")
	if title := b.text("document.title"); !strings.HasPrefix(title, "Sign in") {
		t.Errorf("the session goes on: %s", title)
	}
}

// TestSignOutEndsEverySession: the command ends the sessions of all browsers.
func TestSignOutEndsEverySession(t *testing.T) {
	b, h := newBrowser(t), newHouse(t)
	b.signIn(h)
	if out := h.run("ui", "--sign-out"); out != "sessions ended: 1\n" {
		t.Errorf("%q", out)
	}
	within(t, 20*time.Second, "the sign-in page", func() bool { return strings.HasPrefix(b.text("document.title"), "Sign in") })
}

// evil is a web server on another port.
type evil struct {
	*httptest.Server
	mu  sync.Mutex
	got string
}

func newEvil(t *testing.T, target string) *evil {
	t.Helper()
	e := &evil{}
	page := fmt.Sprintf(`<!doctype html><title>attack</title><body>
<form method="post" action=%[1]q><input name="to" value="planner"><input name="body" value="forged"></form>
<script>
const tries = [
  fetch(%[2]q, {credentials: 'include'}).then((r) => r.text()).then(() => 'read', () => 'no'),
  fetch(%[2]q, {credentials: 'include', mode: 'no-cors'}).then((r) => r.text()).then((t) => t ? 'read' : 'no', () => 'no'),
  fetch(%[1]q, {credentials: 'include', method: 'POST', body: new URLSearchParams({to: 'planner', body: 'forged'})}).then((r) => r.ok ? 'sent' : 'no', () => 'no'),
];
Promise.all(tries).then((all) => { document.body.append(all.join(' ')); document.title = 'over'; });
</script>`, target+"agents/send", target+"servers")
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if c := r.Header.Get("Cookie"); strings.HasPrefix(r.URL.Path, "/ui/") && c != "" {
			e.got = c
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, page)
	}))
	t.Cleanup(e.Close)
	return e
}

// at is an address of the server with the host name of the console.
func (e *evil) at(path string) string {
	_, port, _ := net.SplitHostPort(e.Listener.Addr().String())
	return "http://localhost:" + port + path
}

func (e *evil) cookie() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.got
}
