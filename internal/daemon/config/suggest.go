package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// clientOnly lists keys of a server that belong to the client whose file was copied. They are ignored with
// a warning, because ignoring them grants nothing. Sources: the configuration pages of Claude Code, Cline,
// Gemini CLI, Inspector, Kiro, Roo Code and VS Code.
var clientOnly = []string{
	"alwaysAllow", "autoApprove", "description", "dev", "gallery", "headersHelper", "oauth", "protocolEra", "timeout",
	"trust", "version", "watchPaths",
}

// elsewhere maps keys of other dialects to Doorward's. Some of them restrict a server, so they are never
// ignored silently.
var elsewhere = map[string]string{
	"arguments":            "args",
	"baseUrl":              "url",
	"bearer_token_env_var": `headers: {Authorization: "Bearer ${env:NAME}"}`,
	"cmd":                  "command",
	"disabledTools":        "doorward.tools.deny",
	"disabled_tools":       "doorward.tools.deny",
	"enabled":              "disabled, which has the opposite meaning",
	"endpoint":             "url",
	"environment":          "env",
	"envs":                 "env",
	"enabledTools":         "doorward.tools.allow",
	"enabled_tools":        "doorward.tools.allow",
	"envFile":              "env, with ${env:NAME} or ${file:/path}",
	"env_http_headers":     "headers, with ${env:NAME}",
	"env_vars":             "env, with ${env:NAME}",
	"excludeTools":         "doorward.tools.deny",
	"httpUrl":              "url, with type: http",
	"http_headers":         "headers",
	"includeTools":         "doorward.tools.allow",
	"serverUrl":            "url",
	"transport":            "type",
	"transportType":        "type",
	"uri":                  "url",
	"workdir":              "cwd",
	"workingDirectory":     "cwd",
	"working_directory":    "cwd",
}

// elsewhereTop maps top-level keys of other dialects to advice.
var elsewhereTop = map[string]string{
	"servers":         "this is VS Code's key; write mcpServers instead, with the same entries",
	"mcp_servers":     "this is Codex's key; write mcpServers instead",
	"context_servers": "this is Zed's key; write mcpServers instead",
	"mcp":             "this is opencode's key; write mcpServers instead, or run doorward import opencode",
	"extensions":      "this is Goose's key; write mcpServers instead, or run doorward import goose",
	"addr":            inListen,
	"bind":            inListen,
	"host":            inListen,
	"port":            inListen,
	"token":           "a token is never in this file; set DOORWARD_TOKEN or --token-file, or run doorward token new",
	"sandbox":         "it belongs to each server; write it under mcpServers.NAME.doorward",
	"tools":           "it belongs to each server; write it under mcpServers.NAME.doorward",
	"rules":           "rules belong in a Cedar file; name it with policy",
	"inputs":          "inputs are prompts of an editor and have no value here; use ${env:NAME}, ${file:/path} or ${keyring:service/name} instead",
}

const inListen = "an address belongs under listen; write listen: {http: [{addr: \"127.0.0.1:7866\"}]}"

// ownFile maps keys that identify a client's own state file to advice.
var ownFile = map[string]string{"numStartups": "Claude Code's own file; run doorward import claude-code"}

// clientsFile reports that the file is a client's own, instead of a problem for each of its keys.
func (d *decoder) clientsFile(root *yaml.Node) bool {
	if root.Kind != yaml.MappingNode {
		return false
	}
	for name := range pairs(root) {
		if whose := ownFile[name]; whose != "" {
			d.report.fail(name, "unknown key: this is "+whose)
			return true
		}
	}
	return false
}

// unknown reports a key that a section does not have, with the key that was probably meant.
func (d *decoder) unknown(section reflect.Type, key, name string) {
	inServer := section == serverType
	theirs := section == handlingType && slices.Contains(d.keys(serverType), name)
	ours := inServer && slices.Contains(d.keys(handlingType), name)
	switch {
	case inServer && slices.Contains(clientOnly, name):
		text := "ignored: belongs to a client"
		if ours {
			text += fmt.Sprintf("; Doorward's own is doorward.%s", name)
		}
		d.report.warn(key, text)
	case inServer && elsewhere[name] != "":
		d.report.fail(key, "unknown key; Doorward's is "+elsewhere[name])
	case ours:
		d.report.fail(key, fmt.Sprintf("unknown key; it belongs under doorward: {%s: …}", name))
	case section == reflect.TypeFor[Config]() && elsewhereTop[name] != "":
		d.report.fail(key, "unknown key: "+elsewhereTop[name])
	case theirs:
		d.report.fail(key, fmt.Sprintf("unknown key; it belongs beside doorward, not below it: write %s: in the server", name))
	case strings.HasPrefix(name, "//"), strings.HasPrefix(name, "/*"):
		d.report.fail(key, "unknown key; this seems to be a comment, which begins with # here")
	default:
		d.report.fail(key, "unknown key"+cmp.Or(suggest(name, d.keys(section)), thereAre(d.keys(section))))
	}
}

// suggest returns the candidate that was probably meant, after a semicolon; empty: none.
func suggest(got string, candidates []string) string {
	best, distance := "", 3
	got = fold(got)
	for _, c := range candidates {
		if n := editDistance(got, fold(c)); n < distance && n < len(c)/2+1 {
			best, distance = c, n
		}
	}
	if best != "" {
		return fmt.Sprintf("; did you mean %s?", best)
	}
	return ""
}

// fold removes the differences between spellings of one word.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' {
			return -1
		}
		return unicode.ToLower(r)
	}, s)
}

// editDistance counts insertions, deletions, replacements and swaps of neighbours between two texts. It may
// return 3 for any distance of 3 or more.
func editDistance(a, b string) int {
	if len(a) > len(b)+2 || len(b) > len(a)+2 {
		return 3
	}
	before, prev := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev = prev, row
	}
	return prev[len(b)]
}
