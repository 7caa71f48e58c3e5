package daemon

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/messaging/spawn"
	"github.com/doorward/doorward/internal/relay"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// sourceMail is the source of the records of messaging.
const sourceMail = "agent_msg"

// messaging is the server agent with its store.
type messaging struct {
	server *agent.Server
	paths  map[string]func(http.ResponseWriter, *http.Request, *principal.Principal)
}

// startMessaging opens the book in the store, the manager of started agents, and the server.
// end ends it; it is nil if there is an error.
func (d *Daemon) startMessaging(ctx context.Context, db *store.DB) (end func(), err error) {
	keys, err := newMailKeys(d.o.StateDir)
	if err != nil {
		return nil, err
	}
	c := d.o.Config
	node, limits := nodeName(c), mailLimits(c.Agent)
	book, err := mail.Open(ctx, db, mail.Options{Node: node, Limits: limits, Evict: c.Agent.Overflow == "evict-oldest", Passkey: needsPasskey(d),
		Sign: agent.Signer(keys.node), Upkeep: agent.Upkeep, Log: d.log})
	if err != nil {
		return nil, fmt.Errorf("opening the mailboxes: %w", err)
	}
	server, err := agent.New(agent.Options{Book: book, Signals: db, Gate: d.gate, Node: node, Version: d.o.Version,
		Spawner: d.agents.spawner, Limits: serverLimits(c.Agent), Mail: limits, SiblingJoin: c.Agent.SiblingJoin == "same-parent",
		CursorKey: keys.cursor, AuditKey: keys.record, Public: keys.node.Public().(ed25519.PublicKey),
		AuditDir: AuditDir(d.o.StateDir, c), Gone: peer.Gone, Log: d.log})
	if err != nil {
		return nil, err
	}
	end = runMessaging(server)
	if err := d.agents.open(book, recordSpawn); err != nil {
		end()
		return nil, err
	}
	d.messaging.Store(&messaging{server: server, paths: api{d}.mailPaths(server)})
	watched, served := heldMail{d}.watch(server.Operator()), end
	return func() { watched(); served() }, nil
}

// runMessaging starts the background work of the server.
func runMessaging(s *agent.Server) (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	return func() {
		s.Close()
		stop()
		<-done
	}
}

// withBuiltins returns the configured servers and the built-in servers.
func (d *Daemon) withBuiltins(servers []relay.Server) []relay.Server {
	out := slices.Clone(servers)
	if d.o.Config.Agent.Enabled {
		s := relay.Server{Name: agent.ServerName, Kind: relay.KindBuiltin, Source: sourceMail, Needs: "agent.register agent.read"}
		if m := d.messaging.Load(); m != nil {
			s.Builtin = m.server
		} else if why := d.storeless.Load(); why != nil {
			s.Refused = *why
		}
		out = append(out, s)
	}
	if s, used := d.instructing.forRelay(); used {
		out = append(out, s)
	}
	return out
}

// mailKeys holds the secrets of messaging. They outlive a restart.
type mailKeys struct {
	node           ed25519.PrivateKey // signs envelopes
	cursor, record []byte             // of cursors, and of the digests of bodies in records
}

func newMailKeys(stateDir string) (k mailKeys, err error) {
	seed, err := sealKey(filepath.Join(stateDir, "node.key"))
	if err != nil {
		return k, err
	}
	k.node = ed25519.NewKeyFromSeed(seed)
	if k.cursor, err = hkdf.Key(sha256.New, seed, nil, "doorward agent cursor", 32); err != nil {
		return k, fmt.Errorf("deriving the key of cursors: %w", err)
	}
	if k.record, err = hkdf.Key(sha256.New, seed, nil, "doorward agent record", 32); err != nil {
		return k, fmt.Errorf("deriving the key of records: %w", err)
	}
	return k, nil
}

func mailLimits(a config.Agent) mail.Limits {
	return mail.Limits{MailboxMessages: a.MailboxMessages, MailboxBytes: a.MailboxBytes, SenderMessages: a.SenderMessages,
		Namespace: a.Peers, Lease: a.Lease, Attempts: a.Retries, Hold: a.Hold, Session: a.Session, TTL: a.TTL, ConfirmedKept: a.Keep.Confirmed}
}

func serverLimits(a config.Agent) agent.Limits {
	return agent.Limits{MessageBytes: a.MessageBytes, SendsPerMinute: a.SendsPerMinute, WaitCap: a.WaitCap}
}

// spawner returns the manager of started agents; nil: there is none.
func (g *agents) spawner() agent.Spawner {
	if m := g.manager.Load(); m != nil {
		return m
	}
	return nil
}

// recorder records the acts that are recorded together with their effect.
type recorder struct {
	gate *gate.Gate
	log  *audit.Log
}

// acts records the acts of a transaction before its commit.
func (w recorder) acts(notes []any) error {
	records := make([]*audit.Record, 0, len(notes))
	for _, n := range notes {
		r, ok := n.(*audit.Record)
		if !ok {
			return errors.New("a note that is not a record")
		}
		records = append(records, r)
	}
	_, err := w.gate.Record(records...)
	return err
}

// uncommitted records that recorded acts were not committed, or that this is unknown.
func (w recorder) uncommitted(notes []any, err error) {
	result := "uncommitted"
	if errors.Is(err, store.ErrUncertain) {
		result = "uncertain"
	}
	for _, n := range notes {
		if r, ok := n.(*audit.Record); ok {
			w.log.Later(&audit.Record{Kind: audit.Event, Source: r.Source, Who: r.Who, Session: r.Session, Action: r.Action,
				Resource: r.Resource, Result: result, Detail: r.Detail})
		}
	}
}

// recordSpawn returns the record of the start or the end of a started agent.
func recordSpawn(s *mail.Spawn) any {
	action := "agent.spawn.ended"
	if s.EndedAt == 0 {
		action = "agent.spawn.running"
	}
	r := &audit.Record{Kind: audit.Event, Source: sourceMail, Action: action, Resource: s.Launcher, Result: s.State,
		Detail: []audit.Field{{Name: "spawn", Value: s.ID}, {Name: "peer", Value: s.Peer}, {Name: "parent", Value: s.Parent},
			{Name: "messages", Value: strconv.Itoa(s.Messages)}}}
	if s.ExitCode != nil {
		r.Detail = append(r.Detail, audit.Field{Name: "exit", Value: strconv.Itoa(*s.ExitCode)})
	}
	return r
}

var _ spawn.Book = (*mail.Book)(nil)

// seen reports a sign of life to messaging.
func (d *Daemon) seen(who *principal.Principal, session string) {
	if m := d.messaging.Load(); m != nil {
		m.server.Seen(who, session)
	}
}
