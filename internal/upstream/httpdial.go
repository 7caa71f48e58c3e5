package upstream

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/trust/wire"
)

func (s *Server) legacyHTTP(ctx context.Context, initParams []byte, on func(Event)) (Conn, []byte, error) {
	c := s.newHTTP(false, on)
	result, err := c.initialize(ctx, initParams)
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	c.events.release()
	return c, result, nil
}

func (c *httpConn) initialize(ctx context.Context, initParams []byte) ([]byte, error) {
	reply, err := c.Call(ctx, &Request{Method: methodInitialize, Params: initParams}, nil)
	if err != nil {
		return nil, err
	}
	version, err := negotiated(reply)
	if err != nil {
		return nil, err
	}
	c.become(c.who.Load().session, version)
	if err := c.Notify(ctx, methodInitialized, nil); err != nil {
		return nil, err
	}
	return reply.Result, nil
}

// modernHTTP probes the era of a server with server/discover (Versioning,
// "Discovery"). The connection it returns holds nothing open. A server that
// accepts the request and does not answer is a legacy server that does not know
// the method. A server that does not accept the request leaves its era open.
func (s *Server) modernHTTP(ctx context.Context, meta []byte, on func(Event)) (Conn, []byte, error) {
	probe, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := time.AfterFunc(s.def.dialLimit(), cancel)
	defer limit.Stop()
	c := s.newHTTP(true, on)
	silent := false
	c.heard = func() { silent = limit.Reset(s.deps.ProbeTimeout) }
	version, _ := wire.GetString(meta, wire.MetaVersion)
	c.become("", version)
	reply, err := c.Call(probe, discover(meta), nil)
	c.heard = nil
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case silent && (isContext(err) || errors.Is(err, ErrTimeout)):
		err = newFault(ErrEra, "an empty stream for server/discover")
	case isContext(err):
		err = newFault(ErrTimeout, "no answer to server/discover")
	case err == nil:
		err = judgeDiscovery(reply)
	case isForeign(err):
		err = asEra(err, "no answer of the modern era to server/discover")
	}
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	c.events.release()
	return c, reply.Result, nil
}

// isForeign reports an answer that no modern server gives: any 4xx but those
// about credentials and load, and anything else that is not JSON-RPC with a
// 2xx.
func isForeign(err error) bool {
	var f *fault
	if !errors.As(err, &f) || f.kind != ErrProtocol {
		return false
	}
	switch f.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return false
	}
	return f.status/100 != 3
}

// modernHeader is the header of one modern request: what the body says, said
// again (Streamable HTTP, "Standard Headers"), and the client's Mcp-Param-*.
// Nothing else of the client's gets in.
func (c *httpConn) modernHeader(method string, params []byte, extra http.Header) http.Header {
	base := c.who.Load().request.Header
	h := make(http.Header, len(base)+len(extra)+3)
	for name, values := range extra {
		if name = http.CanonicalHeaderKey(name); strings.HasPrefix(name, headerParam) {
			h[name] = values
		}
	}
	maps.Copy(h, base)
	values := make([]string, 0, 3)
	set := func(name, value string) {
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	if v, ok := wire.Text(wire.GetPath(params, "_meta", wire.MetaVersion)); ok {
		set(headerVersion, protocol.EncodeHeader(v))
	}
	set(headerMethod, protocol.EncodeHeader(method))
	if key := protocol.NameMember(method); key != "" {
		if name, ok := wire.GetString(params, key); ok {
			set(headerName, protocol.EncodeHeader(name))
		}
	}
	return h
}
