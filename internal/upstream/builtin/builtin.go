// Package builtin is the common part of Doorward's own MCP servers: their greetings in both eras, the form of
// their lists, the life of a connection, and counting.
//
// Invariant: nothing here identifies a caller. The relay and the servers decide which caller it is and what it
// may do.
package builtin

import (
	"context"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// About is the description of a server for its greeting.
type About struct {
	Name, Title, Version string
	Capabilities         string // raw JSON
	Instructions         string // empty: none
	TTL                  string // see Hints
}

// Hello returns an InitializeResult, or, if modern, a DiscoverResult.
func (a About) Hello(modern bool) []byte {
	info := rawjson.Set(nil, rawjson.Edit{Key: "name", Value: rawjson.AppendQuote(nil, a.Name)},
		rawjson.Edit{Key: "title", Value: rawjson.AppendQuote(nil, a.Title)},
		rawjson.Edit{Key: "version", Value: rawjson.AppendQuote(nil, a.Version)})
	edits := []rawjson.Edit{{Key: "capabilities", Value: []byte(a.Capabilities)}}
	if a.Instructions != "" {
		edits = append(edits, rawjson.Edit{Key: "instructions", Value: rawjson.AppendQuote(nil, a.Instructions)})
	}
	if !modern {
		return rawjson.Set(nil, append(edits, rawjson.Edit{Key: "protocolVersion", Value: []byte(`"` + protocol.LatestLegacy + `"`)},
			rawjson.Edit{Key: "serverInfo", Value: info})...)
	}
	out := rawjson.Set(nil, append(edits, rawjson.Edit{Key: "supportedVersions", Value: []byte(`["` + protocol.LatestModern + `"]`)})...)
	out = rawjson.SetIn(out, "_meta", rawjson.Edit{Key: wire.MetaServerInfo, Value: info})
	return rawjson.Set(out, Hints(a.TTL)...)
}

// Hints returns the members that a modern result needs: it is complete, private to the caller, and may be
// cached for ttl, a number of milliseconds.
func Hints(ttl string) []rawjson.Edit {
	return []rawjson.Edit{{Key: "resultType", Value: []byte(`"complete"`)}, {Key: "ttlMs", Value: []byte(ttl)},
		{Key: "cacheScope", Value: []byte(`"private"`)}}
}

// List returns the result of a list method, in one page: array under name.
func List(modern bool, name string, array []byte, ttl string) upstream.Reply {
	out := rawjson.Set(nil, rawjson.Edit{Key: name, Value: array})
	if modern {
		out = rawjson.Set(out, Hints(ttl)...)
	}
	return upstream.Reply{Result: out}
}

// Life is the life of a connection, and the part of upstream.Conn that is the same for every server that asks
// nothing and needs no notifications.
type Life struct {
	Context context.Context // ends with the connection
	End     context.CancelFunc
}

// NewLife begins a life that ends with the server's.
func NewLife(server context.Context) Life {
	ctx, end := context.WithCancel(server)
	return Life{Context: ctx, End: end}
}

// With returns a copy of ctx that also ends with the connection.
func (l Life) With(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.Context, cancel)
	return ctx, func() { stop(); cancel() }
}

// Notify implements upstream.Conn. Notifications are ignored.
func (Life) Notify(context.Context, string, []byte) error { return nil }

// Answer implements upstream.Conn. It is not used, because the server asks nothing.
func (Life) Answer(context.Context, wire.ID, upstream.Reply) error { return nil }

// Listen implements upstream.Conn. It does nothing, because events arrive without it.
func (Life) Listen() {}

// Done implements upstream.Conn.
func (l Life) Done() <-chan struct{} { return l.Context.Done() }

// Err implements upstream.Conn.
func (l Life) Err() error {
	if l.Context.Err() == nil {
		return nil
	}
	return upstream.ErrLost
}
