package upstream

import (
	"context"
	"errors"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// DialLegacy opens a connection with the handshake of the legacy era: initialize with
// initParams unchanged, then notifications/initialized. The result is the server's,
// unchanged. on receives the messages that belong to no call, one after the other, and not
// before the handshake is done.
//
// A server of kind http that refuses the POST in the way of an old server is tried with
// HTTP+SSE.
//
// ErrEra: the server refused initialize (errors.As finds its *wire.Error), or negotiated a
// revision that is not a known legacy one.
func (s *Server) DialLegacy(ctx context.Context, initParams []byte, on func(Event)) (Conn, []byte, error) {
	limited, cancel := context.WithTimeout(ctx, s.def.dialLimit())
	defer cancel()
	c, result, err := s.dialLegacy(limited, initParams, on)
	if err == nil {
		return c, result, nil
	}
	if isContext(err) && ctx.Err() == nil {
		err = newFault(ErrTimeout, "the handshake took too long")
	}
	return nil, nil, err
}

func (s *Server) dialLegacy(ctx context.Context, initParams []byte, on func(Event)) (Conn, []byte, error) {
	switch s.def.Kind {
	case KindStdio:
		return s.legacyStdio(ctx, initParams, on)
	case KindSSE:
		return s.legacyEvents(ctx, initParams, on)
	}
	c, result, err := s.legacyHTTP(ctx, initParams, on)
	if !isOldRefusal(err) {
		return c, result, err
	}
	c, result, errEvents := s.legacyEvents(ctx, initParams, on)
	if errors.Is(errEvents, ErrEra) || errors.Is(errEvents, ErrProtocol) {
		return nil, nil, asEra(err, "initialize was refused, and there is no HTTP+SSE endpoint either")
	}
	return c, result, errEvents
}

// DialModern opens a connection of the modern era with server/discover, whose params are
// {"_meta": meta}. The result is the server's, unchanged.
//
// ErrEra: the server does not know the modern era, or no modern revision that is known here;
// its process is then stopped. If the era is not known, DialEither starts the process only
// once. After other errors the era is still unknown.
func (s *Server) DialModern(ctx context.Context, meta []byte, on func(Event)) (Conn, []byte, error) {
	switch s.def.Kind {
	case KindStdio:
		return s.modernStdio(ctx, meta, on)
	case KindSSE:
		return nil, nil, newFault(ErrEra, "HTTP+SSE has no modern era")
	}
	return s.modernHTTP(ctx, meta, on)
}

func (s *Server) legacyStdio(ctx context.Context, initParams []byte, on func(Event)) (Conn, []byte, error) {
	c, err := s.startChild(false, initParams, on)
	if err != nil {
		return nil, nil, err
	}
	result, err := c.initialize(ctx, initParams)
	if err != nil {
		// A server of the other era is not faulty: the next attempt may follow at once.
		if !isContext(err) && !errors.Is(err, ErrEra) {
			c.noteEnd(err)
		}
		c.stop(err)
		return nil, nil, err
	}
	c.settle()
	return c, result, nil
}

// initialize makes the legacy handshake on a stream.
func (s *stream) initialize(ctx context.Context, initParams []byte) ([]byte, error) {
	reply, err := s.Call(ctx, &Request{Method: methodInitialize, Params: initParams}, nil)
	if err != nil {
		return nil, err
	}
	version, err := negotiated(reply)
	if err != nil {
		return nil, err
	}
	s.batch.Store(version == protocol.V20250326)
	if err := s.Notify(ctx, methodInitialized, nil); err != nil {
		return nil, err
	}
	return reply.Result, nil
}

// negotiated returns the revision that the answer to initialize selects.
func negotiated(reply Reply) (string, error) {
	if reply.Error != nil {
		return "", &fault{kind: ErrEra, reason: "initialize was refused", reply: reply.Error}
	}
	version, ok := rawjson.GetString(reply.Result, "protocolVersion")
	if !ok || !protocol.IsLegacyVersion(version) {
		return "", newFault(ErrEra, "initialize settled no known legacy revision")
	}
	return version, nil
}

func (s *Server) modernStdio(ctx context.Context, meta []byte, on func(Event)) (Conn, []byte, error) {
	c, err := s.startChild(true, nil, on)
	if err != nil {
		return nil, nil, err
	}
	limited, cancel := context.WithTimeout(ctx, s.def.dialLimit())
	defer cancel()
	result, err := c.discovered(limited, meta)
	if err != nil {
		if isContext(err) && ctx.Err() == nil {
			err = newFault(ErrTimeout, "no answer to server/discover in time")
		}
		c.stop(err)
		return nil, nil, err
	}
	c.settle()
	return c, result, nil
}

// discovered makes the handshake of the modern era on a child.
func (c *stdioConn) discovered(ctx context.Context, meta []byte) ([]byte, error) {
	reply, err := c.Call(ctx, discover(meta), nil)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, ErrLost), errors.Is(err, ErrNotSent):
		return nil, newFault(ErrEra, endedOnDiscover)
	case err != nil:
		return nil, err
	}
	return reply.Result, judgeDiscovery(reply)
}

const endedOnDiscover = "the server ended on server/discover"

// settle makes a child whose handshake is done usable for the owner of the connection.
func (c *stdioConn) settle() {
	c.worked.Store(true)
	c.quiet.Store(false)
	c.events.release()
}

func discover(meta []byte) *Request {
	return &Request{Method: methodDiscover, Params: rawjson.Set(nil, rawjson.Edit{Key: "_meta", Value: meta})}
}

// judgeDiscovery determines the era of a server from its answer to server/discover. nil: the
// server is modern, in a revision known here.
func judgeDiscovery(reply Reply) error {
	if e := reply.Error; e != nil {
		switch e.Code {
		case codeHeaderMismatch, codeMissingCapability:
			return &fault{kind: ErrProtocol, reason: "a modern server refused server/discover", reply: e}
		case codeUnsupportedVersion:
			return unsupported(e)
		}
		return &fault{kind: ErrEra, reason: "server/discover was refused", reply: e}
	}
	for raw := range rawjson.Elements(rawjson.Get(reply.Result, "supportedVersions")) {
		if v, ok := wire.Text(raw); ok && protocol.IsModernVersion(v) {
			return nil
		}
	}
	return newFault(ErrEra, "no modern revision in common")
}

// unsupported classifies the refusal of a server that names its revisions (2026-07-28
// Versioning). If it names only unknown ones, initialize is not tried, because it would fail
// as well.
func unsupported(e *wire.Error) error {
	named := false
	for raw := range rawjson.Elements(rawjson.Get(e.Data, "supported")) {
		v, ok := wire.Text(raw)
		if named = named || ok; protocol.IsLegacyVersion(v) {
			return &fault{kind: ErrEra, reason: "the server names a revision of the legacy era", reply: e}
		}
	}
	if named {
		return &fault{kind: ErrProtocol, reason: "no revision of the protocol in common", reply: e}
	}
	return &fault{kind: ErrEra, reason: "no modern revision in common", reply: e}
}
