package process

import (
	"path/filepath"
	"testing"
)

// TestGlobalSettingsOfNpmHoldNoTokens: the settings of npm's prefixes are as those in the home: a server reads them
// without credentials, or not at all if none are left, also if the whole home is granted.
func TestGlobalSettingsOfNpmHoldNoTokens(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		home := s.place(who)
		const settings = "registry=https://npm.example.com/\n//npm.example.com/:_authToken=canary\n"
		inManagers := []string{".nvm/versions/node/v22.1.0", ".volta/tools/image/node/22.1.0", ".asdf/installs/nodejs/22.1.0",
			".local/share/fnm/node-versions/v22/installation", ".local/share/mise/installs/node/22", ".nodenv/versions/22", ".n", "miniconda3/envs/web"}
		for _, prefix := range append(inManagers, ".npm-global", ".local") {
			who.file(filepath.Join(home, prefix, "etc/npmrc"), settings)
		}
		who.file(home+"/.npm-global/lib/tool.js", "tool")
		who.file(home+"/.nvm/versions/node/v18/etc/npmrc", "_authToken=canary\n")
		read := func(prefix string) string { return "read " + filepath.Join(home, prefix, "etc/npmrc") }
		const public = `[registry=https://npm.example.com/\n]`
		for what, box := range map[string]Sandbox{"nothing": {Mode: Contain}, "the home": {Mode: Contain, Read: []string{home}}} {
			want := map[string]string{read(".nvm/versions/node/v18"): "[]", read(".npm-global"): "ENOENT", read(".local"): "ENOENT",
				"read " + home + "/.npm-global/lib/tool.js": "[tool]"}
			if what == "the home" {
				want[read(".npm-global")], want[read(".local")] = public, public
			}
			for _, prefix := range inManagers {
				want[read(prefix)] = public
			}
			var try []string
			for attempt := range want {
				try = append(try, attempt)
			}
			said := s.prison(who, order{Homes: []string{home}, Args: try, Sandbox: box})
			for attempt, outcome := range want {
				if said[attempt] != outcome {
					t.Errorf("%s: %s: %s, want %s", what, attempt, said[attempt], outcome)
				}
			}
		}
	})
}
