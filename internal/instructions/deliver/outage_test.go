package deliver

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/test/overload"
)

// TestASessionGoesOnWithoutTheStore: a session that was given its texts keeps them
// during an outage. A session that was not gets the generic text without delay.
func TestASessionGoesOnWithoutTheStore(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	ctx := context.Background()
	had, fresh := h.full(), h.full()
	begun, _ := h.modern("a", had).greeting("initialize")
	h.take(true)
	old, young := h.modern("a", had), h.modern("b", fresh)
	if text, less := old.greeting("initialize"); text != begun || less != "" {
		t.Errorf("%s: %s", less, text)
	}
	if text, r := old.tool("read", m{"name": "voice"}); !strings.Contains(text, plantedVoice) || isDegraded(r) {
		t.Error(text)
	}
	start := time.Now()
	text, less := young.greeting("initialize")
	if less != Unreachable || text != Generic(Unreachable) || time.Since(start) > patience+overload.Late() {
		t.Errorf("%s after %v: %s", less, time.Since(start), text)
	}
	for _, name := range []string{"", "voice", "nothing"} {
		args := m{}
		if name != "" {
			args["name"] = name
		}
		if text, r := young.tool("read", args); text != Generic(Unreachable) || !isDegraded(r) {
			t.Errorf("%q: %s", name, text)
		}
	}
	if _, err := h.s.deliveries.Template(ctx, h.reader(fresh), "plan", "", ""); !errors.Is(err, ErrStore) {
		t.Errorf("%v", err)
	}
	for id, want := range map[string]Status{had: {State: "full", Store: "unreachable"}, fresh: {State: "degraded", Reason: Unreachable, Store: "unreachable"}} {
		if got := h.s.readers.Status(h.reader(id)); got.State != want.State || got.Reason != want.Reason || got.Store != want.Store || got.SessionID != id || got.Expires == "" {
			t.Errorf("%+v", got)
		}
	}
	h.end(had)
	if text, less := old.greeting("initialize"); less != Expired || text != Generic(Expired) {
		t.Errorf("after its end: %s: %s", less, text)
	}
	h.take(false)
	if text, less := young.greeting("initialize"); less != "" || !strings.Contains(text, plantedJudge) {
		t.Errorf("%s: %s", less, text)
	}
}

// TestABearerTokenGoesOnForAWhile: a bearer token keeps its texts for bearerKept
// during an outage. It has no session whose end would remove them.
func TestABearerTokenGoesOnForAWhile(t *testing.T) {
	t.Parallel()
	clock := make(chan time.Time, 1)
	clock <- time.Now()
	now := func() time.Time { at := <-clock; clock <- at; return at }
	h := build(t, plan{change: func(o *Options) { o.Now = now }})
	r := h.s.readers.bearerReader(principal.New("token:ci").WithLocal())
	ask := func() error { _, err := h.s.deliveries.Instructions(context.Background(), r, 0); return err }
	h.must(ask())
	h.take(true)
	h.must(ask())
	at := <-clock
	clock <- at.Add(bearerKept - time.Second)
	h.must(ask())
	<-clock
	clock <- at.Add(bearerKept)
	if err := ask(); !errors.Is(err, ErrStore) {
		t.Errorf("%v", err)
	}
}

// blocked is a library whose first look never ends.
type blocked struct{ Library }

func (blocked) Ready(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func (b blocked) Set() (*document.Set, library.State) {
	set, _ := document.NewSet(nil)
	return set, library.State{Reason: "it was not looked at yet"}
}

func TestAStoreThatIsNeverReadyCostsTwoSecondsAtMost(t *testing.T) {
	t.Parallel()
	h := build(t, plan{failClosed: true, library: func(l Library) Library { return blocked{l} }})
	c := h.modern("a", h.full())
	waits := func(what string, do func()) {
		t.Helper()
		var took time.Duration
		for range 3 { // a busy machine may be late itself
			begin := time.Now()
			do()
			if took = time.Since(begin); took <= 2*time.Second {
				return
			}
		}
		t.Errorf("%s took %v", what, took)
	}
	waits("a greeting", func() {
		if text, less := c.greeting("initialize"); less != Unreachable || text != Generic(Unreachable) {
			t.Errorf("%s: %s", less, text)
		}
	})
	waits("a tool", func() {
		if text, _ := c.tool("read", m{}); text != Generic(Unreachable) {
			t.Error(text)
		}
	})
	waits("a question of the door", func() {
		if why := h.s.Refuses(c.act("tools/call", "x")); why != Unreachable {
			t.Error(why)
		}
	})
}

// TestCallsAreRefusedWithoutFullGuidance: under fail_closed a call without guidance
// is refused with the reason.
func TestCallsAreRefusedWithoutFullGuidance(t *testing.T) {
	t.Parallel()
	h := build(t, plan{failClosed: true})
	over, had, fresh, partly := h.full(), h.full(), h.full(), h.partly()
	why := func(delivery string) string {
		return h.s.Refuses(gate.Act{Who: program("a"), Action: "tools/call", Server: "notes", Name: "add", Delivery: delivery})
	}
	h.modern("a", had).greeting("initialize")
	h.end(over)
	want := func(delivery, reason string) {
		t.Helper()
		if got := why(delivery); got != reason {
			t.Errorf("refused for %q, want %q", got, reason)
		}
	}
	want("", NoToken)
	want(over, Expired)
	want(had, "")
	want(fresh, "")
	want(partly, "")
	if got := h.s.readers.Status(nil); got.State != "refused" || got.Reason != NoToken || !got.FailClosed {
		t.Errorf("%+v", got)
	}
	h.take(true)
	want(had, "")
	want(fresh, Unreachable)
	want("", NoToken)
	h.take(false)
	want(fresh, "")
	h.gate.SetPolicy(h.rules(`@id("none") forbid (principal, action == Action::"instructions.read", resource);`))
	h.s.Policy()
	want(had, NotPermitted)
	h.gate.SetPolicy(h.rules(`@id("none") forbid (principal, action in [Action::"instructions.behavioural", Action::"instructions.structural"], resource);`))
	h.s.Policy()
	want(had, NotPermitted)
	if got := h.s.readers.bearerReader(principal.New("token:ci")); h.s.readers.Degraded(got) != NotPermitted {
		t.Error("a token without a tier")
	}
	h.s.o.FailClosed = false
	want("", "")
	if got := h.s.readers.Status(nil); got.State != "degraded" {
		t.Errorf("%+v", got)
	}
}

// TestTheCacheOfASessionEndsWithIt: the end of a session removes its texts from
// memory at once and ends its streams, and those of no other session.
func TestTheCacheOfASessionEndsWithIt(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	id, stays := h.full(), h.full()
	c, other := h.legacy("a", id), h.modern("b", stays)
	c.everything(h)
	other.everything(h)
	events, leave := h.s.Hears(h.reader(id))
	defer leave()
	kept, leave := h.s.Hears(h.reader(stays))
	defer leave()
	if !h.s.readers.cache.has(id, time.Now()) {
		t.Fatal("it was given nothing")
	}
	h.end(id)
	if h.s.readers.cache.has(id, time.Now()) || len(h.s.readers.cache.held) != 1 {
		t.Errorf("%d readers are kept", len(h.s.readers.cache.held))
	}
	for _, cn := range h.s.conns.all() {
		cn.mu.Lock()
		for l := range cn.listens {
			if l.act.Delivery == id && l.seen.whole {
				t.Error("a connection knows what it saw")
			}
		}
		cn.mu.Unlock()
	}
	if e, open := <-events; !open || e.Name != EventRevoked {
		t.Errorf("%+v %t", e, open)
	}
	if _, open := <-events; open {
		t.Error("its stream goes on")
	}
	late, leave := h.s.Hears(&Reader{Who: program("x"), Session: h.reader(stays).Session})
	leave()
	select {
	case e := <-late:
		t.Errorf("%+v", e)
	case e := <-kept:
		t.Errorf("%+v", e)
	default:
	}
	gone := &Reader{Who: program("x"), Session: h.reader(stays).Session}
	h.end(stays)
	after, leave := h.s.Hears(gone)
	defer leave()
	if e := <-after; e.Name != EventRevoked {
		t.Errorf("a stream that begins after the end: %+v", e)
	}
	if _, err := h.s.deliveries.Instructions(context.Background(), gone, 0); !errors.Is(err, ErrEnded) {
		t.Errorf("%v", err)
	}
}

// TestARevokedDocumentIsNoLongerServed: a session that had the document loses it
// too, also during an outage.
func TestARevokedDocumentIsNoLongerServed(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	ctx := context.Background()
	r := h.reader(h.full())
	was, err := h.s.deliveries.Voice(ctx, r)
	h.must(err)
	_, err = h.lib.Revoke(ctx, "voice", "", said)
	h.must(err)
	if _, err := h.s.deliveries.Voice(ctx, r); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	if _, err := h.s.deliveries.Template(ctx, r, "voice", was.Version, ""); err != nil && !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	h.take(true)
	if _, err := h.s.deliveries.Voice(ctx, r); !errors.Is(err, ErrNotFound) {
		t.Errorf("it comes back with the outage: %v", err)
	}
}

// takenBack is a library whose remote has withdrawn its documents. Its set keeps
// the last ones, so that the test does not pass merely because the set is empty.
type takenBack struct {
	Library
	gone atomic.Bool
}

func (l *takenBack) Set() (*document.Set, library.State) {
	set, state := l.Library.Set()
	if l.gone.Load() {
		state = library.State{Reason: "taken back", Withdrawn: true, Remote: true}
	}
	return set, state
}

// TestDocumentsWithdrawnByTheRemoteAreNotServed: a session that had them gets them
// in no way either, until the remote gives them again.
func TestDocumentsWithdrawnByTheRemoteAreNotServed(t *testing.T) {
	t.Parallel()
	var shelf *takenBack
	h := build(t, plan{library: func(l Library) Library { shelf = &takenBack{Library: l}; return shelf }})
	c := h.modern("a", h.full())
	ways := map[string]func() string{
		"greeting": func() string { text, _ := c.greeting("initialize"); return text },
		"read":     func() string { text, _ := c.tool("read", m{}); return text },
		"a name":   func() string { text, _ := c.tool("read", m{"name": "plan"}); return text },
		"resource": func() string { return string(c.ask("resources/read", m{"uri": "instr://session"}).Result) },
		"prompt":   func() string { return string(c.ask("prompts/get", m{"name": "session"}).Result) },
	}
	for name, ask := range ways {
		if !strings.Contains(ask(), plantedPlan) && name != "greeting" {
			t.Errorf("%s does not give the text before", name)
		}
	}
	shelf.gone.Store(true)
	for name, ask := range ways {
		if text := ask(); strings.Contains(text, plantedPlan) {
			t.Errorf("%s gives %s", name, text)
		}
	}
	if got := h.s.readers.Status(h.reader(c.delivery)); got.State != "degraded" || got.Reason != Unreachable {
		t.Errorf("%+v", got)
	}
	shelf.gone.Store(false)
	if text := ways["read"](); !strings.Contains(text, plantedPlan) {
		t.Errorf("it is not given again: %s", text)
	}
}
