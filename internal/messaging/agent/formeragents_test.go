package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestWhoEndsItsSessionIsStillAnAgent when the book goes away afterwards, for as
// long as its process lives.
func TestWhoEndsItsSessionIsStillAnAgent(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	legacy, modern, unnamed := h.legacy("l").registered("l"), h.modern("m").registered("m"), h.legacy("u").registered("u")
	h.legacy("stranger").call("list_peers", m{}).want("NOT_REGISTERED")
	legacy.conn.Close()
	modern.witness.kill() // its descriptor is gone; the process may be there under another one
	unnamed.call("unregister", m{}).want("")
	known := func(name string) bool {
		h.s.sessions.mu.RLock()
		defer h.s.sessions.mu.RUnlock()
		for key := range h.s.sessions.byKey {
			if strings.HasSuffix(key, name) {
				return true
			}
		}
		return false
	}
	await(t, "the end of a session", func() bool { return !known(SessionOf(legacy.who, legacy.session)) })
	await(t, "the end of a process", func() bool { return !known(SessionOf(modern.who, "")) })
	h.db.Close()
	o := h.s.Operator()
	for process, want := range map[string]bool{"l": true, "m": true, "u": true, "stranger": false, "other": false} {
		err := o.AgentShell(context.Background(), []string{"boot/cli@9", "boot/" + process + "@1"}, true)
		if err == nil || errors.Is(err, ErrAgentShell) != want {
			t.Errorf("%s: %v", process, err)
		}
	}
}

// TestALeavingCallerIsNoHuman: what is not known since it left is no answer.
func TestALeavingCallerIsNoHuman(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	h.legacy("a").registered("a")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.s.Operator().AgentShell(ctx, []string{"boot/a@1"}, true); !errors.Is(err, ErrAgentShell) {
		t.Errorf("%v", err)
	}
	if err := h.s.Operator().AgentShell(ctx, []string{"boot/x@1"}, true); err == nil {
		t.Error("it counts as a human, unseen")
	}
}

// TestFormerAgentsAreBounded by the processes that live, and where there are too
// many of those, nobody is known to be none.
func TestFormerAgentsAreBounded(t *testing.T) {
	t.Parallel()
	name := func(i int) string { return fmt.Sprintf("boot/%d@1", i) }
	gone := func(p string) bool { return p != name(7) }
	f := formers{gone: gone}
	for i := range 1000 {
		f.add([]string{name(i), name(i)})
	}
	f.tidy()
	if len(f.are) != 1 || !f.any([]string{"x", name(7)}) || f.any([]string{name(8)}) {
		t.Errorf("%d are kept", len(f.are))
	}
	f = formers{gone: func(string) bool { return false }}
	for i := range formersKept {
		f.add([]string{name(i)})
		f.add([]string{name(i)})
	}
	f.tidy()
	if len(f.are) != formersKept || f.any([]string{"x"}) || !f.any([]string{name(formersKept - 1)}) {
		t.Errorf("%d are kept, full: %t", len(f.are), f.full)
	}
	f.add([]string{"y"})
	if len(f.are) != formersKept || !f.any([]string{"x"}) {
		t.Error("one that found no room counts as a human")
	}
	if unknown := (&formers{}); unknown.any([]string{"x"}) {
		t.Error("nobody is one")
	} else {
		unknown.add([]string{"x"})
		unknown.tidy()
	}
}
