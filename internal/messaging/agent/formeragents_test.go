package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A process that has ended its agent session still counts as an agent, also when the store is
// not available. A process that was never registered gives an error of another kind.
func TestAnAgentIsOneAfterItsSessionHasEnded(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	legacy, modern, unnamed := h.legacy("l").registered("l"), h.modern("m").registered("m"), h.legacy("u").registered("u")
	h.legacy("stranger").call("list_peers", m{}).want("NOT_REGISTERED")
	legacy.conn.Close()
	modern.witness.kill() // its witness is gone; the process may have another one
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

// A caller that left before the store answered is not taken for a human: the check is an
// error.
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
		t.Error("it counts as a human without an answer of the store")
	}
}

// Former agents are kept only while their processes live and up to a bound. Once one was left
// out because of the bound, every process counts as a former agent.
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
		t.Error("a former agent that was left out counts as a human")
	}
	if unknown := (&formers{}); unknown.any([]string{"x"}) {
		t.Error("a process is a former agent without any")
	} else {
		unknown.add([]string{"x"})
		unknown.tidy()
	}
}
