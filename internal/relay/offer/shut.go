package offer

import (
	"net/url"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/upstream/pin"
)

// shut refuses only addresses that are withheld. Addresses on no list are allowed, because a
// server may give them in its templates or in a result.
func shut(g *pin.View, k pin.Kind, uri string) error {
	if why := g.Shut(k, uri); why != "" {
		return &pin.Held{Reason: why}
	}
	return nil
}

// skillFile is the end of a skill's URI; the other files of the skill are beside and below it
// (SEP-2640).
const skillFile = "/SKILL.md"

// shutSkill refuses the addresses of a withheld skill, whose definition has their digests. A
// list of skills that is not approved yet shuts no resource. Decoded forms and forms without
// a query are checked too, because a server may use them to find the file.
func shutSkill(g *pin.View, uri string) error {
	place, _, _ := strings.Cut(uri, "#")
	place, _, _ = strings.Cut(place, "?")
	ways := []string{uri, place}
	if plain, err := url.PathUnescape(place); err == nil {
		ways = append(ways, plain)
	}
	for _, way := range slices.Compact(ways) {
		if err := shutBelow(g, way); err != nil {
			return err
		}
	}
	return nil
}

// shutBelow looks for a withheld skill at an address and at every address above it.
func shutBelow(g *pin.View, uri string) error {
	for dir := uri; ; {
		for _, skill := range []string{dir, dir + skillFile} {
			if why := g.Shut(pin.Skills, skill); why != "" && why != pin.Unapproved {
				return &pin.Held{Reason: why}
			}
		}
		cut := strings.LastIndexByte(dir, '/')
		if cut <= strings.Index(dir, "://")+len("://") {
			return nil
		}
		dir = dir[:cut]
	}
}
