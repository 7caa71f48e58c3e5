package relay

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	doorward "github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// doors are the ways in which a client reaches Doorward, in the words of the page:
// "sse" is the transport of 2024-11-05.
var doors = []struct{ name, words string }{
	{"http", "Streamable HTTP"}, {"sse", "HTTP+SSE"}, {"connect", "`doorward connect`"},
}

// kinds are the transports of servers.
var kinds = []struct{ name, words string }{
	{"stdio", "stdio"}, {"http", "Streamable HTTP"}, {"sse", "HTTP+SSE"},
}

// carries reports that a transport has an era.
func carries(transport, era string) bool { return transport != "sse" || era == "legacy" }

// talk is a client that gets everything on one stream: that of the transport of
// 2024-11-05, or the output of `doorward connect`.
type talk struct {
	*reply
	p     *pair
	say   func(msg string)
	hello string // the answer to initialize
	last  int
}

// talk is the pair's client; nil: it speaks Streamable HTTP.
func (p *pair) talk() *talk {
	if p.door != "http" && p.one == nil {
		p.one = p.newTalk()
	}
	return p.one
}

func (p *pair) newTalk() *talk {
	c := &talk{p: p}
	if p.door == "sse" {
		c.overSSE()
	} else {
		c.overConnect()
	}
	if p.client == "legacy" {
		c.hello, _ = c.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":`+p.caps+`,"clientInfo":{"name":"tester","version":"9"}}`)
		c.say(notification("notifications/initialized", ""))
	}
	return c
}

// overSSE opens the stream; messages go to the address that it names.
func (c *talk) overSSE() {
	h := c.p.house
	c.reply = h.send("GET", strings.Replace(c.p.path, "/mcp", "/sse", 1), "uid:1000", "", "Accept", "text/event-stream")
	endpoint := c.next()
	c.say = func(msg string) {
		if r := h.send("POST", endpoint, "uid:1000", msg); r.status != http.StatusAccepted {
			h.t.Errorf("POST %s: %d", msg, r.status)
		}
	}
}

// overConnect runs what `doorward connect` runs, on pipes.
func (c *talk) overConnect() {
	t := c.p.house.t
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	daemon := doorward.New(c.p.socket(), "test")
	c.reply = &reply{t: t, msgs: make(chan string, 4096)}
	c.say = func(msg string) { io.WriteString(in, msg+"\n") }
	var done sync.WaitGroup
	done.Go(func() {
		defer stdout.Close()
		server := strings.TrimPrefix(strings.TrimPrefix(c.p.path, "/mcp"), "/")
		if err := doorward.Connect(context.Background(), daemon, doorward.ConnectOptions{Server: server, In: stdin, Out: stdout, Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Errorf("connect: %v", err)
		}
	})
	done.Go(func() {
		defer close(c.msgs)
		lines := bufio.NewScanner(out)
		for lines.Buffer(nil, 1<<22); lines.Scan(); {
			c.msgs <- lines.Text()
		}
	})
	t.Cleanup(func() { in.Close(); done.Wait(); daemon.Close() })
}

// ask makes one request, and answers what the server asks meanwhile. before is what
// else came, apart from changes, which belong to no request.
func (c *talk) ask(method, params string) (end string, before []string) {
	c.t.Helper()
	c.last++
	id := fmt.Sprint(c.last)
	c.say(request(id, method, params))
	for {
		m := c.next()
		switch {
		case field(m, "method") == "":
			if field(m, "id") != id {
				c.t.Fatalf("%s was answered with %s", id, m)
			}
			return m, before
		case field(m, "id") != "":
			c.say(`{"jsonrpc":"2.0","id":` + field(m, "id") + `,"result":` + answers[text(m, "method")] + `}`)
		case !protocol.IsChange(text(m, "method")):
			before = append(before, m)
		}
	}
}

// modernly gives params what each request of the modern era carries.
func (p *pair) modernly(params string, meta []rawjson.Edit) string {
	return string(rawjson.SetIn([]byte(params), "_meta", append([]rawjson.Edit{
		{Key: wire.MetaVersion, Value: []byte(`"2026-07-28"`)}, {Key: wire.MetaCapabilities, Value: []byte(p.caps)},
		{Key: wire.MetaClientInfo, Value: []byte(`{"name":"tester","version":"9"}`)},
	}, meta...)...))
}

// once makes one request of a modern client.
func (p *pair) once(method, params string, meta []rawjson.Edit) (end string, before []string) {
	if c := p.talk(); c != nil {
		return c.ask(method, p.modernly(params, meta))
	}
	r := p.modernClient(meta...).begin(method, params)
	end = r.end()
	return end, r.before
}

// hears opens what changes come on.
func (p *pair) hears(uri string) *reply {
	c, filter := p.talk(), `{"toolsListChanged":true,"resourceSubscriptions":["`+uri+`"]}`
	switch {
	case p.client == "modern" && c == nil:
		r, _ := p.modernClient().subscribe(filter)
		return r
	case p.client == "modern":
		c.last++
		c.say(request(fmt.Sprint(c.last), "subscriptions/listen", p.modernly(`{"notifications":`+filter+`}`, nil)))
		c.nextOf("notifications/subscriptions/acknowledged")
		return c.reply
	}
	r := (*reply)(nil)
	if c != nil {
		r = c.reply
	} else {
		r = p.session().listen()
	}
	p.call("tools/list", `{}`)
	p.call("resources/subscribe", `{"uri":"`+uri+`"}`)
	return r
}

// informs sends a notification, and returns what its client is told about it.
func (p *pair) informs(method, params string) string {
	c := p.talk()
	switch {
	case c == nil:
		if status := inform(p.house, p.client, p.path, "uid:1000", method, params).status; status != http.StatusAccepted {
			return fmt.Sprint(status)
		}
		return ""
	case p.client == "modern":
		params = p.modernly(params, nil)
	}
	c.say(notification(method, params))
	return ""
}
