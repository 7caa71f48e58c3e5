package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Files lists every path that the configuration names for Doorward, and none that it grants to a server.
func TestFilesAreDoorwardsOwn(t *testing.T) {
	t.Parallel()
	c := good(t, "doorward.yaml", `listen: {http: [{addr: "127.0.0.1:0", tls: {cert: c.pem, key: k.pem}}]}
policy: p.cedar
instructions: {dir: guidance}
scan: {patterns: scan.txt}
mcpServers:
  a: {command: npx, cwd: work, env: {K: "${file:/run/secrets/key}"}, doorward: {read: [data, kubernetes], write: [out], scan_patterns: a.txt}}
`)
	want := []string{"/etc/doorward/a.txt", "/etc/doorward/c.pem", "/etc/doorward/guidance", "/etc/doorward/k.pem", "/etc/doorward/p.cedar",
		"/etc/doorward/p.tests.yaml", "/etc/doorward/scan.txt", "/run/secrets/key"}
	if diff := cmp.Diff(want, c.Files()); diff != "" {
		t.Error(diff)
	}
}
