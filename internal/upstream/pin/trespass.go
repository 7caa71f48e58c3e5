package pin

import (
	"strings"

	"github.com/doorward/doorward/internal/trust/lookalike"
)

// joint separates a server's name and an item's on the aggregate.
const joint = "__"

// trespasses reports whether a name lies in the prefix of another server, in the form of the
// aggregate's names or of its addresses, and of which one.
func trespasses(name, own string, servers []string) (server string, yes bool) {
	rest, isAddress := strings.CutPrefix(strings.ToLower(name), "doorward://")
	var first string
	if isAddress {
		first, _, yes = strings.Cut(rest, "/")
	} else {
		first, _, yes = strings.Cut(name, joint)
	}
	if !yes {
		return "", false
	}
	for _, s := range servers {
		if s != own && lookalike.Alike(lookalike.Forms(s), lookalike.Forms(first)) {
			return s, true
		}
	}
	return "", false
}
