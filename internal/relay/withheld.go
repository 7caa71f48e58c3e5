package relay

import (
	"bytes"
	"context"
	"crypto/rand"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/content"
	"github.com/doorward/doorward/internal/upstream"
)

// disguise makes the answer for a withheld name: the server's own answer to an unknown name,
// with the requested name in its place. No arguments of the call are sent, and only an answer
// that cannot be the result of a use is accepted.
func (k *calls) disguise(ctx context.Context, x *front.Exchange, l *link, c *liveConn, t target, held error) (upstream.Reply, error) {
	was := t.Name()
	made := strangeName(t)
	if made == "" {
		return upstream.Reply{}, held
	}
	edits := []rawjson.Edit{{Key: "inputResponses"}, {Key: "requestState"}}
	if !t.NamesURI() {
		edits = append(edits, rawjson.Edit{Key: "arguments", Value: rawjson.Empty})
	}
	t.Target = t.Renamed(made)
	t.Target, _ = t.With(rawjson.Set(t.Params(), edits...))
	req, err := k.translation.outgoing(ctx, x, l, c, &t)
	if err != nil {
		return upstream.Reply{}, held
	}
	req.Headers, req.ProgressToken = nil, nil
	reply, err := c.conn.Call(ctx, &req, func(e upstream.Event) {
		if e.ID != nil {
			l.asks.refuse(c, e)
		}
	})
	if err == nil {
		reply, err = content.Reply(l.b.Scan, t.found, t.Method(), reply)
	}
	if err == nil {
		reply, err = k.translation.incoming(x, l, c, t, reply)
	}
	if err != nil || reply.Error == nil && !(t.Method() == "tools/call" && rawjson.IsTrue(rawjson.Get(reply.Result, "isError"))) {
		return upstream.Reply{}, held
	}
	reply = renamed(reply, made, was)
	if mentions(reply, made[max(0, len(made)-markLen):]) { // it is there in another spelling
		return upstream.Reply{}, held
	}
	return upstream.Reply{}, &disguised{error: held, reply: reply}
}

// markLen is the length of the random part of a strange name.
const markLen = 26

func mentions(reply upstream.Reply, mark string) bool {
	text := reply.Result
	if reply.Error != nil {
		text = slices.Concat([]byte(reply.Error.Message), reply.Error.Data, reply.Error.Raw)
	}
	return bytes.Contains(bytes.ToLower(text), []byte(mark))
}

// strangeName makes a random name that no server has and that can be replaced by t's name in
// the answer. For that t's name must need no escape in JSON, and an address must hold nothing
// that may hide its end from a server. Empty: it does not qualify.
func strangeName(t target) (name string) {
	mark := strings.ToLower(rand.Text())[:markLen]
	was := t.Name()
	switch t.Method() {
	case "tools/call", "prompts/get":
		name = mark
	case "resources/read", "resources/subscribe":
		name = was + "-" + mark // the same sort of address
	}
	for i := 0; i < len(was); i++ {
		if c := was[i]; c <= ' ' || c >= 0x7F || c == '"' || c == '\\' || c == '/' && !t.NamesURI() || c == '#' || c == '?' || c == '%' || c == '<' || c == '>' || c == '&' || c == '\'' {
			return ""
		}
	}
	return name
}

// renamed replaces one name by another everywhere in a reply.
func renamed(reply upstream.Reply, made, name string) upstream.Reply {
	put := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		return bytes.ReplaceAll(b, []byte(made), []byte(name))
	}
	if reply.Error == nil {
		return upstream.Reply{Result: put(reply.Result)}
	}
	e := *reply.Error
	e.Message, e.Data, e.Raw = strings.ReplaceAll(e.Message, made, name), put(e.Data), put(e.Raw)
	return upstream.Reply{Error: &e}
}
