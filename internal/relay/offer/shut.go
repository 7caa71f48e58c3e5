package offer

import (
	"net/url"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/upstream/pin"
)

// Guard is the part of a pin.Guard or pin.View that addresses are checked with.
type Guard interface {
	Shut(k pin.Kind, name string) pin.Reason
}

// Resource returns why a resource may be neither read nor subscribed to: it is withheld, or a
// part of a skill that is.
func Resource(g Guard, uri string) pin.Reason {
	if why := g.Shut(pin.Resources, uri); why != "" {
		return why
	}
	return skill(g, uri)
}

// Withholds reports whether clients of the connection may not hear of a resource.
func (f *Offers) Withholds(uri string) bool { return f.view != nil && Resource(f.view, uri) != "" }

// shut refuses only addresses that are withheld. Addresses on no list are allowed, because a
// server may give them in its templates or in a result.
func shut(why pin.Reason) error {
	if why != "" {
		return &pin.Held{Reason: why}
	}
	return nil
}

// skillFile is the end of a skill's URI; the other files of the skill are beside and below it
// (SEP-2640).
const skillFile = "/SKILL.md"

// skill returns why the addresses of a withheld skill, whose definition has their digests, may
// not be used. A list of skills that is not approved yet shuts no resource. Decoded forms and
// forms without a query are checked too, because a server may use them to find the file.
func skill(g Guard, uri string) pin.Reason {
	place, _, _ := strings.Cut(uri, "#")
	place, _, _ = strings.Cut(place, "?")
	ways := []string{uri, place}
	if plain, err := url.PathUnescape(place); err == nil {
		ways = append(ways, plain)
	}
	for _, way := range slices.Compact(ways) {
		if why := skillAbove(g, way); why != "" {
			return why
		}
	}
	return ""
}

// skillAbove looks for a withheld skill at an address and at every address above it that a skill
// may have.
func skillAbove(g Guard, uri string) pin.Reason {
	for dir := uri; ; dir = dir[:min(len(dir), pin.MaxAddress)] {
		for _, skill := range []string{dir, dir + skillFile} {
			if why := g.Shut(pin.Skills, skill); why != "" && why != pin.Unapproved {
				return why
			}
		}
		cut := strings.LastIndexByte(dir, '/')
		if cut <= strings.Index(dir, "://")+len("://") {
			return ""
		}
		dir = dir[:cut]
	}
}
