package spawn

import (
	"context"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
)

// childrenGrace is the grace for an agent whose parent is gone.
const childrenGrace = 2 * time.Second

// end ends an agent and records the state as the reason, unless one is recorded already.
// In the grace of a stop (Killed) its token stays valid, so that the agent can finish its
// work; in every other state the token is invalid at once.
func (m *Manager) end(a *agent, state string, grace time.Duration) {
	m.mu.Lock()
	if a.why == "" {
		a.why = state
	}
	if state != mail.Killed {
		a.live = false
	}
	p := a.process
	m.mu.Unlock()
	if p != nil {
		p.End(grace)
	}
}

// Stop ends an agent: it gets SIGTERM and, after grace, is killed with all processes that
// it started. UNKNOWN_SPAWN: no such agent runs.
func (m *Manager) Stop(id string, grace time.Duration) error {
	a := m.started(id)
	if a == nil {
		return &mail.Error{Code: mail.UnknownSpawn}
	}
	m.end(a, mail.Killed, grace)
	return nil
}

// OverBudget kills an agent that has exceeded its budget.
func (m *Manager) OverBudget(id string) {
	if a := m.started(id); a != nil {
		m.end(a, mail.OverBudget, 0)
	}
}

func (m *Manager) started(id string) *agent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.agents[id]
}

// ParentGone ends the agents that a session of this node started, except those that may
// outlive it.
func (m *Manager) ParentGone(session string) {
	m.endAll(func(a *agent) bool { return a.session == session && !a.keep })
}

// endChildren ends the agents that an agent has started, except those that may outlive
// it.
func (m *Manager) endChildren(id string) {
	name := principal.Spawn(id)
	m.endAll(func(a *agent) bool { return a.parent.Name() == name && !a.keep })
}

func (m *Manager) endAll(which func(*agent) bool) {
	m.mu.Lock()
	var all []*agent
	for _, a := range m.agents {
		if which(a) {
			all = append(all, a)
		}
	}
	m.mu.Unlock()
	for _, a := range all {
		m.end(a, mail.Killed, childrenGrace)
	}
}

// Recover ends, in the book, the spawns that an earlier run of this node left open: their
// processes ended with that run. It removes the files that the run left. It is called
// before anything is started.
func (m *Manager) Recover(ctx context.Context) error {
	sweepTokens(m.o.RuntimeDir)
	sweepOutputs(m.o.StateDir, true)
	open, err := m.o.Book.OpenSpawns(ctx)
	if err != nil {
		return err
	}
	for _, s := range open {
		if m.started(s.ID) != nil {
			continue
		}
		if _, err := m.o.Book.EndSpawn(ctx, s.ID, mail.SpawnEnd{State: mail.Killed}, m.o.Note); err != nil {
			return err
		}
		m.o.Log.Info("an agent of an earlier run ended with that run", "spawn", s.ID, "name", s.Name)
	}
	return nil
}

// Sweep removes the whole outputs whose time is over, once a day until m is closed.
func Sweep(m *Manager) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-m.quit:
			return
		case <-tick.C:
			sweepOutputs(m.o.StateDir, false)
		}
	}
}

// Close refuses further starts, ends all agents and waits until their ends are in the
// book. Agents that are left when ctx ends are killed, and the next start reports their
// ends.
func (m *Manager) Close(ctx context.Context) {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.endAll(func(*agent) bool { return true })
	told := make(chan struct{})
	go func() {
		m.busy.Wait()
		close(told)
	}()
	defer m.hush.Do(func() { close(m.quit) })
	select {
	case <-told:
		return
	case <-ctx.Done():
	}
	for _, a := range m.running() {
		a.process.Kill()
	}
}
