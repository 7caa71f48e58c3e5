package upstream

import "testing"

// TestTheFaultOfAProcessIsItsError: the line that names the error is shown first of what a
// process printed before it ended, and not the code that threw it.
func TestTheFaultOfAProcessIsItsError(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"Node.js", []string{"/srv/index.js:7", "if (!key) throw new Error('Error: cannot start without a key')", "          ^", "", "Error: API_KEY is missing",
			"    at Object.<anonymous> (/srv/index.js:7:10)", "    at Module._compile (node:internal/modules/cjs/loader:1554:14)", "Node.js v20.20.2"}, "Error: API_KEY is missing"},
		{"a module of Node.js", []string{"node:internal/modules/esm/resolve:275", "    throw new ERR_MODULE_NOT_FOUND(cannot )", "Error [ERR_MODULE_NOT_FOUND]: Cannot find module '/srv/x.js'"},
			"Error [ERR_MODULE_NOT_FOUND]: Cannot find module '/srv/x.js'"},
		{"Python", []string{"Traceback (most recent call last):", `  File "/srv/x.py", line 3, in <module>`, `    raise exception("cannot go on")`, "pkg.errors.ConfigError: no key", "TypeError: second"},
			"pkg.errors.ConfigError: no key"},
		{"a plain line", []string{"starting", "fatal: no key", "cannot go on"}, "fatal: no key"},
		{"a sentence", []string{"permission denied", "the Error: not a name"}, "permission denied"},
		{"none", []string{"starting"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s diagnostics
			s.begin()
			for _, line := range tc.lines {
				s.add(line)
			}
			if s.fault != tc.want {
				t.Errorf("fault %q, want %q", s.fault, tc.want)
			}
		})
	}
}
