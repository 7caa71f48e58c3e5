package agent

import "testing"

func TestCleanRemovesHiddenCharacters(t *testing.T) {
	t.Parallel()
	got, n, err := Clean("a\x1b[31m\u3164b\ufe01\U000E0041\n👩\u200d💻\r\n")
	if got != "ab\n👩\u200d💻\n" || n != 5 || err != nil {
		t.Errorf("Clean: %q %d %v", got, n, err)
	}
	if got, n, err = CleanLine("a\u2028b\u115fc"); got != "a bc" || n != 1 || err != nil {
		t.Errorf("CleanLine: %q %d %v", got, n, err)
	}
}

func TestCleanRefusesInvalidUTF8AndNUL(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"a\x00b", "\xff", "a\xc3", "\xed\xa0\x80"} {
		if _, _, err := Clean(s); err == nil {
			t.Errorf("%q was taken", s)
		}
		if _, _, err := CleanLine(s); err == nil {
			t.Errorf("%q was taken for a line", s)
		}
	}
}
