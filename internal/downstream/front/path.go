package front

import "strings"

// splitPath splits "/mcp/notes" into ("mcp", "notes") and "/mcp" into ("mcp", ""). For a path
// of any other form both parts may be empty.
func splitPath(path string) (face, server string) {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return "", ""
	}
	face, server, more := strings.Cut(rest, "/")
	if more && !serverName(server) {
		return "", ""
	}
	return face, server
}

func pathOf(server string) string {
	if server == "" {
		return "/mcp"
	}
	return "/mcp/" + server
}

func serverName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return s != ""
}
