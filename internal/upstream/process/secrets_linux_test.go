package process

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestToolchainsHoldNoSecrets: a server that is granted nothing runs programs of version managers and reads no private
// file beside them, whether such a directory is in PATH or holds its program.
func TestToolchainsHoldNoSecrets(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		home := s.place(who)
		private := []string{".dotnet/corefx/cryptography/x509stores/my/a.pfx", ".linuxbrew/var/postgres/base", ".linuxbrew/etc/my.cnf"}
		for _, secret := range homeSecrets {
			private = append(private, secret+"/x")
		}
		public := []string{".dotnet/sdk/9/x.dll", ".dotnet/shared/x.dll", ".dotnet/tools/x", ".linuxbrew/bin/x", ".linuxbrew/Cellar/x/1/bin/x",
			".linuxbrew/opt/x", ".linuxbrew/etc/ca-certificates/cert.pem", ".cargo/bin/x"}
		var try []string
		for _, name := range append(private, public...) {
			try = append(try, "read "+who.file(filepath.Join(home, name), "secret"))
		}
		if out, err := exec.Command("cp", who.self(), home+"/.dotnet/dotnet").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for what, o := range map[string]order{
			"nothing": {Args: try},
			"PATH":    {Args: try, Env: []string{"PATH=" + home + "/.dotnet:" + home + "/.linuxbrew/bin:/usr/bin"}},
			"program": {Path: home + "/.dotnet/dotnet", Args: append([]string{"as-prisoner"}, try...)},
		} {
			o.Homes, o.Sandbox = []string{home}, Sandbox{Mode: Contain}
			said := s.prison(who, o)
			for i, attempt := range try {
				seen := strings.HasPrefix(said[attempt], "[secret]")
				if seen != (i >= len(private)) {
					t.Errorf("%s: %s: %s", what, attempt, said[attempt])
				}
			}
		}
	})
}
