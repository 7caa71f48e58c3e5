package agent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/messaging/mail"
	spawning "github.com/doorward/doorward/internal/messaging/spawn"
)

// spawner returns the spawner; nil: agents cannot be started.
func (s *Server) spawner() Spawner {
	if s.o.Spawner == nil {
		return nil
	}
	return s.o.Spawner()
}

type spawnOut struct {
	SpawnID   string   `json:"spawn_id"`
	PeerID    string   `json:"peer_id"`
	Name      string   `json:"name"`
	State     string   `json:"state"`
	ExpiresAt string   `json:"expires_at"`
	Rights    []string `json:"rights"`
}

type spawnStatusOut struct {
	spawnOut
	ExitCode  *int      `json:"exit_code,omitempty"`
	StartedAt string    `json:"started_at,omitempty"`
	EndedAt   string    `json:"ended_at,omitempty"`
	Usage     *usageOut `json:"usage,omitempty"`
	Result    string    `json:"result_message_id,omitempty"`
}

type usageOut struct {
	Seconds  int64 `json:"seconds"`
	Children int   `json:"children"`
	Messages int   `json:"messages"`
}

func spawnOutOf(s *mail.Spawn) spawnOut {
	out := spawnOut{SpawnID: s.ID, PeerID: s.Peer, Name: s.Name, State: s.State, ExpiresAt: stamp(s.ExpiresAt), Rights: s.Rights}
	if out.Rights == nil {
		out.Rights = []string{}
	}
	return out
}

// spawn starts an agent: the request is checked against its launcher, entered in the book
// with its name, and only then started. A repeated call with the same key starts nothing.
func spawn(ctx context.Context, c *call) (*answer, error) {
	m := c.s.spawner()
	if m == nil {
		return nil, refuse(mail.SpawnDisabled)
	}
	if _, err := c.me(ctx); err != nil {
		return nil, err
	}
	r, err := c.starting.spawnRequest()
	if err != nil {
		return nil, err
	}
	who := c.pass.Act().Who
	d, err := m.Check(who, r)
	if err != nil {
		return nil, unfit(err)
	}
	if err := hold(c, func() []byte { return c.raw }); err != nil {
		return nil, err
	}
	begun, err := c.s.o.Book.BeginSpawn(ctx, c.owner, d, func(v *mail.Spawn) any {
		return c.line(field("spawn", v.ID), field("launcher", v.Launcher), field("child", v.Peer), field("name", v.Name),
			field("rights", strings.Join(v.Rights, ",")), field("replay", fmt.Sprint(v.Replay)), number("size", int64(len(r.Prompt))))
	})
	if err != nil {
		return nil, c.starting.overBudget(err)
	}
	if !begun.Replay {
		// A spawn that is entered is started, or reported as failed, whether or not the
		// caller waits for it.
		if err := m.Start(context.WithoutCancel(ctx), begun, who, r); err != nil {
			c.details = append(c.details, field("spawn", begun.ID))
			return nil, err
		}
		if hasEnded(c.s.sessions, c.session) { // its children were ended before this one was among them
			m.ParentGone(c.owner.Session)
		}
		if now, err := c.s.o.Book.SpawnOf(ctx, c.owner, begun.ID); err == nil {
			begun = now
		}
	}
	out := spawnOutOf(begun)
	return &answer{text: fmt.Sprintf("%s is %s (spawn_id %s, until %s). Its end and its result come to your inbox.",
		token(out.Name), out.State, out.SpawnID, out.ExpiresAt), out: out}, nil
}

// unfit returns the refusal of a request that asks for what its launcher does not have or
// the caller cannot give, with the reason. It spends no budget, so the caller goes on.
func unfit(err error) error {
	var no *mail.Error
	if errors.As(err, &no) && no.Err != nil && (no.Code == mail.Budget || no.Code == mail.InvalidArgument) {
		return &problem{code: no.Code, text: no.Err.Error(), err: no.Err}
	}
	return err
}

// overBudget ends the calling agent if err says that its budget is used up, and returns
// err.
func (c starting) overBudget(err error) error {
	if m := c.s.spawner(); m != nil && c.owner.Spawn != "" && isRefusal(err, mail.Budget) {
		m.OverBudget(c.owner.Spawn)
	}
	return err
}

func (c starting) spawnRequest() (spawning.Request, error) {
	a := c.args
	sum := sha256.Sum256(rawjson.Canonical(c.raw))
	r := spawning.Request{Launcher: a.str("launcher", ""), Name: a.str("name", ""), Cwd: a.str("cwd", ""), Model: a.str("model", ""),
		Rights: a.strs("rights"), RightsGiven: a.has("rights"), Result: a.str("result", "message") == "message",
		KeepOnExit: a.str("on_parent_exit", "terminate") == "keep", Key: a.str("idempotency_key", ""), Fingerprint: sum[:]}
	budget := a.obj("budget")
	r.MaxSeconds = budget.int("max_seconds", 0)
	for name, to := range map[string]**int{"max_children": &r.MaxChildren, "max_messages": &r.MaxMessages} {
		if budget.has(name) {
			n := budget.int(name, 0)
			*to = &n
		}
	}
	prompt, _, err := Clean(a.str("prompt", ""))
	if err != nil || prompt == "" {
		return r, &problem{code: InvalidBody, err: err}
	}
	r.Prompt = prompt
	return r, nil
}

// spawnStatus returns the state of an agent that the caller has started.
func spawnStatus(ctx context.Context, c *call) (*answer, error) {
	s, err := c.starting.ownSpawn(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.write(field("spawn", s.ID), field("state", s.State)); err != nil {
		return nil, err
	}
	out := spawnStatusOut{spawnOut: spawnOutOf(s), ExitCode: s.ExitCode, StartedAt: stampOr(s.StartedAt), EndedAt: stampOr(s.EndedAt),
		Usage: &usageOut{Children: s.Children, Messages: s.Messages}, Result: s.ResultMessage}
	if s.StartedAt > 0 {
		end := s.EndedAt
		if end == 0 {
			end = time.Now().UnixMilli()
		}
		out.Usage.Seconds = max(0, (end-s.StartedAt)/1000)
	}
	text := fmt.Sprintf("%s is %s; %d s, %d children, %d messages of its budget are used.", token(out.Name), out.State,
		out.Usage.Seconds, out.Usage.Children, out.Usage.Messages)
	if out.Result != "" {
		text += " Its result is the message " + out.Result + " in your inbox."
	}
	return &answer{text: text, out: out}, nil
}

// ownSpawn returns the spawn that the arguments name, if the caller has started it.
func (c starting) ownSpawn(ctx context.Context) (*mail.Spawn, error) {
	if _, err := c.me(ctx); err != nil {
		return nil, err
	}
	return c.s.o.Book.SpawnOf(ctx, c.owner, c.args.str("spawn_id", ""))
}

type stopOut struct {
	State string `json:"state"`
}

// stopTime is how long a stop waits for the end after the grace.
const stopTime = 3 * time.Second

// spawnStop ends an agent that the caller has started. It answers when the agent has
// ended, or a little after the grace.
func spawnStop(ctx context.Context, c *call) (*answer, error) {
	s, err := c.starting.ownSpawn(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.write(field("spawn", s.ID), field("state", s.State)); err != nil {
		return nil, err
	}
	grace := time.Duration(c.args.int("grace_s", 5)) * time.Second
	if m := c.s.spawner(); m != nil && (s.State == mail.Starting || s.State == mail.Running) {
		wake, leave := c.s.signals.join(mail.TopicSpawn(s.ID))
		defer leave()
		if err := m.Stop(s.ID, grace); err != nil && !isRefusal(err, mail.UnknownSpawn) {
			c.s.log.Warn("an agent could not be stopped", "spawn", s.ID, "err", err)
		}
		s = c.starting.ended(ctx, s, wake, grace+stopTime)
	}
	return &answer{text: "The agent is " + s.State + ".", out: stopOut{s.State}}, nil
}

// ended waits until a spawn has ended or the limit is reached, and returns it as read
// last.
func (c starting) ended(ctx context.Context, s *mail.Spawn, wake <-chan struct{}, limit time.Duration) *mail.Spawn {
	limit = min(limit, c.s.o.Limits.WaitCap)
	for end := time.Now().Add(limit); ctx.Err() == nil && c.s.closing.Err() == nil; {
		if now, err := c.s.o.Book.SpawnOf(ctx, c.owner, s.ID); err == nil {
			s = now
		}
		left := time.Until(end)
		if s.State != mail.Starting && s.State != mail.Running || left <= 0 {
			break
		}
		pause(ctx, wake, left)
	}
	return s
}
