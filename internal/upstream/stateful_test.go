package upstream

import "testing"

// A command of a package that keeps state for each session is known however it is
// written, and no other is.
func TestStateful(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path string
		args []string
		want bool
	}{
		{"/usr/bin/npx", []string{"-y", "@playwright/mcp@latest", "--headless"}, true},
		{"/usr/bin/npx", []string{"chrome-devtools-mcp"}, true},
		{"/usr/bin/uvx", []string{"browser-use[cli]==0.7", "--mcp"}, true},
		{"/usr/bin/docker", []string{"run", "-i", "--rm", "mcp/playwright:1.2"}, true},
		{"/home/a/.local/bin/mcp-server-playwright", nil, true},
		{"/usr/bin/node", []string{"/srv/node_modules/@playwright/mcp/cli.js"}, true},
		{"/usr/bin/node", []string{"/srv/node_modules/puppeteer-mcp-server/dist/index.js"}, true},
		{"/usr/bin/npx", []string{"-y", "@modelcontextprotocol/server-filesystem", "/srv/playwright"}, false},
		{"/usr/bin/npx", []string{"-y", "@someone/mcp"}, false},
		{"/usr/bin/node", []string{"--inspect=mcp/playwright-notes"}, false},
	} {
		if got := Stateful(c.path, c.args); got != c.want {
			t.Errorf("%s %q: %v", c.path, c.args, got)
		}
	}
}
