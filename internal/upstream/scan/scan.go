// Package scan searches messages to and from a server for patterns, and counts,
// cuts or blocks what it finds.
//
// Invariant: strings are matched in their decoded form, whatever escapes JSON
// writes them with. After a cut every other byte is unchanged and the result is
// valid JSON without a match. Under redact and block, a message that cannot be
// searched or cut is refused. Only the name of the rule and a count leave this
// package, never the text that was found.
package scan

import (
	"bytes"
	"slices"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Mode is the handling of matches.
type Mode string

// The modes.
const (
	Off     Mode = "off"
	Monitor Mode = "monitor" // counted
	Redact  Mode = "redact"  // cut
	Block   Mode = "block"   // the whole message is held back
)

// MaxBytes is the size of the largest value that is searched.
const MaxBytes = 8 << 20

// TooLarge is the rule under which a larger one is counted.
const TooLarge = "too-large"

// Count is the number of matches of one rule.
type Count struct {
	Rule string
	N    int64
}

// Result is the result of a search.
type Result struct {
	Out     []byte  // what may be forwarded; the value itself if nothing was cut
	Found   []Count // by rule, in the order of the rules
	Blocked bool    // nothing may be forwarded
}

// Scanner searches the messages of servers in one mode. It is safe for concurrent use.
type Scanner struct {
	mode   Mode
	source *source
}

// Mode returns the handling of matches.
func (s *Scanner) Mode() Mode { return s.mode }

// Look searches the strings of a raw JSON value. Its members that are named in skip are left
// out: they belong to the protocol, or are handles that must stay unchanged.
func (s *Scanner) Look(raw []byte, skip ...string) Result {
	if len(raw) == 0 {
		return Result{Out: raw}
	}
	if len(raw) > MaxBytes {
		return Result{Out: raw, Found: []Count{{TooLarge, 1}}, Blocked: s.mode != Monitor}
	}
	l := looking{set: s.source.current(), cut: s.mode == Redact}
	out := l.value(raw, skip)
	if l.counts == nil {
		return Result{Out: raw}
	}
	r := Result{Out: raw, Found: l.found(), Blocked: s.mode == Block || l.stuck}
	if s.mode != Redact {
		return r
	}
	// Names that were cut may have become equal.
	if l.names && wire.ValidateValue(out) != nil {
		r.Blocked = true
		return r
	}
	r.Out = out
	return r
}

// Text is Look for a text that is no JSON, such as a header's value.
func (s *Scanner) Text(text string) (string, Result) {
	raw := rawjson.AppendQuote(nil, text)
	r := s.Look(raw)
	out, _ := wire.Text(r.Out)
	return out, r
}

// looking is the state of one search.
type looking struct {
	set    *Set
	cut    bool
	counts []int64 // by rule; nil: nothing was found
	names  bool    // the name of a member was cut
	stuck  bool    // there is a match that cannot be cut
}

func (l *looking) value(raw []byte, skip []string) []byte {
	if len(skip) == 0 || !bytes.HasPrefix(bytes.TrimLeft(raw, " \n\r\t"), []byte("{")) {
		return rawjson.MapStrings(raw, l.text)
	}
	var edits []rawjson.Edit
	for name, v := range rawjson.Members(raw) {
		if slices.Contains(skip, name) {
			continue
		}
		before := l.total()
		l.text(rawjson.String{Text: []byte(name)})
		l.stuck = l.stuck || l.total() > before // names at this level belong to the protocol
		if out := rawjson.MapStrings(v, l.text); l.cut && len(out) > 0 && &out[0] != &v[0] {
			edits = append(edits, rawjson.Edit{Key: name, Value: out})
		}
	}
	return rawjson.Set(raw, edits...)
}

// text searches one string, and cuts the matches under redact.
func (l *looking) text(s rawjson.String) ([]byte, bool) {
	spans := l.set.find(s.Text)
	if spans == nil {
		return nil, false
	}
	if l.counts == nil {
		l.counts = make([]int64, len(l.set.rules))
	}
	for _, m := range spans {
		l.counts[m.rule]++
	}
	if !l.cut {
		return nil, false
	}
	l.names = l.names || s.IsKey
	return l.set.without(s.Text, spans), true
}

func (l *looking) total() (n int64) {
	for _, c := range l.counts {
		n += c
	}
	return n
}

func (l *looking) found() []Count {
	var out []Count
	for i, n := range l.counts {
		if n > 0 {
			out = append(out, Count{l.set.rules[i].name, n})
		}
	}
	return out
}
