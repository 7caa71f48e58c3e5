package principal

// Grades. Invariant: a fact of an unknown grade neither allows nor restricts.

// Grade is the quality of the evidence for a fact. Grades are ordered: a better
// one compares greater.
type Grade uint8

// The grades. A fact that is Attested or Verified may allow. An Observed fact may only
// restrict or inform. A Claimed or Unavailable fact decides nothing; a forbid that needs
// it denies.
const (
	Unavailable Grade = iota // could not be read
	Claimed                  // the caller says it of itself: clientInfo, any header, any body
	Observed                 // the daemon saw it at one moment: executable, parents, owner of a TCP socket
	Verified                 // a token or a signature proves it
	Attested                 // the kernel says it about this connection
)

var gradeNames = [...]string{"unavailable", "claimed", "observed", "verified", "attested"}

// known maps an invalid grade to Unavailable.
func (g Grade) known() Grade {
	if int(g) >= len(gradeNames) {
		return Unavailable
	}
	return g
}

// String returns the lower-case name, as it is written in records.
func (g Grade) String() string { return gradeNames[g.known()] }

// MayAllow reports whether a fact of this grade may be the reason to allow.
func (g Grade) MayAllow() bool { return g.known() >= Verified }

// MayRestrict reports whether a fact of this grade may be the reason to refuse.
func (g Grade) MayRestrict() bool { return g.known() >= Observed }
