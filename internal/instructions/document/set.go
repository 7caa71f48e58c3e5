package document

import (
	"maps"
	"slices"
	"strings"
)

// Set holds all documents that are served, with one or several variants for each name.
type Set struct {
	byName map[string][]*Document // variants in the order of their versions
	names  []string               // sorted
	facts  map[string]*facts
}

// facts holds the properties of a name that hold for each of its variants.
type facts struct {
	depth int             // of includes below
	size  int             // upper bound of its source with includes, in bytes
	needs map[string]bool // names of variables
	tier  string          // behavioural if a variant or an included document is
}

// NewSet makes a set of documents. A document that cannot be served is left out, together
// with the documents that include it; the problems state the reasons, in the order of
// files and lines. Of two documents of one name and variant the first in docs stays.
func NewSet(docs []*Document) (*Set, Problems) {
	b := builder{set: &Set{byName: make(map[string][]*Document), facts: make(map[string]*facts)}}
	b.take(docs)
	b.cycles()
	for _, name := range slices.Sorted(maps.Keys(b.set.byName)) {
		b.settle(name)
	}
	for name, variants := range b.set.byName {
		if len(variants) > 0 {
			b.set.names = append(b.set.names, name)
			b.ambiguous(variants)
		}
	}
	slices.Sort(b.set.names)
	return b.set, b.problems.sorted()
}

// With returns the set with all documents of the names in docs replaced by docs.
func (s *Set) With(docs ...*Document) (*Set, Problems) {
	all := slices.DeleteFunc(s.Documents(), func(d *Document) bool {
		return slices.ContainsFunc(docs, func(n *Document) bool { return n.Name == d.Name })
	})
	return NewSet(append(all, docs...))
}

// Documents returns the documents of the set, by name and then by version.
func (s *Set) Documents() []*Document {
	var all []*Document
	for _, name := range s.names {
		all = append(all, s.byName[name]...)
	}
	return all
}

// Tier returns the tier that a reader needs for d: behavioural if d is, or a variant of a
// document that it includes.
func (s *Set) Tier(d *Document) string {
	if d.Tier == Structural && !slices.ContainsFunc(d.includes, func(name string) bool {
		return s.facts[name] == nil || s.facts[name].tier != Structural
	}) {
		return Structural
	}
	return Behavioural
}

// builder builds a set.
type builder struct {
	set      *Set
	problems Problems
}

func (b *builder) fail(d *Document, line int, text string) {
	b.problems = append(b.problems, Problem{File: d.File, Line: max(line, 1), Text: text})
}

// take adds the documents, without duplicates and without preambles that are too long.
func (b *builder) take(docs []*Document) {
	type id struct{ name, variant string }
	first := make(map[id]*Document)
	for _, d := range docs {
		key := id{d.Name, d.Variant()}
		if before := first[key]; before != nil {
			b.fail(d, d.line, "the document "+d.Name+" is in "+before.File+" already, for the same audience; keep one")
			continue
		}
		first[key] = d
		if d.Name == PreambleName && len(d.Body) > MaxPreamble {
			b.fail(d, d.line, "a preamble must have at most 1024 bytes: it is put in front of every text")
			continue
		}
		b.set.byName[d.Name] = append(b.set.byName[d.Name], d)
	}
	for _, variants := range b.set.byName {
		slices.SortStableFunc(variants, func(x, y *Document) int { return strings.Compare(x.Version, y.Version) })
	}
}

// cycles removes every document that includes its own name, through any variants in
// between. Whether one reader could get all of them does not matter, so that validity
// does not depend on the reader.
func (b *builder) cycles() {
	bad := make(map[*Document]bool)
	endless := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(b.set.byName)) {
		if !b.endless(name, endless) {
			continue
		}
		for _, d := range b.set.byName[name] {
			if way := b.way(d, name, make(map[string]bool)); way != nil {
				bad[d] = true
				slices.Reverse(way)
				b.fail(d, d.lineOf(way[0]), "the document includes itself: "+name+" > "+strings.Join(shortened(way), " > "))
			}
		}
	}
	for name, variants := range b.set.byName {
		b.set.byName[name] = slices.DeleteFunc(variants, func(d *Document) bool { return bad[d] })
	}
}

// endless reports whether the includes of a name may form a cycle. known holds the
// results so far, true for names that are in progress. It saves calls of way for the
// names without a cycle, which are nearly all.
func (b *builder) endless(name string, known map[string]bool) bool {
	if circle, seen := known[name]; seen {
		return circle
	}
	known[name] = true
	circle := false
	for _, d := range b.set.byName[name] {
		for _, to := range d.includes {
			circle = b.endless(to, known) || circle
		}
	}
	known[name] = circle
	return circle
}

// lineOf returns the line on which a document is included.
func (d *Document) lineOf(name string) int {
	i := slices.IndexFunc(d.parts, func(p part) bool { return p.kind == include && p.text == name })
	return d.parts[i].line
}

// way returns the path of includes from d to a name, in reverse; nil: there is none.
func (b *builder) way(d *Document, to string, seen map[string]bool) []string {
	for _, name := range d.includes {
		if name == to {
			return []string{to}
		}
		if seen[name] {
			continue
		}
		seen[name] = true
		for _, next := range b.set.byName[name] {
			if rest := b.way(next, to, seen); rest != nil {
				return append(rest, name)
			}
		}
	}
	return nil
}

// shortened removes the middle of a long path.
func shortened(way []string) []string {
	const most = 10
	if len(way) <= most {
		return way
	}
	return slices.Concat(way[:most-2], []string{"…"}, way[len(way)-1:])
}

// settle computes the facts of a name and of all that it includes, and removes documents
// that cannot be served. There are no cycles any more.
func (b *builder) settle(name string) *facts {
	if f := b.set.facts[name]; f != nil {
		return f
	}
	all := &facts{needs: make(map[string]bool), tier: Structural}
	b.set.byName[name] = slices.DeleteFunc(b.set.byName[name], func(d *Document) bool {
		f := b.document(d)
		if f == nil {
			return true
		}
		all.depth, all.size = max(all.depth, f.depth), max(all.size, f.size)
		maps.Copy(all.needs, f.needs)
		if f.tier != Structural {
			all.tier = f.tier
		}
		return false
	})
	if len(b.set.byName[name]) > 0 {
		b.set.facts[name] = all
	}
	return all
}

// document returns the facts of d with its includes; nil: it cannot be served. An
// included text counts as written in place, so d must declare its variables.
func (b *builder) document(d *Document) *facts {
	f := &facts{needs: make(map[string]bool), tier: d.Tier}
	for _, p := range d.parts {
		if p.kind != include {
			f.size += len(p.source())
			if p.kind == variableOf {
				f.needs[p.text] = true
			}
			continue
		}
		below := b.settle(p.text)
		f.depth, f.size = max(f.depth, below.depth+1), f.size+below.size
		if problem := b.includes(d, p.text, f, below); problem != "" {
			b.fail(d, p.line, problem)
			return nil
		}
		maps.Copy(f.needs, below.needs)
		if below.tier != Structural {
			f.tier = below.tier
		}
	}
	return f
}

// includes returns the reason for which d must not include name; "" if it may. f holds
// the facts of d so far.
func (b *builder) includes(d *Document, name string, f, below *facts) string {
	switch {
	case len(b.set.byName[name]) == 0:
		return "the document " + name + ", which is included here, is not there or has a problem itself"
	case f.depth > MaxDepth:
		return "the document " + name + ", which is included here, has includes too: that is more than 8 deep"
	case f.size > MaxBytes:
		return "with the document " + name + ", which is included here, the text is larger than 262144 bytes"
	}
	for _, v := range slices.Sorted(maps.Keys(below.needs)) {
		if d.compiled[v] == nil {
			return "the document " + name + ", which is included here, needs the variable " + v + "; give this one a variable of that name"
		}
	}
	return ""
}

// ambiguous warns of variants between which only their versions decide.
func (b *builder) ambiguous(variants []*Document) {
	for i, d := range variants {
		for _, before := range variants[:i] {
			if rivals(&before.Audience, &d.Audience) {
				b.problems = append(b.problems, Problem{File: d.File, Line: max(d.line, 1), Warning: true,
					Text: "the document " + d.Name + " is in " + before.File + " too, for an audience that fits some callers equally well; those callers get that one"})
			}
		}
	}
}
