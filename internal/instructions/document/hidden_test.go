package document

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/trust/visible"
)

// TestNothingHiddenStandsInInstructions: each hidden character is refused in each
// part of a document, and removed from a value.
func TestNothingHiddenStandsInInstructions(t *testing.T) {
	t.Parallel()
	const head = "---\nname: a\nclass: template\nvariables: {v: {default: x}}\n"
	d, err := Parse("a.md", []byte(head+"---\nof {{v}}.\n"))
	if err != nil {
		t.Fatal(err)
	}
	v := View{docs: map[string]*Document{"a": d}}
	for r := rune(1); r <= unicode.MaxRune; r++ {
		if !visible.Hidden(r) {
			continue
		}
		c := string(r)
		for what, doc := range map[string]string{
			"body": head + "---\nx" + c + "y", "comment": head + "# x" + c + "y\n---\nz", "description": head + "description: x" + c + "y\n---\nz",
			"default": strings.Replace(head, "default: x", "default: x"+c+"y", 1) + "---\nz",
			"escape":  head + "description: \"x" + yamlEscape(r) + "y\"\n---\nz",
		} {
			if _, err := Parse("a.md", []byte(doc)); err == nil {
				t.Errorf("%U may stand in a %s", r, what)
			}
		}
		vars, err := json.Marshal(map[string]string{"v": "x" + c + "y"})
		if err != nil {
			t.Fatal(err)
		}
		if text, err := v.Render("a", vars); err != nil || plaintext.FirstHidden(text) >= 0 {
			t.Errorf("%U as a value: %q, %v", r, text, err)
		}
	}
}

func yamlEscape(r rune) string {
	const hex = "0123456789abcdef"
	out := []byte(`\U`)
	for shift := 28; shift >= 0; shift -= 4 {
		out = append(out, hex[r>>shift&15])
	}
	return string(out)
}
