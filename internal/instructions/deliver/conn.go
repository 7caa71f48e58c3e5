package deliver

import (
	"context"
	"errors"
	"sync"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/builtin"
)

// conn is one connection of the relay to the built-in server: of one legacy session, or
// of all requests of one principal and process without a session. It implements
// upstream.Conn.
type conn struct {
	s      *Server
	who    *principal.Principal
	digest string // of the legacy session; empty: none
	modern bool
	on     func(upstream.Event)
	builtin.Life

	mu      sync.Mutex
	listens map[*listen]struct{} // all listeners on the connection
	lists   *listen              // of a legacy session: the list changes that it is told without a request
	subs    map[string]*listen   // subscriptions of a legacy session, by URI
	// unjudged: one of subs may have been opened with a token that could not be verified
	// at that time.
	unjudged bool
}

var (
	errNoMethod = &wire.Error{Code: -32601, Message: "Method not found"}
	errNoPass   = &wire.Error{Code: gate.CodeDenied, Message: "Denied by policy"}
	errNoTool   = &wire.Error{Code: -32602, Message: "Unknown tool"}
	errNoPrompt = &wire.Error{Code: -32602, Message: "Unknown prompt"}
	errNoURI    = &wire.Error{Code: -32602, Message: "Resource not found"}
	errTooMany  = &wire.Error{Code: -32602, Message: "Too many subscriptions"}
)

// pass returns the pass of a request; false if it is not for this connection.
func (c *conn) pass(ctx context.Context) (gate.Pass, bool) {
	p, ok := gate.PassOf(ctx)
	if !ok || p.Act().Who.Key() != c.who.Key() || p.Act().Session != c.digest {
		return gate.Pass{}, false
	}
	return p, true
}

// Times for which a client may keep a result, in milliseconds: one that changes only with
// the version of Doorward, and one that a promotion changes.
const (
	staticTime = "300000"
	textTime   = "60000"
)

// marked marks a result whose text is a replacement for a fuller one.
func marked(result []byte, t *Text) []byte {
	if t.Degraded == "" {
		return result
	}
	return rawjson.SetIn(result, "_meta", rawjson.Edit{Key: "doorward/degraded", Value: []byte("true")})
}

// get returns the text for an admitted request: the requested one, or the generic
// text for a caller without a valid token, whatever it asked for.
func (c *conn) get(ctx context.Context, p gate.Pass, o order) (*Text, error) {
	r, why := c.s.readers.readerOf(p.Act())
	if r == nil {
		return c.s.deliveries.open(p, why)
	}
	t, err := c.s.deliveries.within(ctx, p, r, o)
	var refusal *gate.Refusal
	switch {
	case err == nil:
		return t, nil
	case errors.Is(err, ErrStore), errors.Is(err, ErrEnded), errors.As(err, &refusal) && refusal.Err == nil:
		return c.s.deliveries.lesser(reasonOf(err)), nil
	}
	return nil, err
}

// open returns the generic text, which is no delivery. A call of a tool is
// recorded all the same, as it has no other record.
func (s *deliveries) open(p gate.Pass, why string) (*Text, error) {
	t := s.lesser(why)
	if p.Act().Action != "tools/call" {
		return t, nil
	}
	if _, err := p.Record(field("degraded", why)); err != nil {
		return nil, unrecorded(p, err)
	}
	return t, nil
}
