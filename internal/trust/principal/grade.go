package principal

// Grades. Invariant: an unknown grade decides nothing.

import "fmt"

// Grade is how good the evidence for a fact is. Grades are ordered: a better
// one compares greater.
type Grade uint8

// The grades. Attested and Verified may allow, Observed may only restrict or
// inform, Claimed and Unavailable decide nothing except that a rule which needs
// the fact refuses.
const (
	Unavailable Grade = iota // could not be read
	Claimed                  // the caller said so: clientInfo, any header, any body
	Observed                 // true when we looked: executable, parents, owner of a TCP socket
	Verified                 // a token or signature proved it
	Attested                 // the kernel said it about this connection
)

var gradeNames = [...]string{"unavailable", "claimed", "observed", "verified", "attested"}

// known maps an invalid grade to the one that decides nothing.
func (g Grade) known() Grade {
	if int(g) >= len(gradeNames) {
		return Unavailable
	}
	return g
}

// String is the lower-case name, as it is written in records.
func (g Grade) String() string { return gradeNames[g.known()] }

// MayAllow reports whether a fact of this grade may be the reason to allow.
func (g Grade) MayAllow() bool { return g.known() >= Verified }

// MayRestrict reports whether a fact of this grade may be the reason to refuse.
func (g Grade) MayRestrict() bool { return g.known() >= Observed }

// MarshalText returns the lower-case name; it never fails.
func (g Grade) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText accepts exactly the names that MarshalText returns.
func (g *Grade) UnmarshalText(b []byte) error {
	for i, name := range gradeNames {
		if string(b) == name {
			*g = Grade(i)
			return nil
		}
	}
	return fmt.Errorf("no such grade: %.32q", b)
}
