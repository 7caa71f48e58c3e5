package upstream

import (
	"context"
	"errors"

	"github.com/doorward/doorward/internal/trust/wire"
)

// DialLegacy opens a connection with the handshake of the legacy era:
// initialize with initParams as given, then notifications/initialized. The
// result is the server's, as it came. on receives what no call owns, one event
// after the other, and not before the handshake is done.
//
// A server of kind http that refuses the POST in a way that old servers do is
// tried as HTTP+SSE.
//
// ErrEra: the server refused initialize (errors.As finds its *wire.Error), or
// negotiated a revision that is no known legacy one.
func (s *Server) DialLegacy(ctx context.Context, initParams []byte, on func(Event)) (Conn, []byte, error) {
	limited, cancel := context.WithTimeout(ctx, s.dialLimit())
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

// DialModern opens a connection of the modern era with server/discover, whose
// params are {"_meta": meta}. The result is the server's, as it came.
//
// ErrEra: the server does not know the modern era, or no modern revision that
// is known here; a child has been stopped by then, so that DialLegacy starts a
// fresh one. Other errors leave the era open.
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
		// A server of the other era is no broken one: the next attempt follows
		// at once.
		if !isContext(err) && !errors.Is(err, ErrEra) {
			c.noteEnd(err)
		}
		c.stop(err)
		return nil, nil, err
	}
	c.worked.Store(true)
	c.events.release()
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
	s.batch.Store(version == wire.V20250326)
	if err := s.Notify(ctx, methodInitialized, nil); err != nil {
		return nil, err
	}
	return reply.Result, nil
}

// negotiated is the revision that the answer to initialize settles.
func negotiated(reply Reply) (string, error) {
	if reply.Error != nil {
		return "", &fault{kind: ErrEra, reason: "initialize was refused", reply: reply.Error}
	}
	version, ok := wire.GetString(reply.Result, "protocolVersion")
	if !ok || !wire.IsLegacyVersion(version) {
		return "", newFault(ErrEra, "initialize settled no known legacy revision")
	}
	return version, nil
}

func (s *Server) modernStdio(ctx context.Context, meta []byte, on func(Event)) (Conn, []byte, error) {
	c, err := s.startChild(true, nil, on)
	if err != nil {
		return nil, nil, err
	}
	probe, cancel := context.WithTimeout(ctx, s.deps.ProbeTimeout)
	defer cancel()
	reply, err := c.Call(probe, discover(meta), nil)
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrTimeout):
		err = newFault(ErrEra, "no answer to server/discover in time")
	case errors.Is(err, ErrLost), errors.Is(err, ErrNotSent):
		err = newFault(ErrEra, "the server ended on server/discover")
	case err == nil:
		err = judgeDiscovery(reply)
	}
	if err != nil {
		c.stop(err)
		return nil, nil, err
	}
	c.worked.Store(true)
	c.quiet.Store(false)
	c.events.release()
	return c, reply.Result, nil
}

func discover(meta []byte) *Request {
	return &Request{Method: methodDiscover, Params: wire.Set(nil, wire.Edit{Key: "_meta", Value: meta})}
}

// JSON-RPC codes that only a server of the modern era sends ("Error codes").
const (
	codeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
	codeMethodNotFound     = -32601
	codeInvalidParams      = -32602
)

func isModernCode(code int64) bool {
	return code == codeHeaderMismatch || code == codeMissingCapability || code == codeUnsupportedVersion
}

// judgeDiscovery reads the era of a server from its answer to server/discover.
// nil: the server is modern, in a revision known here.
func judgeDiscovery(reply Reply) error {
	if e := reply.Error; e != nil {
		switch e.Code {
		case codeHeaderMismatch, codeMissingCapability:
			return &fault{kind: ErrProtocol, reason: "a modern server refused server/discover", reply: e}
		case codeUnsupportedVersion:
			return &fault{kind: ErrEra, reason: "no modern revision in common", reply: e}
		}
		return &fault{kind: ErrEra, reason: "server/discover was refused", reply: e}
	}
	for raw := range wire.Elements(wire.Get(reply.Result, "supportedVersions")) {
		if v, ok := wire.Text(raw); ok && wire.IsModernVersion(v) {
			return nil
		}
	}
	return newFault(ErrEra, "no modern revision in common")
}
