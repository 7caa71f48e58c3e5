package policycheck

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/trust/policy"
)

// TestAFileThatIsNotTextIsRefused: a file that is not UTF-8 text from its first byte on is
// refused.
func TestAFileThatIsNotTextIsRefused(t *testing.T) {
	t.Parallel()
	for file, refused := range map[string]bool{"\xff": true, "\x00": true, "x\xff": true, "// \ufffd\n": false} {
		set, problems := Compile(policy.Options{File: "p.cedar", Text: []byte(file)})
		if got := len(problems) == 1 && strings.Contains(problems[0].Text, "not UTF-8"); got != refused || (set == nil) != refused {
			t.Errorf("%q: %+v", file, problems)
		}
	}
}

// TestOpenBracketsAreCounted: tooDeep gives the line of the first bracket beyond maxNesting
// open ones. Brackets in texts and comments, and closed ones, do not count.
func TestOpenBracketsAreCounted(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("(", maxNesting)
	for text, want := range map[string]int{
		deep: 0, deep + "(": 1, "\n\n" + deep + "[": 3, deep + ")" + "{": 0, deep + "]}": 0, strings.Repeat("()", 3*maxNesting): 0,
		`"` + deep + `((("`: 0, `"\"` + deep + `((("`: 0, `"a"` + deep + "(": 1, `"\\"` + deep + "(": 1,
		"// " + deep + "(((": 0, "// x\n" + deep + "(": 2, "/* " + deep + "(\n*/": 0, "/* \n */" + deep + "(": 2, "/" + deep + "(": 1, deep + "/": 0,
		`"a` + "\n" + deep + "(": 2, strings.Repeat("(/", maxNesting) + "(": 1, strings.Repeat("(* ", maxNesting) + "(": 1,
		"//\n" + deep + "(": 2, "/**/" + deep + "(": 1, "// " + deep + "(((\n" + deep: 0, "/* " + deep + "((( */" + deep: 0,
	} {
		if got := tooDeep([]byte(text)); got != want {
			t.Errorf("%.20q…%.20q: line %d, want %d", text, text[max(0, len(text)-10):], got, want)
		}
	}
}
