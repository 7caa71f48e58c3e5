package secret

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestShownArguments: Shown keeps ordinary arguments and replaces what looks like a
// secret.
func TestShownArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want []string }{
		{[]string{"-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "/home/ann/Documents"}, []string{"-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "/home/ann/Documents"}},
		{[]string{"--api-key", "k1", "--token=k2", "--port", "80", "ghp_k3"}, []string{"--api-key", "[secret]", "--token=[secret]", "--port", "80", "[secret]"}},
		{[]string{"--api-key", "${env:KEY}", "mcp-remote", "https://example.com/mcp"}, []string{"--api-key", "${env:KEY}", "mcp-remote", "https://example.com/mcp"}},
		{[]string{"--header", "Authorization: Bearer k1", "-e", "API_KEY=k2", "-e", "LOG=debug"}, []string{"--header", "Authorization: Bearer [secret]", "-e", "API_KEY=[secret]", "-e", "LOG=debug"}},
		{[]string{"postgresql://u:p@db/x", "https://example.com/mcp?key=k", `{"apiKey":"k"}`}, []string{"[secret]", "https://example.com/mcp?[secret]", "[secret]"}},
		{[]string{"--db=/tmp/x.db", "--name=a=b", "-v", "--"}, []string{"--db=/tmp/x.db", "--name=a=b", "-v", "--"}},
		{[]string{"serve", "0123456789abcdef0123456789abcdef", "mcp-server-sqlite-2025-12-01-extra"}, []string{"serve", "[secret]", "mcp-server-sqlite-2025-12-01-extra"}},
		{[]string{}, []string{}},
	} {
		if diff := cmp.Diff(c.want, Shown(c.args)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.args, diff)
		}
	}
}

// TestNoSecretIsShown: Shown hides a secret in each of its usual places in arguments, and
// keeps the first argument.
func TestNoSecretIsShown(t *testing.T) {
	t.Parallel()
	for range 200 {
		text := strings.ToLower(rand.Text()) // looks like a word, but for its place
		for _, place := range []string{"--token %", "--api-key=%", "--header|Authorization: Bearer %", "--header|X-Api-Key: %", "-e|GITHUB_TOKEN=%", "--password|%",
			"https://user:%@example.com/x", "https://example.com/?k=%", `{"token": "%"}`, "--auth %", "sk-%", "--dsn=postgres://u:%@h/d"} {
			args := strings.Split(strings.ReplaceAll(place, " %", "|%"), "|")
			if strings.Contains(place, "Bearer") || strings.Contains(place, ": ") {
				args = strings.Split(place, "|")
			}
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "%", text)
			}
			got := strings.Join(Shown(append([]string{"run"}, args...)), " ")
			if strings.Contains(got, text) || !strings.HasPrefix(got, "run ") || !strings.Contains(got, hidden) {
				t.Errorf("%s: %s", place, got)
			}
		}
	}
}
