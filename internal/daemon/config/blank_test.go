package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestABlankFileIsNoConfiguration: white space and a byte order mark, alone or together, are as
// empty as no byte, in a configuration and in a policy.
func TestABlankFileIsNoConfiguration(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	for _, mark := range []string{"", "\ufeff"} {
		for _, text := range []string{"", "\n", " ", "\t", "\r\n", " \n\t\n", "\u00a0"} {
			if err := os.WriteFile(path, []byte(mark+text), 0o600); err != nil {
				t.Fatal(err)
			}
			if c, problems := Load(path, Options{}); c != nil || len(problems) != 1 || problems[0].Problem != errEmpty.Error() {
				t.Errorf("configuration %q: %v", mark+text, problems)
			}
			if err := (&Config{Policy: path}).ReadPolicy(nil); !errors.Is(err, errEmpty) {
				t.Errorf("policy %q: %v", mark+text, err)
			}
		}
	}
}
