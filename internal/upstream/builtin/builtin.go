// Package builtin is what Doorward's own MCP servers have in common: how they
// introduce themselves in both eras, the form of their lists, the life of a
// connection, and counting.
//
// Invariant: nothing here knows a caller. The relay and the servers decide who
// calls and what the caller may do.
package builtin

import (
	"context"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// About is what a server says of itself.
type About struct {
	Name, Title, Version string
	Capabilities         string // raw JSON
	Instructions         string // empty: none
	TTL                  string // see Hints
}

// Hello is an InitializeResult, or, modern, a DiscoverResult.
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

// Hints are what a modern result says of its kind and its keeping: it is
// complete, the caller's alone, and good for ttl, a number of milliseconds.
func Hints(ttl string) []rawjson.Edit {
	return []rawjson.Edit{{Key: "resultType", Value: []byte(`"complete"`)}, {Key: "ttlMs", Value: []byte(ttl)},
		{Key: "cacheScope", Value: []byte(`"private"`)}}
}

// List is the result of a list method, in one page: array under name.
func List(modern bool, name string, array []byte, ttl string) upstream.Reply {
	out := rawjson.Set(nil, rawjson.Edit{Key: name, Value: array})
	if modern {
		out = rawjson.Set(out, Hints(ttl)...)
	}
	return upstream.Reply{Result: out}
}

// Life is how long a connection is there, and the part of upstream.Conn that is
// the same for every server that asks nothing and is told nothing.
type Life struct {
	Context context.Context // ends with the connection
	End     context.CancelFunc
}

// NewLife begins a life that ends with the server's.
func NewLife(server context.Context) Life {
	ctx, end := context.WithCancel(server)
	return Life{Context: ctx, End: end}
}

// With is ctx, which ends with the connection too.
func (l Life) With(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.Context, cancel)
	return ctx, func() { stop(); cancel() }
}

// Notify implements upstream.Conn. There is nothing that a client could tell.
func (Life) Notify(context.Context, string, []byte) error { return nil }

// Answer implements upstream.Conn. Nothing is asked.
func (Life) Answer(context.Context, wire.ID, upstream.Reply) error { return nil }

// Listen implements upstream.Conn. Events come without it.
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
