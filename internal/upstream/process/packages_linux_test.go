package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAScriptHasItsPackageWithoutItsSecrets: a script comes with its package also if that holds a secret of the home,
// which stays hidden. A home is no package.
func TestAScriptHasItsPackageWithoutItsSecrets(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		home := s.place(who)
		for _, name := range []string{"package.json", ".claude/package.json", ".claude/lib/x.js", ".claude/mcp/main.js", ".claude/.credentials.json", "tool/main.js", "x.js", ".docker/package.json", ".docker/mcp/main.js", ".docker/mcp/part.js"} {
			who.file(home+"/"+name, "seen")
		}
		try := []string{"read " + home + "/.docker/mcp/part.js", "read " + home + "/.claude/package.json", "read " + home + "/.claude/lib/x.js", "read " + home + "/.claude/.credentials.json", "read " + home + "/x.js", "read " + home + "/.docker/package.json"}
		for _, mode := range []string{Contain, Strict} {
			got := s.attempts(who, order{Homes: []string{home}, Sandbox: Sandbox{Mode: mode, Named: []string{home + "/.claude/mcp/main.js", home + "/tool/main.js", home + "/.docker/mcp/main.js"}}}, try...)
			s.refused(got, "[seen]", try[:3]...)
			for _, attempt := range try[3:] {
				if strings.Contains(got(attempt), "seen") {
					t.Errorf("%s: %s", mode, attempt)
				}
			}
		}
	})
}

// TestALinkedProgramHasItsPackage: a program in a bin that links to a script in a package, as npm installs it, comes
// with the package and the modules beside it, wherever the bin is. What else is there stays absent.
func TestALinkedProgramHasItsPackage(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		home := s.place(who)
		for _, prefix := range []string{home, home + "/.local", home + "/tool"} {
			modules := prefix + "/lib/node_modules"
			for _, name := range []string{"x/package.json", "x/lib/part.js", "y/index.js"} {
				who.file(modules+"/"+name, "seen")
			}
			who.file(prefix+"/lib/other", "seen")
			program := who.file(modules+"/x/dist/index.js", "#!/bin/sh\nexec "+prefix+"/bin/prisoner \"$@\"\n")
			must(0, os.MkdirAll(prefix+"/bin", 0o755))
			must(0, os.Chmod(prefix+"/bin", 0o755))
			must(0, os.Chmod(program, 0o755))
			if out, err := exec.Command("cp", who.self(), prefix+"/bin/prisoner").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			must(0, os.Symlink("../lib/node_modules/x/dist/index.js", prefix+"/bin/x"))
			who.own(prefix + "/bin")
			for _, mode := range []string{Contain, Strict} {
				try := []string{"read " + modules + "/x/lib/part.js", "read " + modules + "/y/index.js", "read " + prefix + "/lib/other"}
				said := s.prison(who, order{Homes: []string{home}, Env: []string{"HOME=" + s.place(who)}, Path: prefix + "/bin/x",
					Args: append([]string{"as-prisoner"}, try...), Sandbox: Sandbox{Mode: mode}})
				for i, attempt := range try {
					want := i < 2 || filepath.Base(prefix) == "tool"
					if got := said[attempt]; got == "" || (got == "[seen]") != want {
						t.Errorf("%s: %s: %q, want it seen: %v (%v)", mode, attempt, got, want, said)
					}
				}
			}
		}
	})
}

// TestSettingsOfToolchainsAreSeen: a server reads the settings that programs of Homebrew need, and no others.
func TestSettingsOfToolchainsAreSeen(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		home := s.place(who)
		public := []string{".linuxbrew/etc/php/8.4/php.ini", ".linuxbrew/etc/odbcinst.ini", ".linuxbrew/etc/gitconfig", ".linuxbrew/Library/Homebrew/x", ".dotnet/dnx"}
		private := []string{".linuxbrew/etc/odbc.ini", ".linuxbrew/etc/redis.conf", ".linuxbrew/var/x"}
		var try []string
		for _, name := range slices.Concat(public, private) {
			try = append(try, "read "+who.file(home+"/"+name, "seen"))
		}
		got := s.attempts(who, order{Homes: []string{home}, Sandbox: Sandbox{Mode: Contain}}, try...)
		s.refused(got, "[seen]", try[:len(public)]...)
		s.refused(got, "ENOENT", try[len(public):]...)
	})
}
