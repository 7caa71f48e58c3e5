// Package principal defines the caller: one canonical name, and facts about the
// caller, each with the grade of the evidence behind it.
//
// The code that authenticates a connection or a request makes a Principal;
// everything after that reads it.
//
// Invariants: a Principal never changes after New, so goroutines may share it. A
// Principal whose name is not canonical is not Valid and has no name, so code
// that forgets the check grants no rights. A grade is set by the code that
// examined the fact, never by the caller, and several facts of a low grade never
// make a higher one.
package principal

import (
	"slices"
	"strconv"
)

// Fact is one property of a caller, for instance {"exe", "/usr/bin/node",
// Observed}. Name is a constant of Doorward. Value may come from the caller; Grade is the
// quality of the evidence for it.
type Fact struct {
	Name  string
	Value string
	Grade Grade
}

// Principal is an authenticated caller. The nil pointer and the zero value are no
// caller: not Valid, not Local, without name and facts.
type Principal struct {
	name     string
	key      string
	identity string
	facts    []Fact
	json     []byte
	local    bool
	witness  Witness
	parent   *Principal
}

// Witness reports whether the program that a principal's observed facts describe
// still runs. Code that keeps it beyond the connection calls Retain, and Release
// once for each Retain.
type Witness interface {
	Holds() bool
	Retain()
	Release()
}

// New makes a principal. A name that Parse refuses yields a principal that is not Valid,
// with its facts kept for the record. The value of a fact graded Unavailable is dropped.
func New(name string, facts ...Fact) *Principal {
	p := &Principal{facts: make([]Fact, len(facts))}
	if _, _, err := Parse(name); err == nil {
		p.name = name
	}
	for i, f := range facts {
		f.Grade = f.Grade.known()
		if f.Grade == Unavailable {
			f.Value = ""
		}
		p.facts[i] = f
	}
	p.json = appendFacts(nil, p.facts)
	p.key = p.ownerKey()
	p.identity = string(p.appendIdentity(nil))
	return p
}

// orNone returns p, or the zero value for the nil pointer.
func (p *Principal) orNone() *Principal {
	if p == nil {
		return new(Principal)
	}
	return p
}

// Name returns the canonical name, such as "uid:1000"; empty when not Valid.
func (p *Principal) Name() string { return p.orNone().name }

// Valid reports whether the principal is a caller. Nothing may be allowed to,
// stored for, or bound to a principal that is not Valid.
func (p *Principal) Valid() bool { return p.orNone().name != "" }

// Key returns the text by which the owner of a session, a subscription or a sealed handle
// is compared. It is empty when not Valid, so Valid must be checked first. On the Unix
// socket it is the user and the process instance. Pools, limits and counts use Name
// instead, since the processes of one user share them.
func (p *Principal) Key() string { return p.orNone().key }

// ownerKey returns the key. No name contains a NUL, so the key of one principal never
// equals the name of another.
func (p *Principal) ownerKey() string {
	instance, ok := p.Fact(FactInstance)
	if p.name == "" || !ok || instance.Value == "" || instance.Grade < Observed {
		return p.name
	}
	return p.name + "\x00" + instance.Value
}

// Identity returns everything that a decision can depend on, in one unambiguous
// text: name, Local, all facts in full, and the same of every ancestor. No rule can
// distinguish principals with equal identities.
func (p *Principal) Identity() string { return p.orNone().identity }

func (p *Principal) appendIdentity(dst []byte) []byte {
	dst = appendCounted(dst, p.name)
	dst = strconv.AppendBool(dst, p.local)
	for _, f := range p.facts {
		dst = appendCounted(dst, f.Name)
		dst = appendCounted(dst, f.Value)
		dst = append(dst, byte(f.Grade))
	}
	if p.parent != nil {
		dst = appendCounted(append(dst, '^'), p.parent.identity)
	}
	return dst
}

// appendCounted appends the length and the text, so that different lists of texts never
// give the same result.
func appendCounted(dst []byte, s string) []byte {
	return append(append(strconv.AppendInt(dst, int64(len(s)), 10), ':'), s...)
}

// FactInstance names the fact of the process instance on the Unix socket.
const FactInstance = "instance"

// Facts returns a copy of the facts in the order they were given to New.
func (p *Principal) Facts() []Fact { return slices.Clone(p.orNone().facts) }

// Fact returns the fact of that name with the best grade, so that a claim of the caller
// cannot hide an attested fact; of equal grades the first.
func (p *Principal) Fact(name string) (best Fact, found bool) {
	for _, f := range p.orNone().facts {
		if f.Name == name && (!found || f.Grade > best.Grade) {
			best, found = f, true
		}
	}
	return best, found
}

// FactsJSON returns the JSON array [{"name":…,"value":…,"grade":…}, …] of the facts,
// "[]" when there are none. It is built once and shared, so it must not be modified.
// Text in it is safe to show on a terminal and cut at MaxFactText bytes.
func (p *Principal) FactsJSON() []byte {
	if facts := p.orNone().json; facts != nil {
		return facts
	}
	return []byte("[]")
}

// Local reports whether the caller is connected to the Unix socket or a loopback listener.
// The listener determines this, never a header.
func (p *Principal) Local() bool { return p.orNone().local }

// with returns a changed copy of p, and nil for the nil pointer.
func (p *Principal) with(change func(*Principal)) *Principal {
	if p == nil {
		return nil
	}
	q := *p
	change(&q)
	q.identity = string(q.appendIdentity(nil))
	return &q
}

// WithLocal returns the same principal, marked Local.
func (p *Principal) WithLocal() *Principal { return p.with(func(q *Principal) { q.local = true }) }

// Witness returns the witness of the program behind the principal; nil: there is none.
func (p *Principal) Witness() Witness { return p.orNone().witness }

// WithWitness returns the same principal with w as its witness.
func (p *Principal) WithWitness(w Witness) *Principal {
	return p.with(func(q *Principal) { q.witness = w })
}

// Parent returns the principal on whose behalf a started agent acts; nil for any
// other principal.
func (p *Principal) Parent() *Principal { return p.orNone().parent }

// WithParent returns the same principal, started by parent: its rights are the
// intersection of its own and its parent's, and so on upwards. A parent that is
// not Valid has no rights, and neither has its child. It is called once for each
// started agent.
func (p *Principal) WithParent(parent *Principal) *Principal {
	return p.with(func(q *Principal) { q.parent = parent.orNone() })
}

// MaxFactText is the number of bytes of a fact's name or value that FactsJSON
// keeps. The fact itself stays whole: a rule must not match half a path.
const MaxFactText = 512

func appendFacts(dst []byte, facts []Fact) []byte {
	dst = append(dst, '[')
	for i, f := range facts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendQuoted(append(dst, `{"name":`...), f.Name, MaxFactText)
		dst = AppendQuoted(append(dst, `,"value":`...), f.Value, MaxFactText)
		dst = append(append(dst, `,"grade":"`...), f.Grade.String()...)
		dst = append(dst, `"}`...)
	}
	return append(dst, ']')
}
