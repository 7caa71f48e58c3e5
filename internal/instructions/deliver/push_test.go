package deliver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

func unmarshal(text string, into any) error { return json.Unmarshal([]byte(text), into) }

func rawData(r upstream.Reply) []byte {
	if r.Error == nil {
		return nil
	}
	return r.Error.Data
}

// hearing is a subscriptions/listen under way, or a legacy session's stream.
type hearing struct {
	events <-chan upstream.Event
	done   chan upstream.Reply
	end    context.CancelFunc
}

const everyChange = `{"notifications":{"promptsListChanged":true,"resourcesListChanged":true,"toolsListChanged":true,"resourceSubscriptions":["instr://session","instr://templates/plan","instructions://templates/foreign","agent://inbox"]}}`

// hear begins to listen, in either era, as the relay does.
func (c *client) hear(t *testing.T) *hearing {
	t.Helper()
	if c.session != "" {
		for _, uri := range []string{"instr://session", "instr://templates/plan", "instructions://templates/foreign"} {
			if r := c.ask("resources/subscribe", m{"uri": uri}); r.Error != nil {
				t.Fatal(r.Error)
			}
		}
		return &hearing{events: c.events}
	}
	l, ack := c.listen(t, everyChange)
	want := `{"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["instr://session","instr://templates/plan","instructions://templates/foreign"]}`
	if got := string(rawjson.Get(ack.Params, "notifications")); got != want || rawjson.GetPath(ack.Params, "_meta", wire.MetaSubscription) == nil {
		t.Errorf("%s %s", ack.Method, ack.Params)
	}
	return l
}

// listen begins a subscriptions/listen, under a pass as the relay does, and
// gives its acknowledgement.
func (c *client) listen(t *testing.T, params string) (*hearing, upstream.Event) {
	t.Helper()
	act := c.act("subscriptions/listen", "")
	act.Kind = gate.Stream
	pass, err := c.h.gate.Enter(act)
	c.h.must(err)
	ctx, cancel := context.WithCancel(gate.WithPass(context.Background(), pass))
	l := &hearing{done: make(chan upstream.Reply, 1), end: cancel}
	events := make(chan upstream.Event, 64)
	l.events = events
	go func() {
		defer pass.Leave("ended", 0)
		r, _ := c.conn.Call(ctx, &upstream.Request{Method: "subscriptions/listen", Params: []byte(params)}, func(e upstream.Event) { events <- e })
		l.done <- r
	}()
	t.Cleanup(cancel)
	ack := next(t, events)
	if ack.Method != "notifications/subscriptions/acknowledged" {
		t.Errorf("%s %s", ack.Method, ack.Params)
	}
	return l, ack
}

// mark is an event that a test appends to the notifications of a listener.
const mark = "notifications/mark"

// tell looks into the directory and notifies all listeners of the changes. When it
// returns, only the listens' own writing remains. It is for a house that is still.
func (h *house) tell() {
	h.t.Helper()
	h.look()
	h.s.spread()
	for _, c := range h.s.conns.all() {
		if !c.modern {
			c.on(upstream.Event{Method: mark})
			continue
		}
		c.mu.Lock()
		for l := range c.listens {
			l.put(upstream.Event{Method: mark})
		}
		c.mu.Unlock()
	}
}

// heard are the notifications of a listener up to the mark, sorted.
func (l *hearing) heard(t *testing.T) (out []string) {
	t.Helper()
	for {
		e := next(t, l.events)
		if e.Method == mark {
			slices.Sort(out)
			return out
		}
		word := strings.TrimPrefix(e.Method, "notifications/")
		if uri, ok := rawjson.GetString(e.Params, "uri"); ok {
			word += " " + uri
		}
		out = append(out, word)
	}
}

// TestAChangeNotifiesOnlyTheListenersItAffects: a listener is notified of a change if
// and only if it changes the texts or lists of its session, in both eras.
func TestAChangeNotifiesOnlyTheListenersItAffects(t *testing.T) {
	t.Parallel()
	h := build(t, plan{still: true})
	listeners := make(map[string]*hearing)
	full, partly := h.full(), h.partly()
	for who, delivery := range map[string]string{"full": full, "partly": partly, "none": ""} {
		listeners[who+" legacy"] = h.legacy(who, delivery).hear(t)
		listeners[who+" modern"] = h.modern(who, delivery).hear(t)
	}
	expect := func(what string, want map[string][]string) {
		t.Helper()
		h.tell()
		for who, l := range listeners {
			name, _, _ := strings.Cut(who, " ")
			if got := l.heard(t); !slices.Equal(got, want[name]) {
				t.Errorf("%s: %s heard %q, want %q", what, who, got, want[name])
			}
		}
	}
	h.file("judge", "class: instructions", "The umber heron changed its mind.")
	expect("a behavioural text", map[string][]string{"full": {"resources/updated instr://session"}})
	h.file("plan", "class: instructions\ntier: structural", "Another plan.")
	both := []string{"resources/updated instr://session", "resources/updated instr://templates/plan"}
	expect("a structural text", map[string][]string{"full": both, "partly": both})
	h.file("extra", "class: template\nmcp_prompt: true", "More of it.")
	expect("a new behavioural prompt", map[string][]string{"full": {"prompts/list_changed", "resources/list_changed", "resources/updated instr://session"}})
	h.file("foreign", "class: template\ntier: structural\naudience: {principals: [\"token:other\"]}", "For another one, again.")
	expect("a text for other readers", nil)
	_, err := h.lib.Rollback(context.Background(), "plan", said)
	h.must(err)
	expect("a rollback", map[string][]string{"full": both, "partly": both})
	_, err = h.lib.Promote(context.Background(), "plan", "", "", said)
	h.must(err)
	expect("a promote", map[string][]string{"full": both, "partly": both})
	_, err = h.lib.Promote(context.Background(), "plan", "", "staging", said)
	h.must(err)
	expect("another label", nil)
	h.gate.SetPolicy(h.rules(`@id("tier") forbid (principal, action == Action::"instructions.behavioural", resource);`))
	h.s.Policy()
	expect("a change of the policy", map[string][]string{"full": {"prompts/list_changed", "resources/list_changed", "resources/updated instr://session"}})
	h.end(partly)
	gone := []string{"prompts/list_changed", "resources/list_changed", "resources/updated instr://session", "resources/updated instr://templates/plan", "resources/updated instructions://templates/foreign"}
	expect("the end of a session", map[string][]string{"partly": gone})
	h.file("plan", "class: instructions\ntier: structural", "A third plan.")
	expect("a text that one reader may no longer have", map[string][]string{"full": both})
}

// TestListenersAreNotifiedWhenTheStoreReturns: a listener that got nothing during an
// outage is notified when the store is back. One that kept its texts is not.
func TestListenersAreNotifiedWhenTheStoreReturns(t *testing.T) {
	t.Parallel()
	h := build(t, plan{still: true})
	had, fresh := h.full(), h.full()
	h.modern("had", had).greeting("initialize")
	h.take(true)
	calm, waits := h.modern("had", had).hear(t), h.legacy("fresh", fresh).hear(t)
	h.take(false)
	h.tell()
	want := []string{"prompts/list_changed", "resources/list_changed", "resources/updated instr://session", "resources/updated instr://templates/plan"}
	if got := waits.heard(t); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := calm.heard(t); got != nil {
		t.Errorf("one that went on heard %q", got)
	}
}

// TestAStreamOfEventsTellsTheRevision: a stream has one event for each revision of
// its reader, and a slow one at least the newest.
func TestAStreamOfEventsTellsTheRevision(t *testing.T) {
	t.Parallel()
	h := build(t, plan{still: true})
	r, less := h.reader(h.full()), h.reader(h.partly())
	events, leave := h.s.Hears(r)
	others, leaveToo := h.s.Hears(less)
	defer leaveToo()
	h.file("judge", "class: instructions", "Another judgement.")
	h.tell()
	h.tell()
	if len(events) != 1 || len(others) != 0 {
		t.Fatalf("%d events, and %d for a reader whose view is the same", len(events), len(others))
	}
	if e := <-events; e.Name != EventChanged || e.Revision != h.s.readers.revision(r) || len(e.Revision) != 64 {
		t.Errorf("%+v", e)
	}
	for i := range 3 * earRoom { // without a read
		h.file("judge", "class: instructions", fmt.Sprintf("Judgement %d.", i))
		h.tell()
	}
	last := Event{}
	for len(events) > 0 {
		last = <-events
	}
	if last.Revision != h.s.readers.revision(r) {
		t.Error("a slow reader misses the newest")
	}
	leave()
	h.file("judge", "class: instructions", "The last one.")
	h.tell()
	if len(events) > 0 {
		t.Error("one that left is told")
	}
	h.s.Close()
	if !closed(others) {
		t.Error("a stream outlives the server")
	}
	if late, _ := h.s.Hears(r); !closed(late) {
		t.Error("a stream begins after the end")
	}
}

// TestRunNotifiesOfAChangedFile: while Run runs, a changed file reaches the streams of
// events and the listeners.
func TestRunNotifiesOfAChangedFile(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	id := h.full()
	events, leave := h.s.Hears(h.reader(id))
	defer leave()
	l := h.modern("a", id).hear(t)
	h.file("judge", "class: instructions", "Another judgement.")
	select {
	case e := <-events:
		if e.Name != EventChanged {
			t.Errorf("%+v", e)
		}
	case <-time.After(20 * time.Second):
		t.Error("the stream of events got no event")
	}
	if e := next(t, l.events); e.Method != resourceUpdated {
		t.Errorf("%+v", e)
	}
}

func closed(events <-chan Event) bool {
	select {
	case _, open := <-events:
		return !open
	case <-time.After(20 * time.Second):
		return false
	}
}
