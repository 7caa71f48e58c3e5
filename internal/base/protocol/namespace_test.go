package protocol

import (
	"regexp"
	"strings"
	"testing"
)

// ValidNamespace agrees with a regular expression. Every byte is tried at the
// start of a label and inside one.
func TestALabelHasOneForm(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)
	long := strings.Repeat("a", 63)
	tried := []string{"", long, long + "a", "a\n", "a\x00", "а", "a\u200b", "../a", "a/b", "A", "-", ".", "a..", "0"}
	for c := range 256 {
		tried = append(tried, string([]byte{byte(c)}), string([]byte{'a', byte(c)}), string([]byte{'a', byte(c), 'b'}))
	}
	for _, s := range tried {
		if got := ValidNamespace(s); got != form.MatchString(s) {
			t.Errorf("%q: %v", s, got)
		}
	}
}
