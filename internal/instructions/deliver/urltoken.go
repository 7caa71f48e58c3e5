package deliver

import (
	"net/url"
	"strings"

	"github.com/doorward/doorward/internal/instructions/session"
)

// A token in a URL ends up in histories, logs and process lists. A request with one is
// refused, and its sender is told to revoke the token. The search is lenient, unlike
// every other check here: any case, any depth of escaping up to unescapings, any
// malformed query. A false positive can only be a query that no route takes.

// tokenName reports whether a parameter is one in which clients have sent tokens,
// regardless of case and separators.
func tokenName(name string) bool {
	switch strings.NewReplacer("_", "", "-", "", ".", "", " ", "", "[", "", "]", "").Replace(strings.ToLower(name)) {
	case "token", "accesstoken", "sessiontoken", "authtoken", "bearertoken", "idtoken", "refreshtoken", "apikey",
		"authorization", "auth", "bearer", "session", "doorwardsession", "doorwardtoken":
		return true
	}
	return false
}

// unescapings is how often escapes are undone in the search for a token.
const unescapings = 3

func queryBearsToken(raw string) bool {
	for range unescapings + 1 {
		for part := range strings.FieldsFuncSeq(raw, func(c rune) bool { return c == '&' || c == ';' || c == '?' || c == '#' }) {
			name, value, _ := strings.Cut(part, "=")
			if tokenName(name) || looksLikeToken(name) || looksLikeToken(value) {
				return true
			}
		}
		next := unescaped(raw)
		if next == raw {
			return false
		}
		raw = next
	}
	return false
}

// looksLikeToken recognises the tokens of Doorward, and access tokens, by their prefix; a
// session token also in the middle of a value, because its prefix is unmistakable.
func looksLikeToken(value string) bool {
	value = strings.Trim(value, " \t\"'")
	if scheme, rest, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "bearer") {
		value = strings.TrimLeft(rest, " ")
	}
	small := strings.ToLower(value)
	return strings.Contains(small, session.Prefix) || strings.HasPrefix(small, "dw_") || strings.HasPrefix(small, spawnToken) ||
		strings.HasPrefix(value, "eyJ") && strings.Count(value, ".") == 2
}

// pathBearsToken looks for a session token in a path.
func pathBearsToken(path string) bool {
	for range unescapings + 1 {
		if strings.Contains(strings.ToLower(path), session.Prefix) {
			return true
		}
		path = unescaped(path)
	}
	return false
}

// unescaped undoes the valid escapes of s and leaves the others.
func unescaped(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := url.PathUnescape(s[i : i+3]); err == nil {
				b.WriteString(c)
				i += 2
				continue
			}
		}
		if s[i] == '+' {
			b.WriteByte(' ')
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
