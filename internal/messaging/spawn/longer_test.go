package spawn

import (
	"fmt"
	"strings"
	"testing"
)

// A result that is cut because cleaning made it longer says so, as one of a long output does.
// Text of the same size is whole.
func TestAResultThatCleaningMadeLongerSaysThatItIsCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		letter string
		size   int
		cut    bool
	}{
		{"\xfc", resultBytes/3 + 1, true}, {"\xfc", resultBytes, true}, {"\xfc", resultBytes / 3, false},
		{"a\xff", resultBytes / 2 * 2, true}, {"x", resultBytes, false}, {"\x00", resultBytes, false},
	} {
		all := strings.Repeat(c.letter, c.size/len(c.letter))
		got, _ := resultOf(t.TempDir(), all, 1<<20)
		note := fmt.Sprintf(wholeCut, len(all), 0)
		if strings.HasPrefix(got, note) != c.cut || len(got) > resultBytes {
			t.Errorf("%d bytes of %q: %d bytes, %.40q; cut: %t", len(all), c.letter, len(got), got, c.cut)
		}
	}
}
