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
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// disguise makes the answer for a withheld name: the server's own answer to an
// unknown name, with the requested name in its place. Nothing of the call is
// sent, and only an answer that cannot be the result of a use is accepted.
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
	req, err := k.translation.outgoing(ctx, x, l, c, t)
	if err != nil {
		return upstream.Reply{}, held
	}
	req.Headers, req.ProgressToken = nil, nil
	reply, err := c.conn.Call(ctx, &req, func(e upstream.Event) {
		if e.ID != nil {
			go l.asks.reply(c, e.ID, question.Refusal(e.Method))
		}
	})
	if err == nil {
		reply, err = content.Reply(l.b.Scan, t.found, t.Method(), reply)
	}
	if err == nil {
		reply, err = k.translation.incoming(x, l, c, t, reply)
	}
	if err != nil || reply.Error == nil && !(t.Method() == "tools/call" && rawjson.IsTrue(wire.Get(reply.Result, "isError"))) {
		return upstream.Reply{}, held
	}
	reply = renamed(reply, made, was)
	if mentions(reply, made[max(0, len(made)-markLen):]) { // written in another way
		return upstream.Reply{}, held
	}
	return upstream.Reply{}, &disguised{error: held, reply: reply}
}

// markLen is the length of what makes a strange name strange.
const markLen = 26

func mentions(reply upstream.Reply, mark string) bool {
	text := reply.Result
	if reply.Error != nil {
		text = slices.Concat([]byte(reply.Error.Message), reply.Error.Data, reply.Error.Raw)
	}
	return bytes.Contains(bytes.ToLower(text), []byte(mark))
}

// strangeName is a name that a server cannot have and whose answer can be
// rewritten for t's name. It therefore needs no escape in JSON, and in an address
// nothing before its end that may hide the end from a server.
func strangeName(t target) (name string) {
	mark := strings.ToLower(rand.Text())[:markLen]
	was := t.Name()
	switch t.Method() {
	case "tools/call", "prompts/get":
		name = mark
	case "resources/read", "resources/subscribe":
		name = was + "-" + mark // of the same sort of address
	}
	for i := 0; i < len(was); i++ {
		if c := was[i]; c <= ' ' || c >= 0x7F || c == '"' || c == '\\' || c == '/' && !t.NamesURI() || c == '#' || c == '?' || c == '%' || c == '<' || c == '>' || c == '&' || c == '\'' {
			return ""
		}
	}
	return name
}

// renamed puts one name in the place of another all over a reply.
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
