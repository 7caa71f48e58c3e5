package watermark

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Look searches the strings of a raw JSON value, including the names of members. Its
// members that are named in skip are not searched, because they belong to the protocol.
// Under Redact a value that cannot be redacted is blocked: one in which a name at the
// level of skip would have to change, or in which names became equal.
func (x *Index) Look(mode Mode, raw []byte, skip ...string) Result {
	if x.Empty() || len(raw) == 0 {
		return Result{Out: raw}
	}
	l := looking{finder: x.take(mode), cut: mode == Redact}
	defer x.give(l.finder)
	if len(raw) > MaxBytes && mode != Alert {
		l.cut, l.most = false, Enough
		l.value(raw[:MaxBytes], skip)
		return Result{Out: raw, Found: l.found, Blocked: true}
	}
	out := l.value(raw[:min(len(raw), MaxBytes)], skip)
	r := Result{Out: raw, Found: l.found, Blocked: l.found != nil && mode == Block || l.stuck && l.cut}
	switch {
	case !l.cut || l.found == nil || r.Blocked:
	case l.names && wire.ValidateValue(out) != nil:
		r.Blocked = true
	default:
		r.Out = out
	}
	return r
}

// Text searches a text that is no JSON, all of it. Under Redact, out has Redacted in
// place of the refs; otherwise it is s.
func (x *Index) Text(mode Mode, s string) (out string, found []Delivery) {
	if x.Empty() || len(s) < shortest {
		return s, nil
	}
	l := looking{finder: x.take(mode), cut: mode == Redact}
	defer x.give(l.finder)
	if with, changed := l.text([]byte(s), false); changed {
		return string(with), l.found
	}
	return s, l.found
}

// looking is the search of one value.
type looking struct {
	*finder
	cut   bool
	found []Delivery
	noted map[Delivery]struct{} // the elements of found
	names bool                  // the name of a member was redacted
	stuck bool                  // something was found that cannot be redacted
}

func (l *looking) value(raw []byte, skip []string) []byte {
	if len(skip) == 0 || !bytes.HasPrefix(bytes.TrimLeft(raw, " \n\r\t"), []byte("{")) {
		return l.strings(raw)
	}
	var edits []rawjson.Edit
	for name, v := range rawjson.Members(raw) {
		if slices.Contains(skip, name) {
			continue
		}
		// Names at this level are the protocol's, so none of them is cut.
		if spans := l.find([]byte(name)); len(spans) > 0 {
			l.note(spans)
			l.stuck = true
		}
		if out := l.strings(v); len(out) > 0 && &out[0] != &v[0] {
			edits = append(edits, rawjson.Edit{Key: name, Value: out})
		}
	}
	return rawjson.Set(raw, edits...)
}

// strings searches every string in raw. The result is raw itself when nothing was
// redacted.
func (l *looking) strings(raw []byte) []byte {
	var out []byte
	copied := 0
	for at := 0; at < len(raw) && !l.over(); {
		n := bytes.IndexByte(raw[at:], '"')
		if n < 0 {
			break
		}
		begin := at + n + 1
		end := closing(raw, begin)
		at = end + 1
		with, changed := l.string(raw[begin:end])
		if !changed {
			continue
		}
		l.names = l.names || bytes.HasPrefix(bytes.TrimLeft(raw[min(at, len(raw)):], " \n\r\t"), []byte(":"))
		out = append(append(out, raw[copied:begin]...), with...)
		copied = end
	}
	if out == nil {
		return raw
	}
	return append(out, raw[copied:]...)
}

// closing returns the offset of the quote that ends the string which begins at p, or
// len(b). A quote ends it when the number of backslashes before it is even.
func closing(b []byte, p int) int {
	for from := p; ; p++ {
		n := bytes.IndexByte(b[p:], '"')
		if n < 0 {
			return len(b)
		}
		p += n
		slash := p
		for slash > from && b[slash-1] == '\\' {
			slash--
		}
		if (p-slash)%2 == 0 {
			return p
		}
	}
}

// string searches one string, given as it is written between its quotes.
func (l *looking) string(body []byte) (with []byte, changed bool) {
	if len(body) < shortest {
		return nil, false
	}
	return l.text(body, bytes.IndexByte(body, '\\') >= 0)
}

// rounds bounds the repetitions of the search: what is left around a cut may form another
// ref. A text that still has refs after that is redacted as a whole.
const rounds = 8

// text searches the decoded form of body, and redacts body itself, so that the rest of it
// stays as it is written.
func (l *looking) text(body []byte, escaped bool) (with []byte, changed bool) {
	for range rounds {
		text := body
		if escaped {
			l.meaning = unescape(l.meaning[:0], body)
			text = l.meaning
		}
		spans := l.find(text)
		if len(spans) == 0 {
			return body, changed
		}
		l.note(spans)
		if !l.cut {
			return nil, false
		}
		if escaped {
			written(body, spans)
		}
		body, changed = without(body, spans), true
	}
	return []byte(Redacted), true
}

// note sorts the spans and records what was found.
func (l *looking) note(spans []span) {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(a.start-b.start, b.end-a.end) })
	for _, s := range spans {
		if _, ok := l.noted[s.to]; ok {
			continue
		}
		if l.noted == nil {
			l.noted = make(map[Delivery]struct{})
		}
		l.noted[s.to] = struct{}{}
		l.found = append(l.found, s.to)
	}
}

// without returns body with the sorted spans redacted. The last letter of an earlier
// Redacted may begin another ref: then the earlier one becomes part of the span.
func without(body []byte, spans []span) []byte {
	var out []byte
	last := 0
	for i := 0; i < len(spans); {
		s := spans[i]
		for i++; i < len(spans) && spans[i].start < s.end; i++ {
			s.end = max(s.end, spans[i].end)
		}
		if label := []byte(Redacted[:len(Redacted)-2]); bytes.HasSuffix(body[last:s.start], label) {
			s.start -= len(label)
		}
		out = append(append(out, body[last:s.start]...), Redacted...)
		last = s.end
	}
	return append(out, body[last:]...)
}
