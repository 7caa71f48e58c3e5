package paramheader

import (
	"bytes"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Table holds the annotations of a server's tools as far as they are known. It is emptied
// when the server says that its tools changed.
type Table struct {
	now atomic.Pointer[Set] // read on every modern call, so without a lock
	mu  sync.Mutex          // held to replace it
}

// Now returns the current set; nil: nothing is known.
func (p *Table) Now() *Set { return p.now.Load() }

// Set is immutable.
type Set struct {
	complete bool // a tool that is not in it has no annotation
	byTool   map[string]Tool
}

// Tool holds the annotations of one tool.
type Tool struct {
	Params []Param
	Broken bool // the tool must not be offered over HTTP
}

// Learn adds the tools of one page to the set before and returns the result. If before is no
// longer the current set, the page is ignored.
func (p *Table) Learn(before *Set, tools []byte, complete bool) *Set {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now.Load() != before {
		return before
	}
	next := &Set{complete: complete, byTool: make(map[string]Tool)}
	if before != nil {
		maps.Copy(next.byTool, before.byTool)
		next.complete = complete || before.complete
	}
	for tool := range rawjson.Elements(tools) {
		if name, ok := rawjson.GetString(tool, "name"); ok {
			next.byTool[name] = Of(tool)
		}
	}
	p.now.Store(next)
	return next
}

// Forget empties the table.
func (p *Table) Forget() {
	p.mu.Lock()
	p.now.Store(nil)
	p.mu.Unlock()
}

// Of returns the annotations of a tool; known is false if they have to be learnt.
func (s *Set) Of(tool string) (h Tool, known bool) {
	if s == nil {
		return h, false
	}
	h, ok := s.byTool[tool]
	return h, ok || s.complete
}

// Match compares each annotated parameter with its header: both are absent, or both are
// present and equal. A null counts as absent.
func Match(h http.Header, known []Param, args []byte) bool {
	for _, p := range known {
		want, present := Text(rawjson.GetPath(args, p.Path...))
		got := h[p.Key]
		if !present {
			if len(got) != 0 {
				return false
			}
			continue
		}
		if len(got) != 1 {
			return false
		}
		text, err := protocol.DecodeHeader(got[0])
		if err != nil || !sameValue(p.kind, text, want) {
			return false
		}
	}
	return true
}

// maxInteger is the largest integer that every JSON parser represents exactly.
const maxInteger = 1<<53 - 1

// sameValue compares integers by value, within the range that every JSON parser represents
// exactly, and other values by their text.
func sameValue(kind, header, body string) bool {
	if header == body {
		return true
	}
	if kind != "integer" {
		return false
	}
	a, err1 := strconv.ParseInt(header, 10, 64)
	b, err2 := strconv.ParseFloat(body, 64)
	return err1 == nil && err2 == nil && a >= -maxInteger && a <= maxInteger && float64(a) == b
}

// Text returns a parameter's value in the form of a header: a string unchanged, a number or
// boolean as its JSON text.
func Text(raw []byte) (string, bool) {
	if raw == nil || bytes.Equal(raw, []byte("null")) {
		return "", false
	}
	if s, ok := wire.Text(raw); ok {
		return s, true
	}
	return string(raw), true
}
