package document

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
)

// View holds the documents that one reader gets of a set, at most one for each name.
type View struct {
	docs     map[string]*Document
	names    []string // sorted
	revision string   // digest
}

// View selects the documents of a caller. For each name it takes the document with the
// most specific audience among those that match the caller, that may allows, and whose
// includes are all in the view as well. Audiences are compared by principals, then
// lineage, roles, projects and environments: a full name is more specific than a pattern,
// a longer pattern more than a shorter one, and any more than none. Equal ones are
// ordered by version. A nil may allows everything; it is called with documents of the
// set, whose Tier may differ from Set.Tier.
func (s *Set) View(c Caller, may func(*Document) bool) *View {
	if may == nil {
		may = func(*Document) bool { return true }
	}
	choice := chooser{set: s, caller: &c, may: may, chosen: make(map[string]*Document)}
	v := &View{docs: make(map[string]*Document)}
	for _, name := range s.names {
		if d := choice.of(name); d != nil {
			v.docs[name] = d
			v.names = append(v.names, name)
		}
	}
	v.revision = v.digest()
	return v
}

// Whole returns the names of the documents whose texts a document's text contains:
// itself, and its includes.
func (v *View) Whole(name string) []string {
	d := v.docs[name]
	if d == nil {
		return nil
	}
	names := []string{name}
	for _, included := range d.includes {
		for _, n := range v.Whole(included) {
			if !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return names
}

// chooser selects documents and caches the choice; nil: none.
type chooser struct {
	set    *Set
	caller *Caller
	may    func(*Document) bool
	chosen map[string]*Document
}

// of returns the choice for a name. The includes of a set have no cycles.
func (c *chooser) of(name string) *Document {
	if d, known := c.chosen[name]; known {
		return d
	}
	type candidate struct {
		*Document
		rank rank
	}
	var fitting []candidate
	for _, d := range c.set.byName[name] {
		if r, ok := d.Audience.match(c.caller); ok {
			fitting = append(fitting, candidate{d, r})
		}
	}
	slices.SortStableFunc(fitting, func(a, b candidate) int { return slices.Compare(b.rank[:], a.rank[:]) })
	i := slices.IndexFunc(fitting, func(d candidate) bool { return c.may(d.Document) && c.whole(d.Document) })
	c.chosen[name] = nil
	if i >= 0 {
		c.chosen[name] = fitting[i].Document
	}
	return c.chosen[name]
}

// whole reports whether all documents that d includes can be chosen.
func (c *chooser) whole(d *Document) bool {
	return !slices.ContainsFunc(d.includes, func(name string) bool { return c.of(name) == nil })
}

// digest returns the SHA-256 over the name and version of each document, in the order of
// the names. Each value is preceded by its length as eight bytes, big-endian.
func (v *View) digest() string {
	h := sha256.New()
	for _, name := range v.names {
		for _, s := range []string{name, v.docs[name].Version} {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
			h.Write([]byte(s))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Documents returns the documents of the view by name, including the preamble if there is
// one.
func (v *View) Documents() []*Document {
	all := make([]*Document, 0, len(v.names))
	for _, name := range v.names {
		all = append(all, v.docs[name])
	}
	return all
}

// Find returns the document of a name; nil: the view has none.
func (v *View) Find(name string) *Document { return v.docs[name] }

// Revision returns 64 hex digits that identify the documents of the view.
func (v *View) Revision() string { return v.revision }

// Equal reports whether two views have the same documents.
func (v *View) Equal(o *View) bool {
	return v == o || v != nil && o != nil && v.revision == o.revision
}

// Empty reports whether the view has no document, or only a preamble.
func (v *View) Empty() bool {
	return len(v.names) == 0 || len(v.names) == 1 && v.names[0] == PreambleName
}

// Preamble returns the text in front of every text: the document of that name if the
// reader has one, otherwise DefaultPreamble.
func (v *View) Preamble() string {
	if d := v.docs[PreambleName]; d != nil {
		return v.read(d)
	}
	return DefaultPreamble
}

// Text returns the source of a document with its includes in place: placeholders are
// written as {{name}}, and \{{ for a literal {{. Parse reads it after a header with the
// same variables, and it renders the same. Render returns the text for a model. The error
// is ErrUnknown.
func (v *View) Text(name string) (string, error) {
	d := v.docs[name]
	if d == nil {
		return "", ErrUnknown
	}
	var out strings.Builder
	for p := range v.flat(d) {
		out.WriteString(p.source())
	}
	return out.String(), nil
}

// flat yields the literal texts and variables of d with its includes. A view is
// closed under includes, and its set has bounded their sum.
func (v *View) flat(d *Document) func(yield func(part) bool) {
	return func(yield func(part) bool) { v.walk(d, yield) }
}

func (v *View) walk(d *Document, yield func(part) bool) bool {
	for _, p := range d.parts {
		if p.kind == include && !v.walk(v.docs[p.text], yield) || p.kind != include && !yield(p) {
			return false
		}
	}
	return true
}

// read returns the text of a document without variables.
func (v *View) read(d *Document) string {
	var out strings.Builder
	for p := range v.flat(d) {
		out.WriteString(p.text)
	}
	return out.String()
}
