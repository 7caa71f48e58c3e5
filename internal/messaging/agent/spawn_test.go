package agent

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	spawning "github.com/doorward/doorward/internal/messaging/spawn"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

// workshop is a Spawner that starts no processes: a start is only an entry in the real book.
type workshop struct {
	book     func() *mail.Book
	messages int
	during   func() // called during a start; nil: nothing happens meanwhile

	mu      sync.Mutex
	started []spawning.Request
	over    []string
	gone    []string
	fail    error
}

func (w *workshop) Check(_ *principal.Principal, r spawning.Request) (mail.SpawnDraft, error) {
	if r.Launcher != "helper" {
		return mail.SpawnDraft{}, &mail.Error{Code: mail.LauncherUnknown}
	}
	d := mail.SpawnDraft{Launcher: r.Launcher, Name: r.Name, Rights: []string{"agent"}, MaxSeconds: 600, MaxChildren: 1, MaxMessages: w.messages,
		WantResult: r.Result, KeepOnExit: r.KeepOnExit, Key: r.Key, Fingerprint: r.Fingerprint}
	if r.MaxMessages != nil {
		d.MaxMessages = *r.MaxMessages
	}
	return d, nil
}

func (w *workshop) Start(ctx context.Context, s *mail.Spawn, _ *principal.Principal, r spawning.Request) error {
	if w.during != nil {
		w.during()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started = append(w.started, r)
	if w.fail != nil {
		return w.fail
	}
	return w.book().SpawnRuns(ctx, s.ID, spawned)
}

func (w *workshop) Stop(id string, grace time.Duration) error {
	time.AfterFunc(20*time.Millisecond, func() { w.book().EndSpawn(context.Background(), id, mail.SpawnEnd{State: mail.Killed}, spawned) })
	return nil
}

func (w *workshop) OverBudget(id string) { w.mu.Lock(); w.over = append(w.over, id); w.mu.Unlock() }
func (w *workshop) ParentGone(session string) {
	w.mu.Lock()
	w.gone = append(w.gone, session)
	w.mu.Unlock()
}
func (w *workshop) Available() []string { return []string{"helper"} }
func (w *workshop) has(list *[]string, s string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(*list, s)
}

func TestAStartedAgentAndItsParent(t *testing.T) {
	t.Parallel()
	var h *house
	w := &workshop{book: func() *mail.Book { return h.book }, messages: 1}
	h = build(t, plan{spawn: w})
	lead := h.legacy("lead").registered("lead")
	lead.call("spawn", m{"launcher": "ghost", "prompt": "x"}).want("LAUNCHER_UNKNOWN")
	args := m{"launcher": "helper", "prompt": "do\r\nit", "name": "kid", "idempotency_key": "k1", "budget": m{"max_messages": 1}}
	s := lead.call("spawn", args).want("")
	if s.str("name") != "lead/kid" || s.str("state") != "running" || s.str("rights.0") != "agent" {
		t.Errorf("%s", s.raw)
	}
	if again := lead.call("spawn", args).want(""); again.str("spawn_id") != s.str("spawn_id") || len(w.started) != 1 {
		t.Errorf("the same key started it again: %s", again.raw)
	}
	if r := w.started[0]; r.Prompt != "do\nit" || r.RightsGiven || r.MaxMessages == nil || r.MaxChildren != nil || !r.Result || len(r.Fingerprint) != 32 {
		t.Errorf("%+v", r)
	}
	id := s.str("spawn_id")
	who := principal.New(principal.Spawn(id), principal.Fact{Name: "scope", Value: "agent", Grade: principal.Verified}).WithLocal().WithParent(lead.who)
	kid := h.open(who, "s-kid", false)
	if r := kid.call("register", m{}).want(""); r.str("name") != "lead/kid" || r.str("grade") != "verified" {
		t.Errorf("%s", r.raw)
	}
	other := h.legacy("other").registered("other")
	other.call("register", m{"name": "kid"}).want("")
	other.call("spawn_status", m{"spawn_id": id}).want("UNKNOWN_SPAWN")
	other.call("spawn_stop", m{"spawn_id": id}).want("UNKNOWN_SPAWN")
	kid.call("send", m{"to": "lead", "body": "result"}).want("")
	kid.call("send", m{"to": "lead", "body": "one more"}).want("BUDGET")
	if !w.has(&w.over, id) {
		t.Error("an agent over its budget was not ended")
	}
	var in *reply
	await(t, "the child's message", func() bool {
		in = lead.shown()
		return strings.Contains(in.text, "| result")
	})
	if !strings.Contains(in.text, "lineage=child") || !strings.Contains(in.text, "From an agent that you started.") ||
		!strings.Contains(in.text, "From the messaging service itself") {
		t.Error(in.text)
	}
	st := lead.call("spawn_status", m{"spawn_id": id}).want("")
	if st.num("usage.messages") != 1 || st.str("state") != "running" || st.str("started_at") == "" {
		t.Errorf("%s", st.raw)
	}
	done := make(chan *reply)
	go func() { done <- lead.call("wait", m{"spawn_id": id, "mail": false, "wait_ms": 20000}) }()
	await(t, "the wait", func() bool { return h.s.sessions.waiting() == 1 })
	if r := lead.call("spawn_stop", m{"spawn_id": id, "grace_s": 1}).want(""); r.str("state") != "killed" {
		t.Errorf("%s", r.raw)
	}
	if r := <-done; r.str("reason") != "spawn" || r.str("spawn_state") != "killed" {
		t.Errorf("%s", r.raw)
	}
	lead.conn.Close()
	await(t, "the end of the parent's session", func() bool { return w.has(&w.gone, "s:digest-lead") })
}

func TestAStartThatFailsIsToldAndRecorded(t *testing.T) {
	t.Parallel()
	var h *house
	w := &workshop{book: func() *mail.Book { return h.book }, fail: &mail.Error{Code: mail.LauncherChanged}}
	h = build(t, plan{spawn: w})
	lead := h.legacy("lead").registered("lead")
	before := len(h.lines())
	lead.call("spawn", m{"launcher": "helper", "prompt": "x", "name": "kid"}).want("LAUNCHER_CHANGED")
	got := h.lines()[before:]
	if len(got) != 2 || got[0].Decision != "allow" || got[1].Decision != "deny" || got[1].Detail["spawn"] != got[0].Detail["spawn"] {
		t.Errorf("%+v", got)
	}
}

// A started agent that asks for more children than its budget allows is ended.
func TestASpawnOverBudgetEndsTheAgentThatAsks(t *testing.T) {
	t.Parallel()
	var h *house
	w := &workshop{book: func() *mail.Book { return h.book }, messages: -1}
	h = build(t, plan{spawn: w})
	lead := h.legacy("lead").registered("lead")
	id := lead.call("spawn", m{"launcher": "helper", "prompt": "x", "name": "kid"}).want("").str("spawn_id")
	who := principal.New(principal.Spawn(id), principal.Fact{Name: "scope", Value: "agent", Grade: principal.Verified}).WithLocal().WithParent(lead.who)
	kid := h.open(who, "s-kid", false)
	kid.call("register", m{}).want("")
	kid.call("spawn", m{"launcher": "helper", "prompt": "x", "name": "one"}).want("")
	if w.has(&w.over, id) {
		t.Error("it is ended within its budget")
	}
	kid.call("spawn", m{"launcher": "helper", "prompt": "x", "name": "two"}).want("BUDGET")
	if !w.has(&w.over, id) {
		t.Error("it is not ended")
	}
}

// A started agent can exchange messages with its parent, and not with other agents of the
// same user.
func TestAStartedAgentReachesItsFamilyAlone(t *testing.T) {
	t.Parallel()
	var h *house
	w := &workshop{book: func() *mail.Book { return h.book }, messages: -1}
	h = build(t, plan{spawn: w})
	lead, stranger := h.legacy("lead").registered("lead"), h.legacy("stranger").registered("stranger")
	s := lead.call("spawn", m{"launcher": "helper", "prompt": "x", "name": "kid"}).want("")
	who := principal.New(principal.Spawn(s.str("spawn_id")), principal.Fact{Name: "scope", Value: "agent", Grade: principal.Verified}).WithLocal().WithParent(lead.who)
	kid := h.open(who, "s-kid", false)
	kid.call("register", m{}).want("")
	kid.call("send", m{"to": "stranger", "body": "x"}).want("UNKNOWN_RECIPIENT")
	stranger.call("send", m{"to": "lead/kid", "body": "x"}).want("UNKNOWN_RECIPIENT")
	kid.call("send", m{"to": "lead", "body": "x"}).want("")
	lead.call("send", m{"to": "lead/kid", "body": "x"}).want("")
	in := kid.call("inbox", m{}).want("")
	if !strings.Contains(kid.shown().text, "From the agent that started you.") || in.str("messages.0.from.lineage") != "parent" {
		t.Errorf("%s", in.raw)
	}
}

// spawned makes the record of a change that the workshop makes to a spawn.
func spawned(*mail.Spawn) any {
	return &audit.Record{Kind: audit.Event, Source: source, Action: "agent.spawn", Resource: ServerName}
}

// An agent that is started while the session of its parent ends does not outlive it.
func TestAnAgentThatStartsWhileItsParentEndsIsEnded(t *testing.T) {
	t.Parallel()
	var h *house
	var lead *agentClient
	w := &workshop{book: func() *mail.Book { return h.book }}
	h = build(t, plan{spawn: w})
	lead = h.modern("lead").registered("lead")
	session := SessionOf(lead.who, "")
	w.during = func() {
		lead.witness.kill()
		await(t, "the end of the session", func() bool { return w.has(&w.gone, session) })
		await(t, "that it is forgotten", func() bool {
			h.s.sessions.mu.Lock()
			defer h.s.sessions.mu.Unlock()
			return h.s.sessions.byKey[lead.who.Name()+"\x00"+session] == nil
		})
		w.mu.Lock()
		defer w.mu.Unlock()
		w.gone = nil
	}
	lead.call("spawn", m{"launcher": "helper", "prompt": "x"}).want("")
	if !w.has(&w.gone, session) {
		t.Error("it goes on without its parent")
	}
}
