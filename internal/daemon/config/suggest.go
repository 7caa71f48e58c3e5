package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// clientOnly are keys of a server that belong to the client from which a file was pasted. They are ignored with a
// warning, because ignoring them grants nothing. Sources: the configuration pages of Claude Code, Cline, Gemini CLI,
// Inspector, Kiro, Roo Code and VS Code.
var clientOnly = []string{
	"alwaysAllow", "autoApprove", "description", "dev", "gallery", "headersHelper", "oauth", "protocolEra", "timeout",
	"trust", "version", "watchPaths",
}

// elsewhere are keys of other dialects that mean something, and where Doorward has it. Some of them restrict, so
// none is left out in silence.
var elsewhere = map[string]string{
	"baseUrl":              "url",
	"bearer_token_env_var": `headers: {Authorization: "Bearer ${env:NAME}"}`,
	"disabledTools":        "doorward.tools.deny",
	"disabled_tools":       "doorward.tools.deny",
	"enabled":              "disabled",
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
}

// elsewhereTop are top keys of other dialects.
var elsewhereTop = map[string]string{
	"servers":         "this is VS Code's key; write mcpServers instead, with the same entries",
	"mcp_servers":     "this is Codex's key; write mcpServers instead",
	"context_servers": "this is Zed's key; write mcpServers instead",
	"inputs":          "inputs ask a person in an editor; use ${env:NAME}, ${file:/path} or ${keyring:service/name} instead",
}

// unknown reports a key that a section does not have, with what was probably meant.
func (d *decoder) unknown(section reflect.Type, key, name string) {
	inServer := section == serverType
	ours := inServer && slices.Contains(d.keys(handlingType), name)
	switch {
	case inServer && slices.Contains(clientOnly, name):
		text := "ignored: belongs to a client"
		if ours {
			text += fmt.Sprintf("; Doorward's own is doorward.%s", name)
		}
		d.warn(key, text)
	case inServer && elsewhere[name] != "":
		d.fail(key, "unknown key; Doorward's is "+elsewhere[name])
	case ours:
		d.fail(key, fmt.Sprintf("unknown key; it belongs under doorward: {%s: …}", name))
	case section == reflect.TypeFor[Config]() && elsewhereTop[name] != "":
		d.fail(key, "unknown key: "+elsewhereTop[name])
	default:
		d.fail(key, "unknown key"+suggest(name, d.keys(section)))
	}
}

// suggest names the candidate that is probably meant. It begins with a semicolon unless it is empty.
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

// fold takes out what spellings of one word differ in.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' {
			return -1
		}
		return unicode.ToLower(r)
	}, s)
}

// editDistance counts insertions, deletions, replacements and swaps of neighbours between two texts. Where it cannot
// be below 3 it may give 3.
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
