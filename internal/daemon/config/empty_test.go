package config

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAnEmptyFileIsNoConfiguration: a configuration or policy file without a byte, as a failed write
// leaves it, is refused. A comment alone stands for no settings and no rules.
func TestAnEmptyFileIsNoConfiguration(t *testing.T) {
	t.Parallel()
	for text, comment := range map[string]string{"": "", "# none\n": "// none\n"} {
		dir := t.TempDir()
		file, policy := filepath.Join(dir, "doorward.yaml"), filepath.Join(dir, "policy.cedar")
		for path, content := range map[string]string{file: text, policy: comment} {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, problems := Load(file, Options{})
		if (c == nil) != (text == "") {
			t.Errorf("%q: %v", text, problems)
		}
		c = &Config{Policy: policy}
		if err := c.ReadPolicy(nil); (err != nil) != (comment == "") {
			t.Errorf("%q: %v", comment, err)
		}
	}
}
