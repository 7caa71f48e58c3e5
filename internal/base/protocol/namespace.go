package protocol

// maxNamespace is the greatest length of a label.
const maxNamespace = 63

// ValidNamespace reports whether s is a valid label of a project:
// ^[a-z0-9][a-z0-9._-]{0,62}$. Each label has one form, without characters that can be
// confused. A client's label is a claim: a valid label proves nothing.
func ValidNamespace(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return s != "" && len(s) <= maxNamespace
}
