package relay

import (
	"context"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/content"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/naming"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/upstream"
)

// refusedHeaders reports whether a modern HTTP server wants other Mcp-Param headers. It has
// then changed its tools without notice, and has not run the call (Streamable HTTP, "Client
// Behavior").
func (l *link) refusedHeaders(c *liveConn, t *target, reply upstream.Reply) bool {
	return reply.Error != nil && reply.Error.Code == front.CodeHeaderMismatch && t.Method() == "tools/call" && l.mirrors(c)
}

// callWith sends one request, and applies the content rules to all its messages.
func (l *link) callWith(ctx context.Context, c *liveConn, x *front.Exchange, t *target, req *upstream.Request) (upstream.Reply, error) {
	found := t.found
	return l.callThrough(ctx, c, t, req, func(e upstream.Event) {
		if l.asks.screen(c, found, &e) {
			l.during(c, x, e)
		}
	})
}

// callThrough is callWith with hear as the receiver of the server's messages during the call,
// which screens them.
func (l *link) callThrough(ctx context.Context, c *liveConn, t *target, req *upstream.Request, hear func(upstream.Event)) (upstream.Reply, error) {
	if err := content.Request(l.b.Scan, t.found, req); err != nil {
		return upstream.Reply{}, err
	}
	changes := c.offers.Changes(t.Method())
	reply, err := c.conn.Call(ctx, req, hear)
	if err == nil {
		return received(ctx, l.b, c, t, changes, reply)
	}
	if w := upstream.Waits(err); w != nil {
		own := *t
		err = w.Then(func(ctx context.Context, reply upstream.Reply, err error) (upstream.Reply, error) {
			if err != nil {
				return reply, err
			}
			return received(ctx, l.b, c, &own, changes, reply)
		})
	}
	return reply, err
}

// received applies the content rules and the pins to the reply to a request. changes is the
// state of its list before the request.
func received(ctx context.Context, b *backend, c *liveConn, t *target, changes uint64, reply upstream.Reply) (upstream.Reply, error) {
	reply, err := content.Reply(b.Scan, t.found, t.Method(), reply)
	if err != nil || reply.Error != nil {
		return reply, err
	}
	shown, err := c.offers.Shown(ctx, t.Target, changes, reply.Result)
	return upstream.Reply{Result: shown, Plain: reply.Plain && rawjson.Same(shown, reply.Result)}, err
}

// during takes one message of the server during a call.
func (l *link) during(c *liveConn, x *front.Exchange, e upstream.Event) {
	switch {
	case e.ID != nil:
		l.asks.learnAsker(c, x)
		l.asks.asked(c, x, e)
	case e.Method == "notifications/cancelled":
		c.retract(e.Params)
	case protocol.IsChange(e.Method), e.Method == protocol.TaskChanged && c.era == front.Modern: // for those that listen, with their names
		l.hub.publish(e)
	case e.Method == "notifications/message" && x.Era == front.Modern && !era.HearsLog(x, e.Params):
	case e.Method == "notifications/message" && x.Session != nil && !l.private() && !bound(x.Session).memory.hearsLog(e.Params):
	case blocked(e.Method):
	case !l.asks.questions.passes(func() question.Client { return question.InCall(x) }, &e):
	case x.Server == "":
		x.Notify(e.Method, naming.Event(l.b.Name, e))
	default:
		x.Notify(e.Method, e.Params)
	}
}
