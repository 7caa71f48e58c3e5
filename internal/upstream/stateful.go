package upstream

import (
	"path/filepath"
	"slices"
	"strings"
)

// stateful lists programs and packages that keep state for each session, such as a browser
// with its pages: sessions must not share their process. docs/sessions.md shows the list.
var stateful = map[string]bool{
	"@playwright/mcp":                                  true,
	"@executeautomation/playwright-mcp-server":         true,
	"@modelcontextprotocol/server-puppeteer":           true,
	"@browsermcp/mcp":                                  true,
	"@browserbasehq/mcp":                               true,
	"@browserbasehq/mcp-server-browserbase":            true,
	"@agent-infra/mcp-server-browser":                  true,
	"@hyperbrowser/mcp":                                true,
	"@modelcontextprotocol/server-sequential-thinking": true,
	"@wonderwhy-er/desktop-commander":                  true,
	"browser-use":                                      true,
	"chrome-devtools-mcp":                              true,
	"firefox-devtools-mcp":                             true,
	"mcp-playwright":                                   true,
	"mcp-server-browser-use":                           true,
	"mcp-server-playwright":                            true,
	"mcp-server-puppeteer":                             true,
	"mcp/playwright":                                   true,
	"mcp/puppeteer":                                    true,
	"next-devtools-mcp":                                true,
	"puppeteer-mcp-server":                             true,
	"selenium-mcp-server":                              true,
}

// Stateful reports whether a command is known to keep state for each session: the
// program's own name, or a package that a runner such as npx, uvx or docker is given.
func Stateful(command string, args []string) bool {
	if stateful[filepath.Base(command)] {
		return true
	}
	return slices.ContainsFunc(args, func(arg string) bool { return stateful[packageOf(arg)] })
}

// packageOf returns the name of a package without its version, tag or extras. For a path to a
// file it is the package that contains the file.
func packageOf(arg string) string {
	if _, inside, ok := strings.Cut(filepath.ToSlash(arg), "/node_modules/"); ok {
		parts := strings.SplitN(inside, "/", 3)
		if strings.HasPrefix(inside, "@") && len(parts) > 1 {
			return parts[0] + "/" + parts[1]
		}
		return parts[0]
	}
	name, scope := arg, ""
	if rest, ok := strings.CutPrefix(arg, "@"); ok {
		name, scope = rest, "@"
	}
	if at := strings.IndexAny(name, "@=[<>~"); at >= 0 {
		name = name[:at]
	}
	if at := strings.LastIndexByte(name, ':'); at >= 0 && scope == "" {
		name = name[:at]
	}
	return scope + name
}
