package relay

import (
	"context"
	"net/http"
	"strings"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/paramheader"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// mirror checks the Mcp-Param-* headers of a modern client against the body,
// and makes those that a modern HTTP server wants: known ones from the body,
// unknown ones as they came (Streamable HTTP, "Server Behavior for Custom
// Headers").
func (tr *translation) mirror(ctx context.Context, x *front.Exchange, l *link, c *liveConn, t target, req *upstream.Request) error {
	if t.Method() != "tools/call" {
		return nil
	}
	tool, err := l.headersOf(ctx, c, t.Name())
	if err != nil {
		return err
	}
	if tool.Broken && l.mirrors(c) {
		return failure.Invalid{E: failure.NoTool} // it is on no list either
	}
	args := wire.Get(t.Params(), "arguments")
	if x.Era == front.Modern && x.Header != nil && !paramheader.Match(x.Header, tool.Params, args) {
		return failure.Invalid{E: failure.Headers}
	}
	if !l.mirrors(c) {
		return nil
	}
	req.Headers = make(http.Header)
	for k, v := range x.Header {
		if strings.HasPrefix(k, paramheader.Prefix) {
			req.Headers[k] = v
		}
	}
	for _, h := range tool.Params {
		delete(req.Headers, h.Key)
		if text, ok := paramheader.Text(wire.GetPath(args, h.Path...)); ok {
			req.Headers[h.Key] = []string{protocol.EncodeHeader(text)}
		}
	}
	return nil
}

// maxPages bounds a server that pages for ever.
const maxPages = 100

// headersOf returns a tool's annotations, asking the server for its tools
// when they are not known yet.
func (l *link) headersOf(ctx context.Context, c *liveConn, tool string) (paramheader.Tool, error) {
	set := l.b.params.Now()
	if h, known := set.Of(tool); known {
		return h, nil
	}
	var cursor []byte
	for page := range maxPages {
		req := upstream.Request{Method: "tools/list", Params: l.withMeta(c, rawjson.Edit{Key: "cursor", Value: cursor})}
		reply, err := c.conn.Call(ctx, &req, nil)
		if err != nil {
			return paramheader.Tool{}, err
		}
		// An error is a server without tools: the call itself will say so.
		cursor = wire.Get(reply.Result, "nextCursor")
		set = l.b.params.Learn(set, wire.Get(reply.Result, "tools"), cursor == nil || page == maxPages-1)
		if cursor == nil {
			break
		}
	}
	h, _ := set.Of(tool)
	return h, nil
}
