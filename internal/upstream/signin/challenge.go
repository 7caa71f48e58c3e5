package signin

import (
	"net/http"
	"slices"
	"strings"
)

// challenge is the content of a refusal about signing in (RFC 6750, section 3; RFC 9728, section 5.1).
type challenge struct {
	any      bool // there was a challenge of any scheme
	bearer   bool // there was one of the scheme Bearer
	err      string
	metadata string // URL of the server's metadata
	scopes   []string
}

// Limits of a challenge.
const (
	maxChallenge = 8 << 10 // bytes of one header value
	maxScopes    = 64
	maxScope     = 256 // bytes of one scope
)

// parseChallenge reads the first challenge of the scheme Bearer. A malformed part counts as absent.
func parseChallenge(h http.Header) challenge {
	var c challenge
	for _, value := range h["Www-Authenticate"] {
		for scheme, params := range challenges(value) {
			c.any = true
			if !strings.EqualFold(scheme, "bearer") || c.bearer {
				continue
			}
			c.bearer = true
			c.err, c.metadata, c.scopes = params["error"], params["resource_metadata"], parseScopes(params["scope"])
		}
	}
	return c
}

// wants reports whether signing in can resolve the refusal.
func (c challenge) wants() bool { return c.bearer || !c.any }

// challenges walks the challenges of one header value (RFC 9110, section 11.6.1).
func challenges(s string) func(yield func(string, map[string]string) bool) {
	return func(yield func(string, map[string]string) bool) {
		if len(s) > maxChallenge {
			return
		}
		scheme, params := "", map[string]string{}
		for s = skipSeparators(s); s != ""; s = skipSeparators(s) {
			word, rest := cutToken(s)
			if word == "" {
				break // not a challenge: the earlier ones are kept
			}
			value, after, isParam := cutValue(rest)
			switch {
			case isParam && scheme != "":
				name := strings.ToLower(word)
				if _, twice := params[name]; !twice {
					params[name] = value
				}
				s = after
			case isParam:
				return
			default: // a new scheme, or a token68, which has no name and is ignored
				if scheme != "" && !yield(scheme, params) {
					return
				}
				scheme, params, s = word, map[string]string{}, strings.TrimLeft(rest, "=")
			}
		}
		if scheme != "" {
			yield(scheme, params)
		}
	}
}

func skipSeparators(s string) string { return strings.TrimLeft(s, " \t,") }

// cutToken cuts a token off the front (RFC 9110, section 5.6.2).
func cutToken(s string) (token, rest string) {
	n := 0
	for n < len(s) && isToken(s[n]) {
		n++
	}
	return s[:n], s[n:]
}

func isToken(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~/", c) >= 0
}

// cutValue cuts "= value" off the front. The value is a quoted string, or everything up to a comma or space: an
// unquoted URL is not allowed there, but accepted.
func cutValue(s string) (value, rest string, ok bool) {
	s, ok = strings.CutPrefix(strings.TrimLeft(s, " \t"), "=")
	s = strings.TrimLeft(s, " \t")
	switch {
	case !ok:
		return "", "", false
	case strings.HasPrefix(s, `"`):
		return cutQuoted(s[1:])
	}
	n := strings.IndexAny(s, ", \t")
	if n < 0 {
		n = len(s)
	}
	return s[:n], s[n:], strings.Trim(s[:n], "=") != ""
}

func cutQuoted(s string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:], true
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}

// parseScopes reads a list of scopes, each once, in order; invalid scopes are left out (RFC 6749, section 3.3).
func parseScopes(s string) []string { return union(strings.Fields(s)) }

// union returns each valid scope of the lists once, in their order.
func union(lists ...[]string) []string {
	var all []string
	for _, list := range lists {
		for _, s := range list {
			if isScope(s) && !slices.Contains(all, s) && len(all) < maxScopes {
				all = append(all, s)
			}
		}
	}
	return all
}

func isScope(s string) bool {
	return s != "" && len(s) <= maxScope && !strings.ContainsFunc(s, func(r rune) bool {
		return r < 0x21 || r > 0x7e || r == '"' || r == '\\'
	})
}
