package agent

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/trust/visible"
)

// introduces reports whether a character begins a terminal sequence, with which the letter
// after it is removed too.
func introduces(r rune) bool { return r == 0x1B || r >= 0x90 && r <= 0x9F }

// TestNothingHiddenReachesAnAgent sends every hidden character in a body, and some in every
// other field that a peer fills, and checks all bytes that another agent gets.
func TestNothingHiddenReachesAnAgent(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	a, b := h.legacy("a"), h.legacy("b").registered("b")
	var all []string
	for r := rune(1); r <= unicode.MaxRune; r++ {
		if visible.Hidden(r) && !introduces(r) {
			all = append(all, "x"+string(r))
		}
	}
	few := strings.Join(all[len(all)-20:], "") + "\u115f\u3164\ufe00\ufe0f\u00ad\u180b\u200c\u200d\U000E0101"
	a.call("register", m{"name": "a", "display": few, "summary": few, "labels": m{"role": few}}).want("")
	sent := a.call("send", m{"to": "b", "body": strings.Join(all, ""), "subject": few, "refs": []m{{"uri": "file:///x" + few}}}).want("")
	if got := sent.num("cleaned"); got < len(all)+2*20 {
		t.Errorf("%d are counted as cleaned, of %d in the body", got, len(all))
	}
	inbox := b.call("inbox", m{}).want("")
	if inbox.len("messages") != 1 || !strings.Contains(inbox.str("messages.0.body"), strings.Repeat("x", len(all))) {
		t.Fatalf("the message did not come: %.2000s", inbox.text)
	}
	peers := b.call("list_peers", m{}).want("")
	for what, r := range map[string]*reply{"inbox": inbox, "inbox, as text": b.shown(), "list_peers": peers} {
		for i := 0; i < len(r.raw); {
			c, size := utf8.DecodeRune(r.raw[i:])
			if visible.Hidden(c) {
				t.Errorf("%s: %U in %q", what, c, r.raw[max(0, i-20):i+size])
			}
			i += size
		}
		if text := string(r.raw); strings.Contains(text, `\u00ad`) || strings.Contains(text, `\u200`) || strings.Contains(text, `\udb40`) || strings.Contains(text, `\ufe0`) {
			t.Errorf("%s: an escape stands for a hidden character: %.300s", what, text)
		}
	}
}
