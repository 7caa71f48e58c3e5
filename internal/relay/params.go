package relay

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/doorward/doorward/internal/front"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/wire"
)

// paramHeader is one tool parameter that a header repeats
// (Streamable HTTP, "Schema Extension").
type paramHeader struct {
	key  string   // canonical header key, Mcp-Param-X
	path []string // members of arguments from the root
	kind string   // string, integer or boolean
}

// paramTable is what has been learnt of a server's tools. It is forgotten
// when the server says that its tools changed.
type paramTable struct {
	mu     sync.Mutex
	known  bool
	byTool map[string][]paramHeader
}

// learn adds the tools of one page.
func (p *paramTable) learn(tools []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byTool == nil {
		p.byTool = make(map[string][]paramHeader)
	}
	for tool := range wire.Elements(tools) {
		if name, ok := wire.GetString(tool, "name"); ok {
			p.byTool[name], _ = paramHeaders(tool)
		}
	}
}

func (p *paramTable) complete() {
	p.mu.Lock()
	p.known = true
	p.mu.Unlock()
}

func (p *paramTable) forget() {
	p.mu.Lock()
	p.known, p.byTool = false, nil
	p.mu.Unlock()
}

func (p *paramTable) of(tool string) (headers []paramHeader, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	headers, ok := p.byTool[tool]
	return headers, ok || p.known
}

// validHeaders reports whether a tool's annotations are as the specification
// wants them; an HTTP client must drop the others from its list.
func validHeaders(tool []byte) bool {
	_, ok := paramHeaders(tool)
	return ok
}

// paramHeaders reads the annotations of one tool: on string, integer and
// boolean properties that are reached through `properties` alone, each a
// token, unique without regard to case.
func paramHeaders(tool []byte) ([]paramHeader, bool) {
	schema := wire.Get(tool, "inputSchema")
	if !strings.Contains(string(schema), `x-mcp-header`) {
		return nil, true
	}
	w := headerWalk{seen: make(map[string]bool), ok: true}
	w.walk(schema, nil)
	return w.out, w.ok
}

type headerWalk struct {
	out  []paramHeader
	seen map[string]bool
	ok   bool
}

func (w *headerWalk) walk(schema []byte, path []string) {
	for name, prop := range wire.Members(wire.Get(schema, "properties")) {
		at := append(append([]string(nil), path...), name)
		if raw := wire.Get(prop, "x-mcp-header"); raw != nil {
			w.add(raw, prop, at)
		}
		w.walk(prop, at)
	}
}

func (w *headerWalk) add(raw, prop []byte, path []string) {
	name, isText := wire.Text(raw)
	kind, _ := wire.GetString(prop, "type")
	key := http.CanonicalHeaderKey("Mcp-Param-" + name)
	if !isText || !isToken(name) || w.seen[key] || kind != "string" && kind != "integer" && kind != "boolean" {
		w.ok = false
		return
	}
	w.seen[key] = true
	w.out = append(w.out, paramHeader{key: key, path: path, kind: kind})
}

// isToken is RFC 9110's token.
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// mirror checks the Mcp-Param-* headers of a modern client against the body,
// and makes those that a modern HTTP server wants: known ones from the body,
// unknown ones as they came (Streamable HTTP, "Server Behavior for Custom
// Headers").
func (r *Relay) mirror(ctx context.Context, x *front.Exchange, l *link, c *liveConn, t target, req *upstream.Request) error {
	if t.method != "tools/call" {
		return nil
	}
	known, err := l.paramHeaders(ctx, c, t.name)
	if err != nil {
		return err
	}
	args := wire.Get(t.params, "arguments")
	if x.Era == front.Modern && x.Header != nil {
		if !headersMatch(x.Header, known, args) {
			return invalid{errHeaders}
		}
	}
	if c.era != front.Modern || l.b.Kind == "stdio" {
		return nil
	}
	req.Headers = make(http.Header)
	for k, v := range x.Header {
		if strings.HasPrefix(k, "Mcp-Param-") {
			req.Headers[k] = v
		}
	}
	for _, h := range known {
		delete(req.Headers, h.key)
		if text, ok := headerText(wire.GetPath(args, h.path...)); ok {
			req.Headers[h.key] = []string{wire.EncodeHeader(text)}
		}
	}
	return nil
}

// paramHeaders returns a tool's annotations, asking the server for its tools
// when none are known yet.
func (l *link) paramHeaders(ctx context.Context, c *liveConn, tool string) ([]paramHeader, error) {
	if h, known := l.b.params.of(tool); known {
		return h, nil
	}
	cursor := []byte(nil)
	for range maxPages {
		req := upstream.Request{Method: "tools/list"}
		if c.era == front.Modern {
			req.Params = wire.Set(nil, wire.Edit{Key: "_meta", Value: l.meta(nil)})
		}
		if cursor != nil {
			req.Params = wire.Set(req.Params, wire.Edit{Key: "cursor", Value: cursor})
		}
		reply, err := c.conn.Call(ctx, &req, nil)
		if err != nil {
			return nil, err
		}
		if reply.Error != nil {
			break // a server without tools: the call itself will say so
		}
		l.b.params.learn(wire.Get(reply.Result, "tools"))
		if cursor = wire.Get(reply.Result, "nextCursor"); cursor == nil {
			break
		}
	}
	l.b.params.complete()
	h, _ := l.b.params.of(tool)
	return h, nil
}

// maxPages bounds a server that pages for ever.
const maxPages = 100

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
		text, err := wire.DecodeHeader(got[0])
		if err != nil || !sameValue(p.kind, text, want) {
			return false
		}
	}
	return true
}

func sameValue(kind, a, b string) bool {
	if a == b {
		return true
	}
	if kind != "integer" {
		return false
	}
	x, err1 := strconv.ParseInt(a, 10, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	return err1 == nil && err2 == nil && float64(x) == y
}

// headerText is a parameter's value as a header writes it: a string as it is,
// a number or boolean as its JSON text.
func headerText(raw []byte) (string, bool) {
	if raw == nil || string(raw) == "null" {
		return "", false
	}
	if s, ok := wire.Text(raw); ok {
		return s, true
	}
	return string(raw), true
}
