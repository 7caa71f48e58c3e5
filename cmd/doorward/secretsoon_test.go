package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A secret that can be read soon after it could not is noticed, although that happened before the
// rest of the configuration was in force: a start and a reload can take long.
func TestASecretThatCanBeReadSoonAfterwardsIsNoticed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode, later os.FileMode // 0: there is no file
		due         bool
	}{"the mode changes": {0o604, 0o600, true}, "it is created": {0, 0o600, true}, "it stays absent": {0, 0, false}, "it stays readable by all": {0o604, 0o604, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, p := filepath.Join(t.TempDir(), "secret"), newPins()
			set := func(mode os.FileMode) {
				t.Helper()
				if mode == 0 {
					return
				}
				f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if err := f.Chmod(mode); err != nil {
					t.Fatal(err)
				}
			}
			set(c.mode)
			if _, err := p.secret(path); err == nil {
				t.Fatal("the secret can be read")
			}
			set(c.later)
			seen := p.stamps([]string{path})
			l := looks{read: seen, last: seen}
			l.due(p.stats.of([]string{path}))
			if got := l.due(p.stats.of([]string{path})); got != c.due {
				t.Errorf("due is %v", got)
			}
		})
	}
}
