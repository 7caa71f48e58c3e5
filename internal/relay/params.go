package relay

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// paramTable is what has been learnt of a server's tools. It is forgotten
// when the server says that its tools changed.
type paramTable struct {
	now atomic.Pointer[paramSet] // read on every modern call, so without a lock
	mu  sync.Mutex               // held to replace it
}

// paramSet is never changed, only replaced.
type paramSet struct {
	complete bool // a tool that is not in it has no annotation
	byTool   map[string]toolHeaders
}

// toolHeaders are one tool's annotations.
type toolHeaders struct {
	params []paramHeader
	broken bool // the tool must not be offered over HTTP
}

// learn adds the tools of one page to the current set. A page that belongs to a
// forgotten set is left out.
func (p *paramTable) learn(before *paramSet, tools []byte, complete bool) *paramSet {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now.Load() != before {
		return before
	}
	next := &paramSet{complete: complete, byTool: make(map[string]toolHeaders)}
	if before != nil {
		maps.Copy(next.byTool, before.byTool)
		next.complete = complete || before.complete
	}
	for tool := range wire.Elements(tools) {
		if name, ok := wire.GetString(tool, "name"); ok {
			next.byTool[name] = headersOf(tool)
		}
	}
	p.now.Store(next)
	return next
}

func (p *paramTable) forget() {
	p.mu.Lock()
	p.now.Store(nil)
	p.mu.Unlock()
}

func (s *paramSet) of(tool string) (h toolHeaders, known bool) {
	if s == nil {
		return h, false
	}
	h, ok := s.byTool[tool]
	return h, ok || s.complete
}

// mirror checks the Mcp-Param-* headers of a modern client against the body,
// and makes those that a modern HTTP server wants: known ones from the body,
// unknown ones as they came (Streamable HTTP, "Server Behavior for Custom
// Headers").
func (r *Relay) mirror(ctx context.Context, x *front.Exchange, l *link, c *liveConn, t target, req *upstream.Request) error {
	if t.Method() != "tools/call" {
		return nil
	}
	tool, err := l.headersOf(ctx, c, t.Name())
	if err != nil {
		return err
	}
	if tool.broken && l.mirrors(c) {
		return invalid{errNoTool} // it is on no list either
	}
	args := wire.Get(t.Params(), "arguments")
	if x.Era == front.Modern && x.Header != nil && !headersMatch(x.Header, tool.params, args) {
		return invalid{errHeaders}
	}
	if !l.mirrors(c) {
		return nil
	}
	req.Headers = make(http.Header)
	for k, v := range x.Header {
		if strings.HasPrefix(k, paramPrefix) {
			req.Headers[k] = v
		}
	}
	for _, h := range tool.params {
		delete(req.Headers, h.key)
		if text, ok := headerText(wire.GetPath(args, h.path...)); ok {
			req.Headers[h.key] = []string{protocol.EncodeHeader(text)}
		}
	}
	return nil
}

// maxPages bounds a server that pages for ever.
const maxPages = 100

// headersOf returns a tool's annotations, asking the server for its tools
// when they are not known yet.
func (l *link) headersOf(ctx context.Context, c *liveConn, tool string) (toolHeaders, error) {
	set := l.b.params.now.Load()
	if h, known := set.of(tool); known {
		return h, nil
	}
	var cursor []byte
	for page := range maxPages {
		req := upstream.Request{Method: "tools/list", Params: l.withMeta(c, rawjson.Edit{Key: "cursor", Value: cursor})}
		reply, err := c.conn.Call(ctx, &req, nil)
		if err != nil {
			return toolHeaders{}, err
		}
		// An error is a server without tools: the call itself will say so.
		cursor = wire.Get(reply.Result, "nextCursor")
		set = l.b.params.learn(set, wire.Get(reply.Result, "tools"), cursor == nil || page == maxPages-1)
		if cursor == nil {
			break
		}
	}
	h, _ := set.of(tool)
	return h, nil
}

// headersMatch compares each annotated parameter with its header: both
// absent, or both there and equal; a null counts as absent.
func headersMatch(h http.Header, known []paramHeader, args []byte) bool {
	for _, p := range known {
		want, present := headerText(wire.GetPath(args, p.path...))
		got := h[p.key]
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

// maxInteger is the largest integer that every reader has exactly.
const maxInteger = 1<<53 - 1

// sameValue compares integers by value, within the range that every reader
// represents exactly, and other values by their text.
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

// headerText is a parameter's value as a header writes it: a string as it is,
// a number or boolean as its JSON text.
func headerText(raw []byte) (string, bool) {
	if raw == nil || bytes.Equal(raw, []byte("null")) {
		return "", false
	}
	if s, ok := wire.Text(raw); ok {
		return s, true
	}
	return string(raw), true
}
