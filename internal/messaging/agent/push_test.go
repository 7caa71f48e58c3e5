package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

const listenParams = `{"notifications":{"resourceSubscriptions":["agent://inbox","agent://other"],"toolsListChanged":true}}`

// listening is a running subscriptions/listen.
type listening struct {
	events chan upstream.Event
	end    context.CancelFunc
	done   chan upstream.Reply
}

func (c *agentClient) listen() *listening {
	ctx, cancel := context.WithCancel(context.Background())
	l := &listening{events: make(chan upstream.Event, 16), end: cancel, done: make(chan upstream.Reply, 1)}
	go func() {
		r, _ := c.conn.Call(ctx, &upstream.Request{Method: "subscriptions/listen", Params: []byte(listenParams)}, func(e upstream.Event) { l.events <- e })
		l.done <- r
	}()
	return l
}

func next1(t *testing.T, events chan upstream.Event) upstream.Event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(20 * time.Second):
		t.Fatal("no event")
	}
	return upstream.Event{}
}

func none(t *testing.T, events chan upstream.Event, d time.Duration) {
	t.Helper()
	select {
	case e := <-events:
		t.Fatalf("an event too many: %s %s", e.Method, e.Params)
	case <-time.After(d):
	}
}

func TestAListenIsAcknowledgedAndReportsWaitingMail(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	h.s.minGap = 50 * time.Millisecond
	a, b := h.modern("a").registered("a"), h.legacy("b").registered("b")
	b.call("send", m{"to": "a", "body": "canary"}).want("")
	for range 2 { // each new listen reports mail that is not confirmed
		l := a.listen()
		ack := next1(t, l.events)
		if ack.Method != "notifications/subscriptions/acknowledged" || string(rawjson.Get(ack.Params, "notifications")) != `{"resourceSubscriptions":["agent://inbox"]}` {
			t.Errorf("%s %s", ack.Method, ack.Params)
		}
		e := next1(t, l.events)
		if e.Method != "notifications/resources/updated" || strings.Contains(string(e.Params), "canary") ||
			string(rawjson.GetPath(e.Params, "_meta", wire.MetaSubscription)) != string(rawjson.GetPath(ack.Params, "_meta", wire.MetaSubscription)) {
			t.Errorf("%s %s", e.Method, e.Params)
		}
		none(t, l.events, 150*time.Millisecond)
		if r := b.call("message_status", m{"message_id": "01JC000000000000000000000A"}); r.code() != "UNKNOWN_MESSAGE" {
			t.Error(r.text)
		}
		l.end()
		<-l.done
	}
	l := a.listen()
	next1(t, l.events)
	next1(t, l.events)
	if r := b.call("send", m{"to": "a", "body": "two"}).want(""); r.str("deliveries.0.wake") != "listen" {
		t.Errorf("%s", r.raw)
	}
	next1(t, l.events)
	in := a.call("inbox", m{}).want("")
	a.call("inbox", m{"after": in.str("cursor")}).want("")
	none(t, l.events, 150*time.Millisecond)
	l.end()
	quiet := a.listen()
	next1(t, quiet.events)
	none(t, quiet.events, 150*time.Millisecond)
	h.s.Close()
	if r := <-quiet.done; string(rawjson.Get(r.Result, "resultType")) != `"complete"` {
		t.Errorf("a listen ended by shutdown with %+v", r)
	}
}

func TestAListenBeforeRegistrationReportsLaterMail(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	h.s.minGap = 20 * time.Millisecond
	a := h.modern("a")
	l := a.listen()
	next1(t, l.events)
	a.registered("a")
	h.legacy("b").registered("b").call("send", m{"to": "a", "body": "x"}).want("")
	next1(t, l.events)
}

func TestASubscriptionTellsOnTheSessionsStream(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	h.s.minGap = 2 * time.Second
	a, b := h.legacy("a").registered("a"), h.legacy("b").registered("b")
	ask := func(method, uri string) upstream.Reply {
		r, err := a.conn.Call(context.Background(), &upstream.Request{Method: method, Params: []byte(`{"uri":"` + uri + `"}`)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := ask("resources/subscribe", "agent://inbox/b"); r.Error == nil {
		t.Error("the inbox of another agent has an address")
	}
	ask("resources/subscribe", inboxURI)
	ask("resources/subscribe", inboxURI)
	begin := time.Now()
	b.call("send", m{"to": "a", "body": "one"}).want("")
	next1(t, a.events)
	if r := b.call("send", m{"to": "a", "body": "two"}).want(""); r.str("deliveries.0.wake") != "subscribe" {
		t.Errorf("%s", r.raw)
	}
	b.call("send", m{"to": "a", "body": "three"}).want("")
	next1(t, a.events)
	if d := time.Since(begin); d < h.s.minGap {
		t.Errorf("two wakes within %v", d)
	}
	none(t, a.events, 400*time.Millisecond)
	ask("resources/unsubscribe", inboxURI)
	await(t, "the end of the subscription", func() bool { return h.s.sessions.wake(peerID(a), true) == "none" })
	b.call("send", m{"to": "a", "body": "four"}).want("")
	none(t, a.events, 400*time.Millisecond)
}

func peerID(c *agentClient) string { return c.call("register", m{}).str("peer_id") }

// A message that ends a waiting call is not reported on the listen of the same agent too.
func TestAWaitingCallOwnsTheWake(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	h.s.minGap = 200 * time.Millisecond
	a, b := h.modern("a").registered("a"), h.legacy("b").registered("b")
	b.call("send", m{"to": "a", "body": "before"}).want("")
	l := a.listen()
	next1(t, l.events)
	next1(t, l.events)
	a.call("inbox", m{"after": a.call("inbox", m{}).str("cursor")}).want("")
	done := make(chan *reply)
	go func() { done <- a.call("inbox", m{"wait_ms": 20000}) }()
	await(t, "the wait", func() bool { return h.s.sessions.waiting() == 1 })
	if r := b.call("send", m{"to": "a", "body": "x"}).want(""); r.str("deliveries.0.wake") != "wait" {
		t.Errorf("%s", r.raw)
	}
	if r := <-done; r.len("messages") != 1 {
		t.Errorf("%s", r.raw)
	}
	none(t, l.events, 500*time.Millisecond)
}

func TestTheResourceHoldsCountsAndNoText(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	for era, open := range map[string]func(string) *agentClient{"legacy": h.legacy, "modern": h.modern} {
		a, b := open("a"+era), h.legacy("b"+era).registered("b"+era)
		read := func(uri string) upstream.Reply {
			p, err := h.gate.Enter(gate.Act{Who: a.who, Session: a.session, Action: "resources/read", Server: ServerName, Name: uri}.Deferred())
			if err != nil {
				t.Fatal(err)
			}
			r, err := a.conn.Call(gate.WithPass(context.Background(), p), &upstream.Request{Method: "resources/read", Params: []byte(`{"uri":"` + uri + `"}`)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		content := func() string {
			for c := range rawjson.Elements(rawjson.Get(read(inboxURI).Result, "contents")) {
				text, _ := rawjson.GetString(c, "text")
				return text
			}
			return ""
		}
		if got := content(); got != `{"registered":false,"pending":0,"held":0,"newest_seq":0,"notices":0,"messages":[]}` {
			t.Error(got)
		}
		a.registered("a" + era)
		b.call("send", m{"to": "a" + era, "body": "canary", "subject": "canary"}).want("")
		got := content()
		if !strings.Contains(got, `"pending":1,"held":0,"newest_seq":1`) || strings.Contains(got, "canary") || !strings.Contains(got, `"from":"b`+era+`"`) {
			t.Error(got)
		}
		if r := read("agent://inbox/b"); r.Error == nil || r.Error.Code != -32602 {
			t.Errorf("%+v", r)
		}
		ttl := string(rawjson.Get(read(inboxURI).Result, "ttlMs"))
		if (ttl == "0") != (era == "modern") {
			t.Errorf("ttlMs %q in the %s era", ttl, era)
		}
	}
}

func TestAConnectionDeclaresItsCapabilities(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	legacy, modern := h.legacy("l"), h.modern("m")
	for _, c := range []*agentClient{legacy, modern} {
		caps := rawjson.Get(c.hello, "capabilities")
		if string(caps) != `{"tools":{},"resources":{"subscribe":true}}` || wire.ValidateValue(c.hello) != nil {
			t.Errorf("%s", c.hello)
		}
		if text, _ := rawjson.GetString(c.hello, "instructions"); !strings.Contains(text, "register") {
			t.Errorf("%s", c.hello)
		}
	}
	if rawjson.Get(legacy.hello, "protocolVersion") == nil || rawjson.Get(legacy.hello, "serverInfo") == nil || rawjson.Get(legacy.hello, "ttlMs") != nil {
		t.Errorf("%s", legacy.hello)
	}
	if string(rawjson.Get(modern.hello, "resultType")) != `"complete"` || string(rawjson.Get(modern.hello, "cacheScope")) != `"private"` ||
		rawjson.GetPath(modern.hello, "_meta", wire.MetaServerInfo) == nil || rawjson.Get(modern.hello, "supportedVersions") == nil {
		t.Errorf("%s", modern.hello)
	}
	for method, key := range map[string]string{"tools/list": "tools", "resources/list": "resources", "resources/templates/list": "resourceTemplates"} {
		for _, c := range []*agentClient{legacy, modern} {
			r, err := c.conn.Call(context.Background(), &upstream.Request{Method: method}, nil)
			if err != nil || rawjson.Get(r.Result, key) == nil || wire.ValidateValue(r.Result) != nil {
				t.Errorf("%s: %s %v", method, r.Result, err)
			}
			hinted := string(rawjson.Get(r.Result, "cacheScope")) == `"private"` && rawjson.Get(r.Result, "ttlMs") != nil && rawjson.Get(r.Result, "resultType") != nil
			if hinted != (c == modern) {
				t.Errorf("hints of %s: %s", method, r.Result)
			}
		}
	}
	for _, method := range []string{"prompts/list", "completion/complete", "initialize", "tools/Call"} {
		if r, err := legacy.conn.Call(context.Background(), &upstream.Request{Method: method}, nil); err != nil || r.Error == nil || r.Error.Code != -32601 {
			t.Errorf("%s: %+v %v", method, r, err)
		}
	}
	if r, _ := legacy.conn.Call(context.Background(), &upstream.Request{Method: "subscriptions/listen"}, nil); r.Error == nil {
		t.Error("a legacy session may listen as a modern one")
	}
}
