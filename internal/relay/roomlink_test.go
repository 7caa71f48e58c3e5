package relay

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/front"
)

// The process of an idle session gives way only if its link is idle too. A request that was
// answered with an error may have left a start that ended later, and a cancelled call still runs at
// the server.
func TestAProcessInUseMakesNoRoom(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(*link){
		"a call runs":     func(l *link) { l.calls.Store(1) },
		"started later":   func(l *link) { l.used.Store(time.Now().Add(time.Hour).UnixNano()) },
		"a task may work": func(l *link) { l.tasks.Store(true) },
		"nothing":         func(*link) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scripted(t, "s")
			h := build(t, []Server{s.server(capped(1))})
			h.relay.sessions.left = 0
			one := inState(h, s, "left")
			l := bound(h.frontOf(one)).all()[0].link
			use(l)
			next := &session{house: h, who: "token:ann", path: "/mcp/s", version: "2025-11-25"}
			equal(t, "gives way", strconv.FormatBool(code(next.hello0(`{}`).end()) == ""), strconv.FormatBool(name == "nothing"))
			equal(t, "is closed", strconv.FormatBool(l.ctx.Err() != nil), strconv.FormatBool(name == "nothing"))
			l.calls.Store(0)
		})
	}
}

// The start of a session never ends another process of that session.
func TestASessionMakesNoRoomForItself(t *testing.T) {
	t.Parallel()
	s := scripted(t, "s")
	h := build(t, []Server{s.server(capped(1))})
	h.relay.sessions.left = 0
	one := inState(h, s, "left")
	d := bound(h.frontOf(one))
	l := d.all()[0].link
	b := h.relay.table.Load().byName["s"]
	if gone := h.relay.sessions.makeRoom(&l.owner, b); gone != nil || l.ctx.Err() != nil {
		t.Error("its own process gives way")
	}
	if gone := h.relay.sessions.makeRoom(&owner{}, b); gone != nil || l.ctx.Err() != nil {
		t.Error("it gives way to a process without a principal")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	select {
	case <-h.relay.sessions.makeRoom(&owner{who: d.session.Who, client: front.Legacy}, b):
	case <-ctx.Done():
		t.Error("it does not give way to another")
	}
}

// A process that sessions share does not give way, also while only one session uses it.
func TestASharedProcessMakesNoRoom(t *testing.T) {
	t.Parallel()
	s := scripted(t, "s")
	h := build(t, []Server{s.server()})
	h.relay.sessions.left = 0
	one := inState(h, s, "left")
	if l := bound(h.frontOf(one)).all()[0].link; l.private() {
		t.Fatal("the process is not shared")
	}
	who := h.frontOf(one).Who
	if gone := h.relay.sessions.makeRoom(&owner{who: who}, h.relay.table.Load().byName["s"]); gone != nil {
		t.Error("it gives way")
	}
}

// A request that does not use the process shows that the client is still there.
func TestAPingKeepsAProcess(t *testing.T) {
	t.Parallel()
	s := scripted(t, "s")
	h := build(t, []Server{s.server(capped(1))})
	h.relay.sessions.left = time.Hour
	one := inState(h, s, "left")
	bound(h.frontOf(one)).all()[0].link.used.Store(0)
	one.call("ping", `{}`)
	h.idle(one)
	who := h.frontOf(one).Who
	if gone := h.relay.sessions.makeRoom(&owner{who: who}, h.relay.table.Load().byName["s"]); gone != nil {
		t.Error("it gives way")
	}
}
