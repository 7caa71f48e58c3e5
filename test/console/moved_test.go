package console

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// updateOf is a script that waits until the part was is replaced. A frame may come too late on a slow
// machine for a click right after the update.
const updateOf = `new Promise((done) => new MutationObserver((_, o) => {
				if (was.isConnected) return;
				o.disconnect();
				done();
			}).observe(document.body, {childList: true, subtree: true}))`

// TestAClickRightAfterAPageMovedDecidesNothing: a server chooses when its definitions change, so it
// can put its own button where the pointer already is. A click that comes right after an update
// which moved the button decides nothing and says so; a later one decides.
func TestAClickRightAfterAPageMovedDecidesNothing(t *testing.T) {
	b, h := newBrowser(t), newHouse(t)
	b.signIn(h)
	b.open(base(h) + "decisions")
	const button = `document.querySelector('form[action="/ui/decisions/trust"] button')`
	approved := func() bool { return strings.Contains(h.run("audit", "tail", "--json", "-n", "400"), "trust.approve") }
	click := func(above, wait string) {
		t.Helper()
		b.run(fmt.Sprintf(`window.updated = (async () => {
			document.getElementById('passkey').textContent = '';
			const was = document.querySelector('#live > *');
			%s
			const updated = `+updateOf+`;
			document.dispatchEvent(new Event('visibilitychange'));
			await updated;
			%s
			%s.click();
			return true;
		})(); 0`, above, wait, button))
	}
	click(`was.style.paddingTop = '300px';`, "")
	within(t, 20*time.Second, "a refusal", func() bool {
		return strings.Contains(b.text("document.getElementById('passkey').textContent"), "has changed just now")
	})
	if approved() {
		t.Fatal("a click on a button that moved approves")
	}
	later := func() { click(`was.style.paddingTop = '300px';`, `await new Promise((r) => setTimeout(r, 800));`) }
	later()
	within(t, 30*time.Second, "the approval", func() bool {
		if strings.Contains(b.text("document.getElementById('passkey')?.textContent ?? ''"), "has changed just now") { // by another update
			later()
		}
		return approved()
	})
}

// TestAClickAfterAnUpdateThatMovesNothingDecides: a page that is updated all the time can be used.
func TestAClickAfterAnUpdateThatMovesNothingDecides(t *testing.T) {
	b, h := newBrowser(t), newHouse(t)
	b.signIn(h)
	b.open(base(h) + "decisions")
	b.run(`(async () => {
		const was = document.querySelector('#live > *');
		document.dispatchEvent(new Event('visibilitychange'));
		while (was.isConnected) await new Promise(requestAnimationFrame);
		document.querySelector('form[action="/ui/decisions/trust"] button').click();
	})(); 0`)
	within(t, 20*time.Second, "the approval", func() bool { return strings.Contains(b.words(), "Approved: odd") })
}
