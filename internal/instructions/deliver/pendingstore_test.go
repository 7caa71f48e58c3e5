package deliver

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// early is the house with another server that has no store yet.
func (h *house) early(wanted bool) *house {
	early := *h
	early.s = New(Options{Wanted: wanted, Gate: h.gate, CanaryKey: h.s.o.CanaryKey, Refs: h.refs, Version: "1"})
	h.t.Cleanup(early.s.Close)
	return &early
}

// TestAServerIsTheSameBeforeItsStoreComes: before its store is available the server
// has the same list of tools and gives the generic text with the reason. Clients
// that connected before get the texts afterwards.
func TestAServerIsTheSameBeforeItsStoreComes(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	id := h.full()
	was := h.modern("a", id)
	lists := string(was.ask("tools/list", m{}).Result)
	h = h.early(true)
	c := h.modern("a", "")
	if got := string(c.ask("tools/list", m{}).Result); got != lists {
		t.Errorf("%s\nwant\n%s", got, lists)
	}
	if text, less := c.greeting("initialize"); less != Unreachable || text != Generic(Unreachable) {
		t.Errorf("%s: %s", less, text)
	}
	bearing := h.modern("b", id)
	if text, r := bearing.tool("read", m{"name": "voice"}); text != Generic(Unreachable) || !isDegraded(r) {
		t.Error(text)
	}
	if got := h.s.readers.Status(nil); got.State != "degraded" || got.Reason != Unreachable || got.Store != "unreachable" {
		t.Errorf("%+v", got)
	}
	if _, _, err := h.s.o.Sessions.Issue(context.Background(), session.Request{Subject: "uid:1000", Scope: []string{document.Structural}}, said); !errors.Is(err, ErrStore) {
		t.Errorf("%v", err)
	}
	h.s.Equip(Stored{Shelf: h.lib, Sessions: h.keeper})
	if text, r := bearing.tool("read", m{"name": "voice"}); !strings.Contains(text, plantedVoice) || isDegraded(r) {
		t.Error(text)
	}
	if text, less := bearing.greeting("initialize"); less != "" || !strings.Contains(text, plantedJudge) {
		t.Errorf("%s: %s", less, text)
	}
}

// TestAnUnusedStoreIsNotReportedMissing: without documents a missing store changes
// no greeting.
func TestAnUnusedStoreIsNotReportedMissing(t *testing.T) {
	t.Parallel()
	h := build(t, plan{}).early(false)
	if h.s.storage.Used() {
		t.Error("it counts as used")
	}
	if text, less := h.modern("a", "").greeting("initialize"); text != "" || less != "" {
		t.Errorf("%s: %s", less, text)
	}
}

// TestSessionsCanBeRevokedWhileTheAgentsAreUnknown: while the store that knows the
// agents is unreachable, the daemon's own user can revoke a session, and the record
// says that the agents were unknown. No other act of an operator is possible.
func TestSessionsCanBeRevokedWhileTheAgentsAreUnknown(t *testing.T) {
	t.Parallel()
	other := caller{who: "uid:1001", net: "unix", tree: "boot/8@8 boot/1@1"}
	d := openDesk(t, plan{rules: `@id("all") permit (principal, action == Action::"admin", resource);`, change: func(o *Options) {
		shell := o.Shell
		o.Shell = func(ctx context.Context, processes []string, complete bool) error {
			if err := shell(ctx, processes, complete); err != nil {
				return err
			}
			return fmt.Errorf("asking: %w", ErrStore)
		}
		o.Own = func(who *principal.Principal) bool { return who.Name() == me.who }
	}})
	_, id := d.openSession(me, "")
	_, stays := d.openSession(me, "")
	path := func(id string) string { return "/auth/admin/sessions/" + id + "/revoke" }
	d.want(503, "store_unreachable", other, "POST", path(stays), "")
	// A caller of unknown processes is refused as an agent's shell.
	d.want(403, "agent_shell", caller{who: me.who, net: "unix"}, "POST", path(stays), "")
	for method, target := range map[string]string{"GET": "/auth/admin/sessions", "POST": "/auth/admin/templates/plan/promote"} {
		d.want(503, "store_unreachable", me, method, target, "")
	}
	made := d.since(func() { d.want(200, "", me, "POST", path(id), "") })
	if len(made) != 1 || made[0].Decision != "allow" || made[0].Detail["agent_above"] != "unknown" || made[0].Detail["session"] != id {
		t.Errorf("%+v", made)
	}
	if s, _ := d.keeper.Find(id); s.Ended.IsZero() {
		t.Error("it goes on")
	}
	if s, _ := d.keeper.Find(stays); !s.Ended.IsZero() {
		t.Error("the other one has ended too")
	}
	d.agents = []string{"boot/5@5"}
	d.want(403, "agent_shell", me, "POST", path(stays), "")
}

// TestACancelledCheckForAgentsIsRefused: a caller that hangs up during the check for
// agents is refused as an agent's shell. A cancelled check is not an unreachable
// database, during which a revocation would be allowed.
func TestACancelledCheckForAgentsIsRefused(t *testing.T) {
	t.Parallel()
	hungUp, hangUp := context.WithCancel(t.Context())
	hangUp()
	for name, failing := range map[string]error{"as the store": ErrStore, "by itself": context.Canceled} {
		d := openDesk(t, plan{rules: `@id("all") permit (principal, action == Action::"admin", resource);`, change: func(o *Options) {
			shell := o.Shell
			o.Shell = func(ctx context.Context, processes []string, complete bool) error {
				if ctx.Err() != nil {
					return fmt.Errorf("asking: %w", failing)
				}
				return shell(ctx, processes, complete)
			}
			o.Own = func(*principal.Principal) bool { return true }
		}})
		d.agents = []string{"boot/5@5"}
		_, id := d.openSession(me, "")
		made := d.since(func() {
			if _, err := d.s.Operator().RevokeSession(hungUp, human(), id); !errors.Is(err, ErrShell) {
				t.Errorf("%s: %v", name, err)
			}
		})
		if len(made) != 1 || made[0].Decision != "deny" || made[0].Rule != "instructions.agent_shell" {
			t.Errorf("%s: %+v", name, made)
		}
		if s, _ := d.keeper.Find(id); !s.Ended.IsZero() {
			t.Errorf("%s: the session has ended", name)
		}
	}
}

// TestAListenWithAnUncheckedTokenListensAgain: listens and subscriptions whose token
// could not be checked are notified once when the store is available. Then a listen
// ends, and a subscription follows the token that its MCP session shows later.
// Those without a token go on unchanged.
func TestAListenWithAnUncheckedTokenListensAgain(t *testing.T) {
	t.Parallel()
	h := build(t, plan{still: true})
	id := h.full()
	h = h.early(true)
	modern, none := h.modern("modern", unjudged).hear(t), h.modern("none", "").hear(t)
	bears := h.legacy("bears", unjudged)
	legacy, calm := bears.hear(t), h.legacy("calm", "").hear(t)
	bears.delivery = bearerMark + "0" // a bearer token, which can be checked meanwhile
	bears.ask("ping", m{})
	h.s.Equip(Stored{Shelf: h.lib, Sessions: h.keeper})
	h.s.Again()
	h.s.Again()
	all := []string{"resources/updated instr://session", "resources/updated instr://templates/plan", "resources/updated instructions://templates/foreign"}
	if r := <-modern.done; string(rawjson.Get(r.Result, "resultType")) != `"complete"` || len(modern.events) != len(all) {
		t.Errorf("it ends with %+v, after %d events", r, len(modern.events))
	}
	h.tell()
	for who, l := range map[string]*hearing{"none": none, "legacy": legacy, "calm": calm} {
		if got := l.heard(t); !slices.Equal(got, all) {
			t.Errorf("%s heard %q", who, got)
		}
	}
	if late := h.modern("late", unjudged).hear(t); string(rawjson.Get((<-late.done).Result, "resultType")) != `"complete"` {
		t.Error("one that comes late goes on")
	}
	bears.delivery = id
	bears.ask("ping", m{})
	again := h.modern("modern", id).hear(t)
	h.file("judge", "class: instructions", "Another judgement.")
	h.tell()
	for who, want := range map[*hearing][]string{again: all[:1], legacy: all[:1], none: nil, calm: nil} {
		if got := who.heard(t); !slices.Equal(got, want) {
			t.Errorf("heard %q, want %q", got, want)
		}
	}
}

// TestNoTokenIsCheckedWhileTheStoreIsAway: every token is unjudged, even an invalid
// one. A request without a token is known to have none.
func TestNoTokenIsCheckedWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	h := build(t, plan{}).early(true)
	r := httptest.NewRequest("POST", "/mcp", nil)
	if id, err := h.s.Delivery(r, program("a")); id != "" || err != nil {
		t.Errorf("%q %v", id, err)
	}
	r.Header[protocol.HeaderSession] = []string{session.Prefix + "made.up"}
	if id, err := h.s.Delivery(r, program("a")); id != unjudged || err != nil {
		t.Errorf("%q %v", id, err)
	}
	h.s.Equip(Stored{Shelf: h.lib, Sessions: h.keeper})
	if r, why := h.s.readers.readerOf(gate.Act{Who: program("a"), Delivery: unjudged}); r != nil || why != Unreachable {
		t.Errorf("%+v %s", r, why)
	}
}

// TestALoopbackCallerLearnsNoMoreWithoutTheStore: a caller without a token has the
// same refusals with and without a store.
func TestALoopbackCallerLearnsNoMoreWithoutTheStore(t *testing.T) {
	t.Parallel()
	anonymous := caller{who: "loopback:uid=1000", net: "tcp"}
	away := func(o *Options) { o.Library, o.Sessions, o.Wanted = nil, nil, true }
	for session, change := range map[int]func(*Options){401: nil, 503: away} {
		d := openDesk(t, plan{change: change})
		for _, path := range []string{"status", "instructions", "session", "nothing", "admin/status"} {
			d.want(401, "unauthenticated", anonymous, "GET", "/auth/"+path, "")
		}
		if got := d.do(anonymous, "POST", "/auth/session", "{}"); got.status != session {
			t.Errorf("a session: %d", got.status)
		}
		d.want(200, "", me, "GET", "/auth/status", "")
	}
}

// TestTheStateNamesTheLastReason: the state of a missing store has the last reason
// that was reported.
func TestTheStateNamesTheLastReason(t *testing.T) {
	t.Parallel()
	h := build(t, plan{}).early(true)
	h.s.Lacks("session.keys cannot be read")
	if _, state := h.s.o.Library.Set(); state.OK || state.Reason != "session.keys cannot be read" {
		t.Errorf("%+v", state)
	}
	h.s.Equip(Stored{Shelf: h.lib, Sessions: h.keeper})
	if _, state := h.s.o.Library.Set(); !state.OK || state.Reason != "" {
		t.Errorf("%+v", state)
	}
	if unwanted := build(t, plan{}).early(false); true {
		unwanted.s.Lacks("x")
		if _, state := unwanted.s.o.Library.Set(); !state.OK || !state.Unused || state.Reason != "" {
			t.Errorf("%+v", state)
		}
	}
}
