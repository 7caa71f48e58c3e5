package console

import (
	"strings"
	"testing"
)

// TestACallIsApprovedOnlyWhereAllOfItIsShown: a held call whose arguments or whose name do not fit
// on the page is cut, and so has no button that approves.
func TestACallIsApprovedOnlyWhereAllOfItIsShown(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		call Held
		cut  bool
	}{
		{Held{Tool: "t", Args: strings.Repeat("x", mostBytes-1)}, false},
		{Held{Tool: "t", Args: strings.Repeat("x", mostBytes)}, true},
		{Held{Tool: strings.Repeat("x", mostBytes), Args: ""}, false},
		{Held{Tool: strings.Repeat("x", mostBytes), Args: "{}"}, true},
	} {
		if got := fitting([]Held{tc.call, {}}); got[0].Cut() != tc.cut || len(got) != map[bool]int{false: 2, true: 1}[tc.cut] {
			t.Errorf("a name of %d bytes with arguments of %d: cut %v, %d shown", len(tc.call.Tool), len(tc.call.Args), got[0].Cut(), len(got))
		}
	}
}

// TestPiecesAreTheText: the pieces of a JSON text together are the text, also of one that was cut,
// and a string that is not ASCII is a piece of its own.
func TestPiecesAreTheText(t *testing.T) {
	t.Parallel()
	for text, alone := range map[string]int{
		``: 0, `{}`: 0, `{"a":"b\"c\\"}`: 0, `["א",5,100,"ב"]`: 2, `{"א\"":"\\","ב":1}`: 2, `["א`: 0, "é": 0, `"a","é\u202e"`: 1,
	} {
		var whole strings.Builder
		n := 0
		for _, p := range pieces(text) {
			whole.WriteString(p.Text)
			if p.Alone {
				n++
			}
		}
		if whole.String() != text || n != alone {
			t.Errorf("%s: %s, %d strings alone, want %d", text, whole.String(), n, alone)
		}
	}
}
