package audit

import "testing"

// TestTheLastWholeCheckpointEndsTheFile: whatever follows its empty line.
func TestTheLastWholeCheckpointEndsTheFile(t *testing.T) {
	t.Parallel()
	const one, two = "origin\n1\n\n— key sig=\n\n", "origin\n2\n\n— key gis=\n\n"
	for text, want := range map[string]string{
		"": "", "\n\n": "", "origin\n": "", "origin\n1\n\n": "", "origin\n1\n\n— key sig=\n": "",
		one: one, one + two: one + two, one + "\n": one, one + "\n\n": one, one + "\n\n\n": one,
		one + two[:1]: one, one + "origin\n2\n\n": one, one + two[:len(two)-1]: one, one + two + "\n\n": one + two,
	} {
		if got := string(lastCheckpoint([]byte(text))); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
