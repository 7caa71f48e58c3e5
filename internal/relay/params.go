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
	"github.com/doorward/doorward/internal/upstream"
)

// mirror checks the Mcp-Param-* headers of a modern client against the body, and makes those
// that a modern HTTP server needs: from the body where the tool's schema names them,
// otherwise as they came (Streamable HTTP, "Server Behavior for Custom Headers").
func (tr *translation) mirror(ctx context.Context, x *front.Exchange, l *link, c *liveConn, t *target, req *upstream.Request) error {
	if t.Method() != "tools/call" {
		return nil
	}
	tool, err := c.offers.Headers(ctx, t.Name())
	if err != nil {
		return err
	}
	if tool.Broken && l.mirrors(c) {
		return failure.Invalid{E: failure.NoTool} // lists leave it out too
	}
	args := rawjson.Get(t.Params(), "arguments")
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
		if text, ok := paramheader.Text(rawjson.GetPath(args, h.Path...)); ok {
			req.Headers[h.Key] = []string{protocol.EncodeHeader(text)}
		}
	}
	return nil
}
