package plaintext

import (
	"regexp"
	"strings"
)

// ServerName returns the name under which a server of any name can be configured: 1 to 40 letters, digits,
// hyphens and single underscores, which leaves room for a suffix.
func ServerName(name string) string {
	name = regexp.MustCompile(`[^A-Za-z0-9_-]+`).ReplaceAllString(name, "-")
	name = regexp.MustCompile(`__+`).ReplaceAllString(name, "_")
	name = strings.Trim(name, "-_")
	name = strings.Trim(name[:min(len(name), 40)], "-_")
	if name == "" {
		return "server"
	}
	return name
}
