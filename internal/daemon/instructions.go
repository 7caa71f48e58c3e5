package daemon

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/instructions/watermark"
	"github.com/doorward/doorward/internal/relay"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/egress"
	"github.com/doorward/doorward/internal/upstream/signin"
)

// refsKept is how many refs of deliveries are indexed; the newest are kept.
const refsKept = 200_000

// instructing is the server instructions. It exists from the start, so that callers see the
// same server before and after its database becomes available.
type instructing struct {
	o       Options
	outward *outward
	record  func(*audit.Record)
	changes func()                // the set of built-in servers changed
	restart func(kind string) int // ends servers, which start again at their next call
	server  *deliver.Server
	keys    instructionKeys
	unkept  error                  // why there are no keys; nil: there are
	failed  atomic.Pointer[string] // why it cannot deliver although there is a database; nil: it can
	refs    *watermark.Index
	used    atomic.Bool                    // the relay offers the server
	stored  atomic.Pointer[deliver.Stored] // nil: its database is unavailable
}

// instructionKeys holds the secrets of delivery. They outlive a restart.
type instructionKeys struct {
	installation  string
	canary, seals []byte // of refs, and of contents in the database
}

func newInstructionKeys(stateDir string) (k instructionKeys, err error) {
	seed, err := sealKey(filepath.Join(stateDir, "node.key"))
	if err != nil {
		return k, err
	}
	derive := func(what string) (key []byte) {
		if err == nil {
			key, err = hkdf.Key(sha256.New, seed, nil, "doorward instruction "+what, 32)
		}
		return key
	}
	k.canary, k.seals = derive("canary"), derive("versions")
	name := derive("installation")
	if err != nil {
		return k, fmt.Errorf("deriving the keys of instructions: %w", err)
	}
	k.installation = hex.EncodeToString(name[:8])
	return k, nil
}

// openInstructing makes the server without its stored parts.
func (d *Daemon) openInstructing() {
	m := &instructing{o: d.o, outward: d.outward, record: d.audit.Later, refs: watermark.NewIndex(refsKept)}
	if !d.offline {
		m.changes, m.restart = storedParts{d}.reset, func(kind string) int { return d.relay.Restart(kind) }
	}
	if m.keys, m.unkept = newInstructionKeys(d.o.StateDir); m.unkept != nil {
		d.log.Error("instructions cannot be delivered until a restart", "err", m.unkept)
	}
	m.server = deliver.New(d.instructOptions(m))
	d.instructing, d.callers.sessions = m, m.server
	if d.agents != nil {
		d.agents.look = m.printed
	}
	d.onClose(m.server.Close)
}

// start connects the server instructions to the store, now or as soon as possible. Until then
// the reason is reported to the operator, and callers get the generic text. undo ends it.
func (m *instructing) start(ctx context.Context, db *store.DB, undo *undoing) {
	ctx, stop := context.WithCancel(ctx)
	undo.add(stop)
	if m.unkept != nil {
		m.lacks(m.unkept)
		return
	}
	if m.equip(ctx, db, undo) {
		return
	}
	go again(ctx, func() bool {
		done := m.equip(ctx, db, undo)
		if done {
			m.changes()
		}
		return done
	})
}

// equip tries once to connect the server to the store.
func (m *instructing) equip(ctx context.Context, db *store.DB, undo *undoing) bool {
	stored, err := m.openStored(ctx, db)
	if err != nil {
		if news := m.lacks(err); news && ctx.Err() == nil {
			m.o.Log.Error("instructions cannot be delivered", "err", err)
		}
		return false
	}
	if m.failed.Swap(nil) != nil {
		m.o.Log.Info("instructions can be delivered")
	}
	undo.add(m.run(ctx, stored))
	return true
}

// lacks notes why instructions cannot be delivered, and reports whether the reason is new.
func (m *instructing) lacks(why error) bool {
	reason := why.Error()
	m.server.Lacks(reason)
	was := m.failed.Swap(&reason)
	return was == nil || *was != reason
}

// firstLook is how long the start waits for the documents, so that they can be read as soon
// as the daemon is ready.
const firstLook = 500 * time.Millisecond

// run starts the background work of the stored parts and enables delivery.
func (m *instructing) run(ctx context.Context, stored *deliver.Stored) (end func()) {
	running, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	run := func(f func(context.Context)) { all.Go(func() { f(running) }) }
	run(stored.Shelf.Run)
	run(stored.Sessions.Run)
	look, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	_ = stored.Shelf.Ready(look) // a failure is handled at each delivery
	m.stored.Store(stored)
	m.server.Equip(*stored)
	run(func(ctx context.Context) { m.recall(ctx, stored.Shelf) })
	run(m.server.Run)
	return func() {
		m.server.Close()
		stop()
		all.Wait()
		closing, cancel := context.WithTimeout(context.Background(), libraryTime)
		defer cancel()
		if err := stored.Shelf.Close(closing); err != nil {
			m.o.Log.Warn("the last deliveries were not counted", "err", err)
		}
	}
}

// libraryTime is how long the last counts may take to be written.
const libraryTime = 2 * time.Second

// openStored opens the parts of delivery that are in the store.
func (m *instructing) openStored(ctx context.Context, db *store.DB) (*deliver.Stored, error) {
	sessions, err := session.Open(ctx, session.Options{DB: db, Dir: m.o.StateDir, Installation: m.keys.installation, Log: m.o.Log,
		Record: deliver.SessionOver, Ended: m.server.Ended})
	if err != nil {
		return nil, fmt.Errorf("opening the sessions: %w", err)
	}
	o := libraryOptions(m.o, db, m.keys)
	o.Log, o.Changed, o.Replaced = m.o.Log, m.changed, m.replaced
	if m.o.Config.Instructions.URL != "" {
		if o.Remote, err = m.remote(); err != nil {
			return nil, err
		}
	}
	shelf, err := library.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("opening the library: %w", err)
	}
	return &deliver.Stored{Shelf: shelf, Sessions: sessions}, nil
}

func libraryOptions(o Options, db *store.DB, keys instructionKeys) library.Options {
	i := o.Config.Instructions
	return library.Options{DB: db, Key: keys.seals, Installation: keys.installation, Dir: i.Dir, Required: i.Given || i.FailClosed, Review: i.Review,
		Entered: deliver.Entered}
}

func (d *Daemon) instructOptions(m *instructing) deliver.Options {
	i := d.o.Config.Instructions
	return deliver.Options{Wanted: m.wanted(), Gate: d.gate, CanaryKey: m.keys.canary, Refs: m.refs, Records: m.pastRecords(), Mode: watermark.Mode(i.Canary),
		Version: d.o.Version, Environment: i.Environment, FailClosed: i.FailClosed, RuntimeDir: d.o.RuntimeDir,
		Above: above, Held: held, Instance: instanceOf, Unix: overUnix, Bearer: d.callers.bearer, Shell: d.shell, Refused: d.callers.refusedSession,
		Local: overLocal, Named: d.callers.bearerNamed, Holds: d.callers.standing, Own: d.owner, Log: d.log}
}

// remote returns another Doorward as the source of documents.
func (m *instructing) remote() (*library.Remote, error) {
	i := m.o.Config.Instructions
	u, err := egress.CheckURL(i.URL)
	if err != nil {
		return nil, fmt.Errorf("instructions.url: %w", err)
	}
	r := &library.Remote{URL: strings.TrimRight(i.URL, "/"),
		Client: egress.NewClient(egress.Options{AllowPrivate: i.AllowPrivate, Origin: egress.Origin(u), Proxy: m.o.Config.Egress.Proxy})}
	if !i.Token.Empty() {
		r.Authorize = func(context.Context) (string, error) { return "Bearer " + strings.TrimSpace(i.Token.Reveal()), nil }
		return r, nil
	}
	tokens := m.outward.tokens(signin.Settings{Server: deliver.ServerName, URL: i.URL, AllowPrivate: i.AllowPrivate, Grant: i.OAuth.Grant,
		ClientID: i.OAuth.ClientID, ClientSecret: i.OAuth.ClientSecret, Issuer: i.OAuth.AuthorizationServer, Scopes: i.OAuth.Scopes,
		Proxy: m.o.Config.Egress.Proxy})
	if tokens == nil {
		return nil, errors.New("instructions.oauth cannot be used: see the message before")
	}
	r.Authorize = func(ctx context.Context) (string, error) {
		header, err := tokens.Authorize(ctx)
		return header, ended(err)
	}
	r.Refused = func(ctx context.Context, header string, resp *http.Response) (bool, error) {
		again, err := tokens.Refused(ctx, header, resp)
		return again, ended(err)
	}
	return r, nil
}

// ended makes the end of a sign-in, or of a client, the end of the credential for documents.
func ended(err error) error {
	if errors.Is(err, signin.ErrSignIn) || errors.Is(err, signin.ErrRefused) {
		return fmt.Errorf("%w: %w", library.ErrCredential, err)
	}
	return err
}

// changed tells the server that the documents have changed, and the relay if the server is
// now used or no longer used.
func (m *instructing) changed() {
	if m.stored.Load() == nil {
		return // it is being opened
	}
	m.server.Changed()
	if m.server.Used() != m.used.Load() && m.changes != nil {
		go m.changes()
	}
}

// replaced ends the running stdio servers, because a directory is hidden from a contained
// server as it is when the server starts. They start again at the next call.
func (m *instructing) replaced() {
	if m.restart == nil {
		return
	}
	n := m.restart(upstream.KindStdio)
	m.o.Log.Info("servers were ended, so that the directory is hidden from them at their next start", "ended", n)
	m.record(&audit.Record{Kind: audit.Event, Source: "instruct", Action: "instructions.replaced", Count: int64(n)})
}

// forRelay returns the server for the relay, and whether instructions are used.
func (m *instructing) forRelay() (relay.Server, bool) {
	s := relay.Server{Name: deliver.ServerName, Kind: relay.KindBuiltin, Source: "instruct"}
	used := m.server.Used()
	m.used.Store(used)
	s.Builtin = m.server
	return s, used
}

// wanted reports whether the configuration names a source of documents, or their directory
// exists.
func (m *instructing) wanted() bool {
	i := m.o.Config.Instructions
	return i.URL != "" || i.Given || i.FailClosed || exists(i.Dir)
}

// measure returns the figures of instructions for /metrics.
func (m *instructing) measure() *admin.InstructionMeasures {
	all, sessions := m.server.Measure(), session.Stats{}
	up := false
	if stored := m.stored.Load(); stored != nil {
		sessions = stored.Sessions.Stats()
		_, state := stored.Shelf.Set()
		up = state.OK
	}
	out := &admin.InstructionMeasures{StoreUp: up, Live: sessions.Live, Issued: sessions.Issued, Renewed: sessions.Renewed,
		Ended: sessions.Ended, Failures: sessions.Failures, Delivered: all.Delivered, Degraded: all.Degraded, Canary: all.Canary,
		Count: all.Count, Sum: all.Sum.Seconds(), Within: make(map[float64]uint64, len(all.Buckets))}
	if out.Failures == nil {
		out.Failures = make(map[string]int64, 1)
	}
	out.Failures["missing"] = int64(m.server.Missing())
	for i, most := range all.Buckets {
		out.Within[most.Seconds()] = all.Within[i]
	}
	return out
}

// undelivered returns the reason why nothing can be delivered; nil: there is none.
func (m *instructing) undelivered() *string {
	if stored := m.stored.Load(); stored != nil {
		if _, state := stored.Shelf.Set(); !state.OK {
			return &state.Reason
		}
	}
	return m.failed.Load()
}

// problems returns the problems of the documents.
func (m *instructing) problems() (out []string) {
	stored := m.stored.Load()
	if stored == nil {
		return nil
	}
	_, state := stored.Shelf.Set()
	if n := len(state.Problems); n > 0 {
		out = append(out, fmt.Sprintf("problems of documents: %d; see doorward instructions list", n))
	}
	return out
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// pastRecords returns the record, read backwards, if instructions are wanted; else nil.
func (m *instructing) pastRecords() func(context.Context) iter.Seq2[[]byte, error] {
	if !m.wanted() {
		return nil
	}
	dir := AuditDir(m.o.StateDir, m.o.Config)
	return func(ctx context.Context) iter.Seq2[[]byte, error] { return auditlog.Backwards(ctx, dir) }
}

// recall loads the marks of deliveries before this start. A start does not wait for it,
// because there may be many.
func (m *instructing) recall(ctx context.Context, shelf *library.Library) {
	err := m.server.Reckon(ctx, shelf)
	if err == nil || ctx.Err() != nil {
		return
	}
	m.o.Log.Error("the marks of earlier deliveries are not known yet", "err", err)
	again(ctx, func() bool { return m.server.Reckon(ctx, shelf) == nil })
}
