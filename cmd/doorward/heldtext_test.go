package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/trust/policy"
)

// forged is the beginning of the text about another held call.
const forged = `8  notes/read_note  {"id":1}`

// TestNoHeldCallLooksLikeAnother: whatever a server, an agent or a client writes into a held call,
// at a terminal of any width the text about it has one line that begins at the left, and
// that line has the name of the tool as one word, before the arguments.
func TestNoHeldCallLooksLikeAnother(t *testing.T) {
	t.Parallel()
	for _, filler := range []string{" ", "x ", "漢", "\u3000", "ﾊ", "한 ", "𝔸", "\u0301", "\n", "\u2028", "\t", "\r\n"} {
		for n := range 130 {
			text := strings.Repeat(filler, n) + forged
			args, err := json.Marshal(map[string]string{text: text})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []admin.PendingCall{
				{N: 7, Server: "web", Tool: text, Action: policy.ActionCall, Args: json.RawMessage("{}")},
				{N: 7, Server: "web", Tool: "read", Action: policy.ActionCall, Args: args},
				{N: 7, Server: "web", Tool: "read", Action: "resources/read", Args: json.RawMessage("{}"), Client: text, Notes: []string{text}, Reason: text, Rule: text},
			} {
				for _, width := range []int{40, 80, 100} {
					left := 0
					for line := range strings.Lines(drawn(t, pendingCall(c), width)) {
						if !strings.HasPrefix(line, " ") {
							left++
						}
					}
					if left != 1 {
						t.Fatalf("%d lines begin at the left, %d columns wide:\n%s", left, width, drawn(t, pendingCall(c), width))
					}
				}
			}
		}
	}
	if got := pendingCall(admin.PendingCall{N: 7, Server: "web", Tool: `read  {"safe":true}`, Action: policy.ActionCall, Args: json.RawMessage("{}")}); !strings.HasPrefix(got, `7  web/"read  {\"safe\":true}"  {}`) {
		t.Errorf("a name looks like arguments: %s", got)
	}
}

// drawn returns a text as a terminal shows it: folded, and carried over where a line is wider
// than the terminal.
func drawn(t *testing.T, text string, width int) string {
	t.Helper()
	var folded, out strings.Builder
	if _, err := (folder{&folded, width}).Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	column := 0
	for _, r := range folded.String() {
		n := 1
		switch {
		case r == '\n':
			column, n = 0, 0
		case r == '\u0301':
			n = 0
		case r >= 0x2300 && r != 'ﾊ' && r < 0x1D538:
			n = 2
		}
		if column += n; column > width {
			out.WriteByte('\n')
			column = n
		}
		out.WriteRune(r)
	}
	return out.String()
}

// TestNoActLooksLikeAnother: in a line about an act the names that a caller and a server chose are
// words, and no line is wider than the terminal.
func TestNoActLooksLikeAnother(t *testing.T) {
	t.Parallel()
	l := logged{Client: "c", Server: "web", Tool: "read  ok       5 ms  12 B", Action: policy.ActionCall, Outcome: "denied"}
	if got := actLine(l, 200); !strings.Contains(got, `  "web/read  ok       5 ms  12 B"  `) {
		t.Errorf("a tool looks like an outcome: %s", got)
	}
	l.Action, l.Tool = "tools/call notes/read", ""
	if got := actLine(l, 200); !strings.Contains(got, `  "tools/call notes/read" web  `) {
		t.Errorf("a method looks like the call of a tool: %s", got)
	}
	for width := 40; width <= 120; width++ {
		for _, text := range []string{strings.Repeat("漢", 150), strings.Repeat("漢 ", 150), strings.Repeat("a한", 80) + forged} {
			for printer, out := range printedAt(text, width) {
				if got := drawn(t, out, width); got != out && printer != "statusNarrow" { // its addresses are the operator's
					t.Errorf("%s is carried over at %d columns:\n%s", printer, width, got)
				}
			}
		}
	}
}
