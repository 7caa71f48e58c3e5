// Package agent is the built-in server `agent`: the tools by which agents on this machine
// send messages to each other, and the operator's view of them.
//
// The daemon vouches for the sender of every message: the caller is the one that the gate
// decided about, and no argument, header or text can change it. Package mail keeps the
// rules of the mailboxes; this package adds what mail cannot know: which agents are
// alive, which peers a caller may see, what a model is shown, and when an agent is woken.
//
// Invariants: only a verb in the table can be called, and every call leaves a record,
// before its change is committed where it makes one. A peer's text reaches a model on
// lines that begin with "| ", marked as data, and reaches no record and no log. A push
// carries no text and is not a delivery. A cursor confirms only what its own answer held:
// messages that an inbox returned whole, and notices that it showed. An inbox call
// without a cursor confirms what the answer before it held in the same session. The
// cursors of register, wait and a peek confirm no message, so unconfirmed messages are
// returned again. A waiting call or stream is served by the rights at the time of the
// event, not by those at its start.
package agent

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	spawning "github.com/doorward/doorward/internal/messaging/spawn"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream/builtin"
)

// ServerName is the name of the built-in server.
const ServerName = "agent"

// source is the source of every record of messaging.
const source = "agent_msg"

// Signals delivers the store's signals after each commit (store.DB).
type Signals interface {
	Listen(fn func(topic string)) (stop func())
}

// Limits of the server; a zero value means the default stated with the field. The limits
// of the book are in mail.Limits.
type Limits struct {
	MessageBytes   int           // 65,536 bytes of a body
	SendsPerMinute int           // 60 sends of a peer
	Burst          int           // 20 sends at once, or a third of SendsPerMinute if that is more
	WaitCap        time.Duration // 55 s for a waiting call, at most 295 s

	RegistersPerMinute int // 6,000 registrations of a principal
	RegisterBurst      int // 1,000
}

// MaxWait is the longest wait that can be configured: clients abort at 300 s.
const MaxWait = 295 * time.Second

func (l Limits) withDefaults() Limits {
	if l.MessageBytes <= 0 {
		l.MessageBytes = 65536
	}
	if l.SendsPerMinute <= 0 {
		l.SendsPerMinute = 60
	}
	if l.Burst <= 0 {
		l.Burst = max(20, l.SendsPerMinute/3)
	}
	if l.RegistersPerMinute <= 0 {
		l.RegistersPerMinute = 6000
	}
	if l.RegisterBurst <= 0 {
		l.RegisterBurst = 1000
	}
	if l.WaitCap <= 0 {
		l.WaitCap = 55 * time.Second
	}
	l.WaitCap = min(l.WaitCap, MaxWait)
	return l
}

// Spawner starts agents (spawn.Manager).
type Spawner interface {
	Check(parent *principal.Principal, r spawning.Request) (mail.SpawnDraft, error)
	Start(ctx context.Context, s *mail.Spawn, parent *principal.Principal, r spawning.Request) error
	Stop(id string, grace time.Duration) error
	OverBudget(id string)
	ParentGone(session string)
	Available() []string
}

// Options configure a Server.
type Options struct {
	Book    *mail.Book
	Signals Signals
	Gate    *gate.Gate
	Spawner func() Spawner // nil, or returns nil: agents cannot be started
	Node    string         // as mail.Options.Node
	Version string
	Limits  Limits
	Mail    mail.Limits // what the book was opened with
	// SiblingJoin makes a second shim with the same parent process share the session of
	// the first (agent.sibling_join: same-parent).
	SiblingJoin bool
	CursorKey   []byte            // secret key of the cursors, 16 bytes or more; kept over restarts
	AuditKey    []byte            // secret key of the digests of bodies in records
	Public      ed25519.PublicKey // the node's key, to check signatures; nil: they are not checked
	AuditDir    string            // the audit log, for trace and fsck; empty: it is not read
	// Gone reports whether a process instance has ended; nil: none has.
	Gone func(instance string) bool
	Log  *slog.Logger // nil: discards

	tick time.Duration // for tests; 0: one second
}

// Server is the built-in server. Its methods are safe for concurrent use.
type Server struct {
	o        Options
	log      *slog.Logger
	verbs    map[string]*verb
	tools    []byte // the JSON array of tools/list
	sessions *sessions
	signals  *signals
	stopped  *stopped
	lulls    *lulls
	unlisten func()
	kick     chan struct{} // makes Run look at once
	closing  context.Context
	close    context.CancelFunc
	sweepAt  alarm
	forgetAt alarm // when former sessions are deleted next
	human    operatorSeen
	minGap   time.Duration // the least time between two wakes of one stream
	sends    builtin.Tally // outcomes of sends: accepted, replay, or the code of the refusal
	quiet    *quiet

	cursors   cursors
	envelopes envelopes
	trail     trail
	settings  settings
}

// New makes the server. Run has to run for its whole life.
func New(o Options) (*Server, error) {
	if o.Book == nil || o.Gate == nil || o.Signals == nil || len(o.CursorKey) < 16 || len(o.AuditKey) < 16 {
		return nil, errors.New("an option of the agent server is missing: its book, gate, signals or key")
	}
	o.Limits = o.Limits.withDefaults()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.tick <= 0 {
		o.tick = time.Second
	}
	s := &Server{o: o, log: o.Log, sessions: newSessions(o.Node, o.SiblingJoin, cmp.Or(o.Mail.Session, 90*time.Second)), signals: newSignals(),
		kick: make(chan struct{}, 1), minGap: wakeGap, quiet: newQuiet(o.Log)}
	s.assemble()
	s.sessions.formers.gone = o.Gone
	s.sessions.joins = func(session string) { s.signals.signal(topicSession(session)) }
	if err := s.loadVerbs(); err != nil {
		return nil, fmt.Errorf("the tools of the agent server: %w", err)
	}
	summary := func(rs ...*audit.Record) error {
		_, err := s.o.Gate.Record(rs...)
		if err != nil {
			s.log.Error("summaries of calls were not recorded", "err", err)
		}
		return err
	}
	s.stopped, s.lulls = newStopped(func(r *audit.Record) error { return summary(r) }), newLulls(summary)
	s.closing, s.close = context.WithCancel(context.Background())
	s.unlisten = o.Signals.Listen(s.signals.signal)
	return s, nil
}

// Close ends waiting calls, which answer `shutdown`, and connections. It returns at once.
func (s *Server) Close() {
	s.close()
	s.unlisten()
	s.signals.signal("")
	s.stopped.flush(time.Now(), true)
	s.lulls.flush(time.Now(), true)
}

// Seen notes a sign of life of a session of who: a request, or a keep-alive that was
// read.
func (s *Server) Seen(who *principal.Principal, sessionDigest string) {
	s.sessions.seen(who, sessionDigest)
}

// PolicyChanged makes all waiting calls check their right again; a call that has lost it
// ends. It returns at once.
func (s *Server) PolicyChanged() { s.signals.signal("") }

// nudge makes Run do a round at once.
func (s *Server) nudge() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// cursors seals and opens cursors, under the key of the options.
type cursors struct{ o *Options }

// envelopes makes the operator's view of messages, with the check of their signatures.
type envelopes struct{ o *Options }

// trail compares the book with the audit records of sent messages.
type trail struct{ o *Options }

// settings holds the limits that callers are told and bound by.
type settings struct{ o *Options }

// capped returns how long a call may wait, and whether that is less than it asked for.
func (s *settings) capped(ms int) (time.Duration, bool) {
	want := time.Duration(ms) * time.Millisecond
	return min(want, s.o.Limits.WaitCap), want > s.o.Limits.WaitCap
}

// assemble connects the parts of the server, which share its options.
func (s *Server) assemble() {
	s.cursors.o, s.envelopes.o, s.trail.o, s.settings.o = &s.o, &s.o, &s.o, &s.o
}

// wakeGap is the least time between two wakes of one stream.
const wakeGap = 5 * time.Second
