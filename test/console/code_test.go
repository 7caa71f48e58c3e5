package console

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestACodeIsEnteredOnThePage shows that the sign-in page takes a code from the keyboard, is
// accessible, and says what to do about a code that is not valid.
func TestACodeIsEnteredOnThePage(t *testing.T) {
	b, h := newBrowser(t), newHouse(t)
	for _, code := range []string{"AAAAAAAAAAAAAAAAAAAAAAAAAA", ""} {
		b.open(base(h))
		if found := violations(b, axeSource(t)); found != "" {
			t.Error(found)
		}
		want := "Run doorward ui again"
		if code == "" {
			_, code, _ = strings.Cut(h.address(), "#")
			want = "Last hour"
		}
		within(t, 20*time.Second, "the field in focus", func() bool { return b.text("document.activeElement.name ?? ''") == "code" })
		b.do(chromedp.KeyEvent(code), chromedp.KeyEvent(kb.Enter))
		within(t, 20*time.Second, want, func() bool { return strings.Contains(b.words(), want) })
	}
	if records := h.run("audit", "tail", "--json", "-n", "100"); !strings.Contains(records, `"action":"ui.sign-in"`) {
		t.Error("the sign-in is not recorded")
	}
}
