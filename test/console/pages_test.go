package console

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// places are the pages of the console. seen is text that the page must show.
func places(h *house) []struct{ name, path, seen string } {
	peer := peerID(h)
	return []struct{ name, path, seen string }{
		{"now", "", "odd"},
		{"activity", "activity?all=1", "<img src=x onerror="},
		{"record", "activity/record?seq=" + decided(h), "Evidence"},
		{"decisions", "decisions", "it adds things, and tells me <img src=x"},
		{"servers", "servers", "odd"},
		{"server", "servers/one?server=odd", "standard error says <img src=x"},
		{"definition", "servers/item?server=odd&item=tool:plain", "a tool that stays"},
		{"agents", "agents", "planner"},
		{"peer", "agents/one?bodies=1&peer=" + peer, "<img src=x onerror="},
		{"instructions", "instructions", "house"},
		{"document", "instructions/one?name=house&version=production", "Keep <img src=x"},
		{"policy", "policy?as=token:ci&on=odd/plain", "// <img src=x"},
		{"health", "health", "server odd"},
		{"passkeys", "passkeys", "None yet"},
	}
}

// decided is the number of the record of a decided call.
func decided(h *house) string {
	for line := range strings.Lines(h.run("audit", "tail", "--json", "-n", "400")) {
		var r struct {
			Seq          uint64
			Kind, Action string
		}
		if json.Unmarshal([]byte(line), &r) == nil && r.Kind == "decision" && r.Action == "tools/call" {
			return fmt.Sprint(r.Seq)
		}
	}
	h.t.Fatal("no call is on record")
	return ""
}

func peerID(h *house) string {
	var all []struct {
		ID string `json:"peer_id"`
	}
	if err := json.Unmarshal([]byte(h.run("agent", "peers", "--json")), &all); err != nil || len(all) == 0 {
		h.t.Fatalf("no peers: %v", err)
	}
	return all[0].ID
}

// TestEveryPageIsInertAccessibleAndFits: on every page hostile text stays text, axe
// reports nothing in light and dark, the page fits a telephone and a wide screen, and
// nothing violates its content policy.
func TestEveryPageIsInertAccessibleAndFits(t *testing.T) {
	b, h := newBrowser(t), newHouse(t)
	b.signIn(h)
	axe := axeSource(t)
	b.complaints()
	for _, p := range places(h) {
		b.open(base(h) + p.path)
		if text := b.words(); !strings.Contains(text, p.seen) {
			t.Errorf("%s does not show %q:\n%.3000s", p.name, p.seen, text)
		}
		if title := b.text("document.title"); strings.Contains(title, "pwned") {
			t.Errorf("%s: hostile text ran", p.name)
		}
		if n := b.number(`document.querySelectorAll('img, iframe, object, embed, main script, main style, [onerror]').length`); n != 0 {
			t.Errorf("%s has %v elements that a text has made", p.name, n)
		}
		if n := b.number(`[...document.documentElement.outerHTML].filter((c) => /[\u202a-\u202e\u2066-\u2069\u200b\u0000-\u0008]/.test(c)).length`); n != 0 {
			t.Errorf("%s has %v characters that cannot be seen", p.name, n)
		}
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			if found := violations(b, axe); found != "" {
				t.Errorf("%s, %s: %s", p.name, scheme, found)
			}
			screenshot(b, p.name, scheme)
		}
		b.scheme("light")
		for _, width := range []int64{360, 3840} {
			b.width(width)
			if n := b.number("document.documentElement.scrollWidth"); n > float64(width) {
				t.Errorf("%s is %v wide in a window of %d", p.name, n, width)
			}
		}
		b.width(1280)
		for _, c := range b.complaints() {
			t.Errorf("%s: %s", p.name, c)
		}
	}
}

// base is the address of the console, with the host name localhost.
func base(h *house) string {
	return "http://localhost" + h.URL[strings.LastIndex(h.URL, ":"):] + "/ui/"
}

func axeSource(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatalf("no axe-core: run test/install.sh clients: %v", err)
	}
	return string(b)
}

// violations are what axe reports of a page, in one text; empty: nothing.
func violations(b *browser, axe string) string {
	b.t.Helper()
	b.run(axe + "\n;0")
	return b.text(`axe.run().then((r) => r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.html.slice(0, 200)).join(' | ')).join('\n'))`)
}

// screenshot is kept for the documentation where CONSOLE_IMAGES names a folder.
func screenshot(b *browser, name, scheme string) {
	b.t.Helper()
	dir := os.Getenv("CONSOLE_IMAGES")
	if dir == "" || !slices.Contains([]string{"now-dark", "activity-light", "decisions-light"}, name+"-"+scheme) {
		return
	}
	image, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "console-"+name+".png"), image, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// TestAPageIsSmallAndPaintsAtOnce: everything that a page loads is below 100 KB,
// and the first paint comes within 100 ms on loopback, on a machine with time for it.
func TestAPageIsSmallAndPaintsAtOnce(t *testing.T) {
	b, h := newBrowser(t), newHouse(t)
	b.signIn(h)
	for _, p := range places(h) {
		b.open(base(h) + p.path)
		n := b.number(`[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')].reduce((n, e) => n + e.decodedBodySize, 0)`)
		if n == 0 || n > 100<<10 {
			t.Errorf("%s loads %v bytes", p.name, n)
		}
	}
	paintsWithin(b, base(h), 100)
}

// paintsWithin fails unless the page at url paints within most milliseconds, or within twice
// what a page of one word takes: on a busy machine the browser alone takes longer. Both
// are opened again for up to a minute, and the best time of each counts.
func paintsWithin(b *browser, url string, most float64) {
	b.t.Helper()
	word := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html><title>word</title><p>word</p>") // the browser waits for it
	}))
	defer word.Close()
	best, bare := paint(b, url), paint(b, word.URL)
	for end := time.Now().Add(time.Minute); best > max(most, 2*bare) && time.Now().Before(end); {
		best, bare = min(best, paint(b, url)), min(bare, paint(b, word.URL))
	}
	if best > max(most, 2*bare) {
		b.t.Errorf("the first paint comes after %.0f ms, of one word after %.0f", best, bare)
	}
	b.t.Logf("first paint after %.0f ms, of one word after %.0f", best, bare)
}

// paint opens a page and returns the milliseconds until its first paint.
func paint(b *browser, url string) float64 {
	b.t.Helper()
	b.open(url)
	within(b.t, 20*time.Second, "a paint", func() bool { return b.number(`performance.getEntriesByName('first-contentful-paint').length`) > 0 })
	return b.number(`performance.getEntriesByName('first-contentful-paint')[0].startTime`)
}

// TestNothingIsMissedBeforeAPageListens: a record that is made after a page was rendered and
// before its stream opens is notified too.
func TestNothingIsMissedBeforeAPageListens(t *testing.T) {
	b, h := newBrowser(t), newHouse(t)
	b.signIn(h)
	b.open(base(h) + "activity")
	since := b.text("document.body.dataset.live")
	h.run("call", "odd", "plain", "text=x")
	b.run(`window.told = false; new EventSource('/ui/live?after=` + since + `').addEventListener('changed', () => { window.told = true; }); 0`)
	within(t, 20*time.Second, "an event of what came before", func() bool { return b.text("String(window.told)") == "true" })
}

// TestActivityIsLive: a new call appears on the page Activity without a reload.
func TestActivityIsLive(t *testing.T) {
	b, h := newBrowser(t), newHouse(t)
	b.signIn(h)
	b.open(base(h) + "activity")
	b.run(`window.kept = true; 0`)
	h.run("call", "odd", "plain", "text=x")
	within(t, 20*time.Second, "the call in the list", func() bool {
		return strings.Contains(b.words(), "odd/plain")
	})
	if b.text("String(window.kept)") != "true" {
		t.Error("the page was loaded again")
	}
	for _, c := range b.complaints() {
		t.Error(c)
	}
}

// TestEveryLivePartIsPutInPlace: an update of a part of a page, with hostile text in it,
// replaces the part without a violation of Trusted Types, which stay enforced.
func TestEveryLivePartIsPutInPlace(t *testing.T) {
	b, h := newBrowser(t), newHouse(t)
	b.signIn(h)
	b.complaints()
	for _, p := range places(h) {
		b.open(base(h) + p.path)
		if b.text("document.body.dataset.live ?? ''") == "" {
			continue
		}
		b.run(`document.querySelector('#live > *').id = 'before'; document.body.dispatchEvent(new Event('live'))`)
		within(t, 20*time.Second, "a new part of "+p.name, func() bool { return b.text("document.getElementById('before')?.id ?? ''") == "" })
		if text := b.words(); !strings.Contains(text, p.seen) {
			t.Errorf("%s does not show %q any more:\n%.2000s", p.name, p.seen, text)
		}
		for _, c := range b.complaints() {
			t.Errorf("%s: %s", p.name, c)
		}
	}
	b.run(`window.made = ''; try { trustedTypes.defaultPolicy; document.createElement('div').innerHTML = '<img src=x>'; window.made = 'made'; } catch (e) { window.made = 'refused'; }`)
	if made := b.text("window.made"); made != "refused" {
		t.Errorf("a string became markup: %s", made)
	}
}

// TestTheConsoleWorksByKeyboard: the first tab stop skips the navigation, and the page
// Activity is reached with the keyboard alone.
func TestTheConsoleWorksByKeyboard(t *testing.T) {
	b, h := newBrowser(t), newHouse(t)
	b.signIn(h)
	focus := func() string { return b.text("document.activeElement.textContent.trim()") }
	b.do(chromedp.KeyEvent(kb.Tab))
	if at := focus(); at != "Skip to content" {
		t.Errorf("the first stop is %q", at)
	}
	b.do(chromedp.KeyEvent(kb.Enter))
	within(t, 20*time.Second, "the content in focus", func() bool { return b.text("document.activeElement.id") == "main" })
	b.open(base(h))
	for range 3 {
		b.do(chromedp.KeyEvent(kb.Tab))
	}
	if at := focus(); at != "Activity" {
		t.Errorf("the third stop is %q", at)
	}
	b.do(chromedp.KeyEvent(kb.Enter))
	within(t, 20*time.Second, "the page Activity", func() bool { return strings.HasPrefix(b.text("document.title"), "Activity") })
}

// TestActsOfTheConsoleAreDoneAndRecorded: approving a definition, restarting a server,
// holding and sending messages, and promoting a document take effect and are recorded as
// the acts of the command line are.
func TestActsOfTheConsoleAreDoneAndRecorded(t *testing.T) {
	b, h := newBrowser(t), newHouse(t)
	b.signIn(h)
	press := func(path, form, says string) {
		t.Helper()
		b.open(base(h) + path)
		b.run(`document.querySelector(` + quoted(form) + `).requestSubmit(); 0`)
		within(t, 20*time.Second, says, func() bool { return strings.Contains(b.words(), says) })
	}
	press("decisions", `form[action="/ui/decisions/trust"]`, "Approved: odd tool:odd")
	if out := h.run("trust", "odd", "--json"); !strings.Contains(out, `"withheld":[]`) {
		t.Errorf("still withheld: %s", out)
	}
	press("servers/one?server=odd", `form[action="/ui/servers/restart"]`, "it starts again at the next call")
	peer := "agents/one?peer=" + peerID(h)
	press(peer, `form[action="/ui/agents/pause"]`, "new messages to it are held")
	b.open(base(h) + peer)
	b.run(`document.querySelector('textarea[name=body]').value = 'from the console'; 0`)
	b.run(`document.querySelector('form[action="/ui/agents/send"]').requestSubmit(); 0`)
	within(t, 20*time.Second, "the message", func() bool { return strings.Contains(b.words(), "Sent to") })
	press("instructions/one?name=house", `form[action="/ui/instructions/move"]`, "promoted")
	records := h.run("audit", "tail", "--json", "-n", "400")
	for _, act := range []string{"/ui/decisions/trust", "trust.approve", "/ui/servers/restart", "agent/pause", "agent/send", "instructions/promote", "ui.sign-in"} {
		if !strings.Contains(records, act) {
			t.Errorf("there is no record of %s", act)
		}
	}
}
