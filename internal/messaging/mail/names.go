package mail

import (
	"crypto/rand"
	"regexp"
	"slices"
	"strings"
)

// namePattern admits lower-case ASCII only, so that each name has one form and none can
// be confused with another.
var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// reserved holds the names that could be mistaken for an authority.
var reserved = []string{Operator, Broker, "doorward", "system", "human", "user", "admin", "root", "all"}

// ValidName reports whether s has the form of a name, of a peer, a namespace or a label.
func ValidName(s string) bool { return namePattern.MatchString(s) }

func checkName(name string) error {
	switch {
	case !ValidName(name):
		return refuse(NameInvalid)
	case slices.Contains(reserved, name):
		return refuse(NameReserved)
	}
	return nil
}

// madeName returns a random name for a peer that asks for none.
func madeName(prefix string) string { return prefix + "-" + strings.ToLower(rand.Text()[:6]) }
