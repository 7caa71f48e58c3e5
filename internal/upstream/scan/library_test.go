package scan

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAPatternFileIsReadWhenItIsComplete: while a file is written in steps, the rules of before
// are in force, and the new ones a moment after the last step. A file from the future is read.
func TestAPatternFileIsReadWhenItIsComplete(t *testing.T) {
	t.Parallel()
	path, clock := filepath.Join(t.TempDir(), "patterns"), time.Unix(1_000_000, 0)
	write := func(text string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write("one first\n", clock)
	s, err := NewLibrary(func(string, error) {}).Scanner(Monitor, path)
	if err != nil {
		t.Fatal(err)
	}
	want := func(when, rules string) {
		t.Helper()
		if _, r := s.Text("first second third"); counts(r.Found) != rules {
			t.Errorf("%s: %q, want %q", when, counts(r.Found), rules)
		}
	}
	s.source.next.Store(time.Now().Add(time.Hour).UnixNano()) // the test alone refreshes
	const text = "two second\nthree third\n"
	for i := 0; i <= len(text); i++ {
		clock = clock.Add(5 * time.Second)
		write(text[:i], clock)
		s.source.refresh(clock.Add(lookEvery / 2))
		want("while it is written", "one=1")
	}
	s.source.refresh(clock.Add(lookEvery))
	want("when it is complete", "two=1 three=1")
	write("one first\n", clock.Add(24*time.Hour))
	s.source.refresh(clock)
	want("a file from the future", "one=1")
}
