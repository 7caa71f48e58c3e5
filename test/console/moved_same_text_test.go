package console

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestAClickOnAnotherRowsButtonDecidesNothing: after an update a button can be where one with the
// same text was that acted on something else. A click that comes right after it decides nothing.
func TestAClickOnAnotherRowsButtonDecidesNothing(t *testing.T) {
	b, h := newBrowser(t), newHouse(t)
	b.signIn(h)
	for _, field := range []string{"digest", "server"} {
		b.open(base(h) + "decisions")
		b.run(fmt.Sprintf(`(async () => {
			const was = document.querySelector('#live > *');
			document.querySelector('form[action="/ui/decisions/trust"] [name=%s]').setAttribute('value', 'another');
			const updated = `+updateOf+`;
			document.dispatchEvent(new Event('visibilitychange'));
			await updated;
			document.querySelector('form[action="/ui/decisions/trust"] button').click();
		})(); 0`, field))
		within(t, 20*time.Second, "a refusal", func() bool {
			return strings.Contains(b.text("document.getElementById('passkey').textContent"), "has changed just now")
		})
	}
	if strings.Contains(h.run("audit", "tail", "--json", "-n", "400"), "trust.approve") {
		t.Error("a click on the button of another row approves")
	}
}
