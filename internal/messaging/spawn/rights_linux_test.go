package spawn

import (
	"testing"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
)

// A requested right that contains a separator of a scope is refused: policy would read it
// as several rights, of which the launcher has only the first.
func TestOneRightIsOneWord(t *testing.T) {
	t.Parallel()
	l := &Launcher{Name: "l", Rights: []string{"server:notes", "tool:docs/read", "instructions"}}
	others := []string{"server:other", "tool:other/x", "admin", "approve"}
	parents := []*principal.Principal{principal.New("uid:0"), scoped("token:t", "agent,server:notes,tool:docs/read")}
	for _, base := range []string{"tool:notes/add", "server:notes", "tool:docs/read", "tool:notes/", "agent"} {
		for _, other := range others {
			for _, sep := range []string{",", ", ", " ,", " ", "\t", "\n", "\r\n", "\u00a0", "\u2028", ",,"} {
				for _, text := range []string{base + sep + other, other + sep + base, base + sep + base + sep + other} {
					for _, parent := range parents {
						refusesMore(t, l, parent, text)
					}
				}
			}
		}
	}
}

func refusesMore(t *testing.T, l *Launcher, parent *principal.Principal, text string) {
	t.Helper()
	r := Request{Rights: []string{text}, RightsGiven: true}
	if got, err := r.rights(l, parent); code(err) != mail.RightsExceedParent {
		t.Errorf("%q for %s: %q, %v; want %s", text, parent.Name(), got, err, mail.RightsExceedParent)
	}
}
