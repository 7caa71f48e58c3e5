package upstream

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
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

// modernHTTP probes the era of a server with server/discover (Versioning, "Discovery"). The
// connection that it returns keeps nothing open. A server that begins an answer and does not
// complete it is a legacy server that does not know the method. A server that begins no
// answer leaves its era unknown.
func (s *Server) modernHTTP(ctx context.Context, meta []byte, on func(Event)) (Conn, []byte, error) {
	probe, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := time.AfterFunc(s.def.dialLimit(), cancel)
	defer limit.Stop()
	c := s.newHTTP(true, on)
	silent := false
	c.answering = func() { silent = limit.Reset(s.deps.ProbeTimeout) }
	version, _ := rawjson.GetString(meta, wire.MetaVersion)
	c.become("", version)
	reply, err := c.Call(probe, discover(meta), nil)
	c.answering = nil
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

// isForeign reports whether an error is an answer that no modern server gives: a 4xx status
// other than those about credentials and load, or a 2xx without JSON-RPC. A redirect is not
// one.
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
