package instruct

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/guide"
	"github.com/doorward/doorward/internal/principal"
	"github.com/doorward/doorward/internal/session"
)

// early is the house with another server, whose store is not there yet.
func (h *house) early(wanted bool) *house {
	early := *h
	early.s = New(Options{Wanted: wanted, Gate: h.gate, CanaryKey: h.s.o.CanaryKey, Refs: h.refs, Version: "1"})
	h.t.Cleanup(early.s.Close)
	return &early
}

// TestAServerIsTheSameBeforeItsStoreComes, to those who connected before: a list
// is what it was, the text is the generic one with the reason, and what there is
// is there afterwards.
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
	if got := h.s.Status(nil); got.State != "degraded" || got.Reason != Unreachable || got.Store != "unreachable" {
		t.Errorf("%+v", got)
	}
	if _, _, err := h.s.o.Sessions.Issue(context.Background(), session.Request{Subject: "uid:1000", Scope: []string{guide.Structural}}, nil); !errors.Is(err, ErrStore) {
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

// TestAStoreThatNobodyWantsIsNotMissed while it is not there.
func TestAStoreThatNobodyWantsIsNotMissed(t *testing.T) {
	t.Parallel()
	h := build(t, plan{}).early(false)
	if h.s.Used() {
		t.Error("it counts as used")
	}
	if text, less := h.modern("a", "").greeting("initialize"); text != "" || less != "" {
		t.Errorf("%s: %s", less, text)
	}
}

// TestRightsCanBeTakenWhileNobodyKnowsTheAgents, by the daemon's own user, with a
// record that says so. Nothing can be given, and nothing told.
func TestRightsCanBeTakenWhileNobodyKnowsTheAgents(t *testing.T) {
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
	// Whoever cannot be told from an agent, or is one by what memory holds.
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
