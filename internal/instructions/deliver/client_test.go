package deliver

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// program is a program of the daemon's user on the Unix socket.
func program(name string) *principal.Principal {
	return principal.New(principal.UID(1000), principal.Fact{Name: "uid", Value: "1000", Grade: principal.Attested},
		principal.Fact{Name: principal.FactInstance, Value: "boot/" + name, Grade: principal.Attested}).WithLocal()
}

// client is one client of the built-in server.
type client struct {
	h        *house
	who      *principal.Principal
	session  string // digest of the MCP session
	delivery string // id of the delivery session whose token it bears
	conn     upstream.Conn
	hello    []byte
	events   chan upstream.Event
}

// legacy opens an MCP session, modern a connection without one.
func (h *house) legacy(name, delivery string) *client {
	return h.open(program(name), "digest-"+name, delivery, false)
}

func (h *house) modern(name, delivery string) *client {
	return h.open(program(name), "", delivery, true)
}

func (h *house) open(who *principal.Principal, digest, delivery string, modern bool) *client {
	c := &client{h: h, who: who, session: digest, delivery: delivery, events: make(chan upstream.Event, 64)}
	c.conn, c.hello = h.s.Open(who, digest, modern, func(e upstream.Event) { c.events <- e })
	return c
}

func (c *client) act(action, name string) gate.Act {
	return gate.Act{Who: c.who, Session: c.session, Action: action, Server: ServerName, Name: name, Source: source, Delivery: c.delivery}
}

// greeting is what initialize or server/discover tell the client.
func (c *client) greeting(method string) (string, string) {
	c.h.t.Helper()
	return c.h.s.Greeting(context.Background(), c.act(method, ""))
}

// ask takes a request to the server as the relay does.
func (c *client) ask(method string, params any) upstream.Reply {
	c.h.t.Helper()
	raw, err := json.Marshal(params)
	c.h.must(err)
	name, ok := rawjson.GetString(raw, "name")
	if !ok {
		name, _ = rawjson.GetString(raw, "uri")
	}
	act := c.act(method, name)
	var pass gate.Pass
	if method == "tools/call" {
		pass, err = c.h.gate.Enter(act.Deferred())
		c.h.must(err)
		defer pass.Leave("ok", 0)
	} else {
		pass, err = c.h.gate.Enter(act)
		c.h.must(err)
		defer pass.Leave("ok", 0)
	}
	r, err := c.conn.Call(gate.WithPass(context.Background(), pass), &upstream.Request{Method: method, Params: raw}, nil)
	c.h.must(err)
	if method == "tools/call" && !pass.Recorded() {
		c.h.t.Errorf("a call without a record: %s", raw)
	}
	if r.Error == nil && wire.ValidateValue(r.Result) != nil {
		c.h.t.Errorf("no JSON: %s", r.Result)
	}
	return r
}

type m = map[string]any

// tool calls a tool and returns its text.
func (c *client) tool(name string, args m) (text string, r upstream.Reply) {
	c.h.t.Helper()
	r = c.ask("tools/call", m{"name": name, "arguments": args})
	if r.Error != nil {
		c.h.t.Fatalf("%s: %v", name, r.Error)
	}
	return textIn(r, "content"), r
}

// textIn is the first text in a list of a result.
func textIn(r upstream.Reply, list string) string {
	for e := range rawjson.Elements(rawjson.Get(r.Result, list)) {
		if inner := rawjson.Get(e, "content"); inner != nil {
			e = inner
		}
		text, _ := rawjson.GetString(e, "text")
		return text
	}
	return ""
}

func isDegraded(r upstream.Reply) bool {
	return string(rawjson.GetPath(r.Result, "_meta", "doorward/degraded")) == "true"
}

// everything is all that a client can list or read, in every way, as one text.
func (c *client) everything(h *house) string {
	var out strings.Builder
	add := func(r upstream.Reply) {
		out.Write(r.Result)
		if r.Error != nil {
			out.WriteString(r.Error.Message + string(r.Error.Data))
		}
	}
	for _, method := range []string{"initialize", "server/discover"} {
		text, less := c.greeting(method)
		out.WriteString(text + less)
	}
	for _, method := range []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"} {
		add(c.ask(method, m{}))
	}
	_, r := c.tool("read", m{})
	add(r)
	_, r = c.tool("status", m{})
	add(r)
	for _, name := range []string{"judge", "voice", "verdict", "mixed", "plan", "minutes", "foreign", "nothing"} {
		_, r := c.tool("read", m{"name": name})
		add(r)
		_, r = c.tool("read", m{"name": name, "vars": m{"case": "x", "rows": 2}})
		add(r)
		add(c.ask("prompts/get", m{"name": name}))
		add(c.ask("prompts/get", m{"name": name, "arguments": m{"case": "x"}}))
		for _, scheme := range []string{"instr://", "instructions://"} {
			add(c.ask("resources/read", m{"uri": scheme + "templates/" + name}))
			add(c.ask("resources/read", m{"uri": scheme + name}))
		}
		add(c.ask("completion/complete", m{"ref": m{"type": "ref/prompt", "name": name}, "argument": m{"name": "case", "value": ""}}))
	}
	add(c.ask("resources/read", m{"uri": "instr://session"}))
	add(c.ask("prompts/get", m{"name": "session"}))
	return out.String()
}

// reader is the reader of a delivery session of the daemon's user.
func (h *house) reader(delivery string) *Reader {
	h.t.Helper()
	r, why := h.s.readers.readerOf(gate.Act{Who: program("reader"), Delivery: delivery})
	if r == nil {
		h.t.Fatalf("no reader: %s", why)
	}
	return r
}

func next(t *testing.T, events <-chan upstream.Event) upstream.Event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(20 * time.Second):
		t.Fatal("no event")
	}
	return upstream.Event{}
}
