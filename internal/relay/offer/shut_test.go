package offer

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/upstream/pin"
)

// withheldSkill is a Guard that withholds one skill.
type withheldSkill string

func (g withheldSkill) Shut(k pin.Kind, name string) pin.Reason {
	if k == pin.Skills && name == string(g) {
		return pin.Changed
	}
	return ""
}

// The files of a withheld skill are found at any depth below it, also by an address of many MiB, in
// a time that does not grow with its length. A skill has no address above 8 KiB.
func TestTheFilesOfAWithheldSkillAreFoundBelowLongAddresses(t *testing.T) {
	t.Parallel()
	for _, skill := range []string{"skill://a/SKILL.md", "skill://a/" + strings.Repeat("b/", 4000) + "SKILL.md"} {
		dir := strings.TrimSuffix(skill, "SKILL.md")
		for _, rest := range []string{"", "x", "x/y#z", strings.Repeat("x/", 4<<20), strings.Repeat("/", 4<<20)} {
			if Resource(withheldSkill(skill), dir+rest) == "" {
				t.Errorf("%.20s…%.20s is not withheld", dir, rest)
			}
			if why := Resource(withheldSkill(skill), "skill://other/"+rest); why != "" {
				t.Errorf("skill://other/%.20s is withheld: %s", rest, why)
			}
		}
	}
}
