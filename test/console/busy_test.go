package console

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestALiveUpdateWaitsForAPersonAtWork: an update replaces no element that has the focus and no
// field whose content was changed, and takes place when the work is over.
func TestALiveUpdateWaitsForAPersonAtWork(t *testing.T) {
	b, h := newBrowser(t), newVault(t)
	h.hold(1)
	b.signIn(h)
	away := `document.activeElement.blur();`
	for _, tc := range []struct{ name, page, work, over string }{
		{"reading arguments", "decisions", `document.querySelector('#live pre').focus();`, away},
		{"at a button", "decisions", `document.querySelector('#live button').focus();`, away},
		{"a reason", "decisions", `document.querySelector('input[name=why]').value = 'no';`, `document.querySelector('input[name=why]').value = '';`},
		{"a duration", "decisions", `document.querySelector('select[name=for]').value = '1h';`, `document.querySelector('select[name=for]').value = 'once';`},
		{"in a table", "activity", `document.querySelector('#live .scroll').focus();`, away},
	} {
		b.open(base(h) + tc.page)
		b.do(chromedp.KeyEvent(kb.Tab)) // the focus that follows is one of the keyboard
		b.run(`window.updates = 0; document.body.addEventListener('live', () => { window.updates++; }); ` + tc.work + ` document.dispatchEvent(new Event('visibilitychange')); 0`)
		if n := b.number("window.updates"); n != 0 {
			t.Errorf("%s: the page is updated", tc.name)
		}
		b.run(tc.over + ` window.updates = 0; document.dispatchEvent(new Event('visibilitychange')); 0`)
		if n := b.number("window.updates"); n == 0 {
			t.Errorf("%s: the page is not updated after it", tc.name)
		}
	}
}
