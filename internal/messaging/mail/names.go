package mail

import (
	"crypto/rand"
	"regexp"
	"slices"
	"strings"
)

// namePattern has one form for each name: no case, no Unicode, nothing to
// confuse with it.
var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// reserved are names that somebody might take for an authority.
var reserved = []string{Operator, Broker, "doorward", "system", "human", "user", "admin", "root", "all"}

// ValidName reports whether s is the form of a name, be it of a peer, of a
// namespace or of a label.
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

// madeName is a name for who gave none.
func madeName(prefix string) string { return prefix + "-" + strings.ToLower(rand.Text()[:6]) }
