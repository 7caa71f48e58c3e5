package main

import (
	"bytes"
	"path/filepath"
	"slices"
)

// edits holds the changes of one text, by offset.
type edits struct {
	// closes and opens are texts to insert before an offset, the closes first. The outermost of
	// the opens comes first, and the innermost of the closes.
	closes, opens map[int]string
	replaced      map[int]swap
}

type swap struct {
	n    int
	with string
}

func newEdits() edits {
	return edits{map[int]string{}, map[int]string{}, map[int]swap{}}
}

func (e edits) open(at int, text string)       { e.opens[at] += text }
func (e edits) close(at int, text string)      { e.closes[at] += text }
func (e edits) replace(at, n int, with string) { e.replaced[at] = swap{n, with} }
func (e edits) apply(text []byte) []byte {
	var out bytes.Buffer
	for i := 0; i <= len(text); {
		out.WriteString(e.closes[i])
		out.WriteString(e.opens[i])
		if s, ok := e.replaced[i]; ok {
			out.WriteString(s.with)
			i += s.n
			continue
		}
		if i < len(text) {
			out.WriteByte(text[i])
		}
		i++
	}
	return out.Bytes()
}

// only returns text with the operator of one mutant replaced.
func only(m mutant, text []byte) []byte {
	at := m.where.Offset
	return slices.Concat(text[:at], []byte(m.to.String()), text[at+len(m.op.String()):])
}

func base(path string) string { return filepath.Base(path) }
