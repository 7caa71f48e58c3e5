package plaintext

import (
	"strconv"
	"testing"
)

// TestAWordIsOneColumn: Word leaves a plain name as it is. Anything that could be taken for two
// texts, or for a quoted one, is quoted, and different texts have different words.
func TestAWordIsOneColumn(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for in, want := range map[string]string{
		"read": "read", "file:///a%20b": "file:///a%20b", "lire_é漢": "lire_é漢", "": `""`, `"`: `"\""`,
		`read  {"path":"/safe"}`: `"read  {\"path\":\"/safe\"}"`, `"read"`: `"\"read\""`, "a b": `"a b"`, "a\u00a0b": `"a\u00a0b"`,
		"a\nb": `"a\nb"`, "a\x1b[2J": `"a\x1b[2J"`, "a\u202eb": `"a\u202eb"`,
	} {
		got := Word(in)
		if got != want {
			t.Errorf("Word(%q) = %s, want %s", in, got, want)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q are both %s", in, other, got)
		}
		seen[got] = in
		if back, err := strconv.Unquote(got); got[0] == '"' && (err != nil || back != in) {
			t.Errorf("%s is %q, %v", got, back, err)
		}
	}
}
