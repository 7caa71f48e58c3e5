package onboard

import (
	"maps"
	"slices"
)

// read lists the keys of an entry that the conversion reads.
var read = []string{"type", "transport", "transportType", "command", "cmd", "args", "env", "environment", "envs", "env_vars", "env_keys", "envFile", "cwd",
	"httpUrl", "serverUrl", "url", "uri", "baseUrl", "headers", "http_headers", "env_http_headers", "bearer_token_env_var", "requestOptions",
	"includeTools", "enabledTools", "enabled_tools", "available_tools", "tools", "excludeTools", "disabledTools", "disabled_tools", "disabled", "enabled"}

// needless lists the keys that do not concern how a server runs: descriptions of it, and whether its
// client asks a person before it uses it.
var needless = []string{"name", "description", "display_name", "title", "source", "gallery", "version", "bundled", "autoApprove", "alwaysAllow", "trust"}

// remedies has what to do for a key that is not imported.
var remedies = map[string]string{
	"headersHelper":    "write its values in headers",
	"oauth":            "doorward login signs in; settings of it are in doorward.oauth",
	"auth":             "doorward login signs in; settings of it are in doorward.oauth",
	"timeout":          "doorward.timeout is the longest time of a call",
	"tool_timeout_sec": "doorward.timeout is the longest time of a call",
}

// ignored adds a note for each key of the entry that is not imported.
func (c *conversion) ignored() {
	for _, key := range slices.Sorted(maps.Keys(c.values)) {
		remedy := remedies[key]
		switch {
		case c.values[key] == nil || slices.Contains(read, key) || slices.Contains(needless, key):
		case remedy != "":
			c.note("%s is not imported: %s", key, remedy)
		default:
			c.note("%s is not imported", key)
		}
	}
	request, _ := c.values["requestOptions"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(request)) {
		if key != "headers" {
			c.note("requestOptions.%s is not imported", key)
		}
	}
}
