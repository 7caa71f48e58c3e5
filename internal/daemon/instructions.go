package daemon

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/admin"
	"github.com/doorward/doorward/internal/audit"
	"github.com/doorward/doorward/internal/canary"
	"github.com/doorward/doorward/internal/egress"
	"github.com/doorward/doorward/internal/instruct"
	"github.com/doorward/doorward/internal/library"
	"github.com/doorward/doorward/internal/relay"
	"github.com/doorward/doorward/internal/session"
	"github.com/doorward/doorward/internal/signin"
	"github.com/doorward/doorward/internal/store"
	"github.com/doorward/doorward/internal/upstream"
)

// refsKept is how many refs of deliveries are looked for, the newest.
const refsKept = 200_000

// instructing is the server instructions with what it lives on.
type instructing struct {
	server   *instruct.Server
	shelf    *library.Library
	sessions *session.Keeper
	refs     *canary.Index
	used     atomic.Bool // the relay offers the server
}

// instructionKeys are the secrets of delivery. They outlive a restart.
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

// startInstructions starts the server instructions in the store, and gives what
// ends it. Where it cannot be had the operator hears why, and everybody gets
// the generic text.
func (d *Daemon) startInstructions(ctx context.Context, db *store.DB) (end func()) {
	m, err := d.newInstructing(ctx, db)
	if err != nil {
		d.log.Error("instructions cannot be delivered", "err", err)
		return func() {}
	}
	end = d.runInstructions(m)
	look, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	_ = m.shelf.Ready(look) // a slow one is a matter of each delivery
	return end
}

// firstLook is how long the start waits for the documents, so that what there
// is can be read once the daemon is ready.
const firstLook = 500 * time.Millisecond

// runInstructions has everything look after what happens by itself.
func (d *Daemon) runInstructions(m *instructing) (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{}, 4)
	d.instructing.Store(m)
	recall := func(ctx context.Context) { d.recall(ctx, m) }
	for _, run := range []func(context.Context){recall, m.shelf.Run, m.sessions.Run, m.server.Run} {
		go func() {
			run(ctx)
			done <- struct{}{}
		}()
	}
	return func() {
		m.server.Close()
		stop()
		for range cap(done) {
			<-done
		}
		closing, cancel := context.WithTimeout(context.Background(), libraryTime)
		defer cancel()
		if err := m.shelf.Close(closing); err != nil {
			d.log.Warn("the last deliveries were not counted", "err", err)
		}
	}
}

// libraryTime is how long the last counts may take to be written.
const libraryTime = 2 * time.Second

func (d *Daemon) newInstructing(ctx context.Context, db *store.DB) (*instructing, error) {
	keys, err := newInstructionKeys(d.o.StateDir)
	if err != nil {
		return nil, err
	}
	m := new(instructing)
	m.sessions, err = session.Open(ctx, session.Options{DB: db, Dir: d.o.StateDir, Installation: keys.installation, Log: d.log,
		Ended: func(s session.Session) { d.sessionEnded(s) }})
	if err != nil {
		return nil, fmt.Errorf("opening the sessions: %w", err)
	}
	o := libraryOptions(d.o, db, keys)
	o.Log, o.Changed, o.Moved, o.Replaced = d.log, func() { d.libraryChanged(m) }, instruct.Moved, d.libraryReplaced
	if d.o.Config.Instructions.URL != "" {
		if o.Remote, err = d.remoteLibrary(); err != nil {
			return nil, err
		}
	}
	if m.shelf, err = library.Open(ctx, o); err != nil {
		return nil, fmt.Errorf("opening the library: %w", err)
	}
	m.refs = canary.NewIndex(refsKept)
	m.server = instruct.New(d.instructOptions(m, keys))
	return m, nil
}

// recall brings back the marks of what was delivered before this start. A start
// does not wait for it: there may be many.
func (d *Daemon) recall(ctx context.Context, m *instructing) {
	all, err := m.shelf.Deliveries(ctx)
	if err != nil && ctx.Err() == nil {
		d.log.Error("the marks of earlier deliveries are not known", "err", err)
	}
	for _, d := range all {
		m.refs.Add(d.Ref, canary.Delivery{Session: d.Session, Template: d.Template, Revision: d.Revision}, d.Last)
	}
}

func libraryOptions(o Options, db *store.DB, keys instructionKeys) library.Options {
	i := o.Config.Instructions
	return library.Options{DB: db, Key: keys.seals, Installation: keys.installation, Dir: i.Dir, Required: i.Given || i.FailClosed, Review: i.Review}
}

func (d *Daemon) instructOptions(m *instructing, keys instructionKeys) instruct.Options {
	i := d.o.Config.Instructions
	return instruct.Options{Library: m.shelf, Shelf: m.shelf, Sessions: m.sessions, Gate: d.gate,
		CanaryKey: keys.canary, Refs: m.refs, Mode: canary.Mode(i.Canary),
		Version: d.o.Version, Environment: i.Environment, FailClosed: i.FailClosed, RuntimeDir: d.o.RuntimeDir,
		Above: above, Instance: instanceOf, Unix: overUnix, Bearer: d.bearer, Shell: d.shell, Refused: d.refusedSession,
		Local: overLocal, Named: d.bearerNamed, Holds: d.standing, Log: d.log}
}

// remoteLibrary is another Doorward as the source of documents.
func (d *Daemon) remoteLibrary() (*library.Remote, error) {
	i := d.o.Config.Instructions
	u, err := egress.CheckURL(i.URL)
	if err != nil {
		return nil, fmt.Errorf("instructions.url: %w", err)
	}
	r := &library.Remote{URL: strings.TrimRight(i.URL, "/"),
		Client: egress.NewClient(egress.Options{AllowPrivate: i.AllowPrivate, Origin: egress.Origin(u), Proxy: d.o.Config.Egress.Proxy})}
	if !i.Token.Empty() {
		r.Authorize = func(context.Context) (string, error) { return "Bearer " + strings.TrimSpace(i.Token.Reveal()), nil }
		return r, nil
	}
	tokens := d.outward.tokens(signin.Settings{Server: instruct.ServerName, URL: i.URL, AllowPrivate: i.AllowPrivate, Grant: i.OAuth.Grant,
		ClientID: i.OAuth.ClientID, ClientSecret: i.OAuth.ClientSecret, Issuer: i.OAuth.AuthorizationServer, Scopes: i.OAuth.Scopes,
		Proxy: d.o.Config.Egress.Proxy})
	if tokens == nil {
		return nil, errors.New("instructions.oauth cannot be used: see the message before")
	}
	r.Authorize = tokens.Authorize
	return r, nil
}

// sessionEnded tells the server, once there is one, that a session has ended.
func (d *Daemon) sessionEnded(s session.Session) {
	if m := d.instructing.Load(); m != nil {
		m.server.Ended(s)
	}
}

// libraryChanged tells the server that there is something else to read, and the
// relay when there is something at all, or nothing any more.
func (d *Daemon) libraryChanged(m *instructing) {
	if d.instructing.Load() != m {
		return // it is being opened
	}
	m.server.Changed()
	if m.server.Used() != m.used.Load() && !d.offline {
		go d.reset()
	}
}

// libraryReplaced ends the servers that run: a directory is hidden from a
// contained one as it is when that starts. They start again at the next call.
func (d *Daemon) libraryReplaced() {
	if d.relay == nil {
		return
	}
	n := d.relay.Restart(upstream.KindStdio)
	d.log.Info("servers are started again, so that the directory is hidden from them", "ended", n)
	d.audit.Later(&audit.Record{Kind: audit.Event, Source: "instruct", Action: "instructions.replaced", Count: int64(n)})
}

// instructionServer is the server for the relay, where instructions are used.
func (d *Daemon) instructionServer() (relay.Server, bool) {
	s := relay.Server{Name: instruct.ServerName, Kind: relay.KindBuiltin, Source: "instruct"}
	m := d.instructing.Load()
	if m == nil {
		if why := d.storeless.Load(); why != nil {
			s.Refused = *why
		}
		return s, s.Refused != "" && d.wantsInstructions()
	}
	used := m.server.Used()
	m.used.Store(used)
	s.Builtin = m.server
	return s, used
}

// wantsInstructions: the configuration names a store.
func (d *Daemon) wantsInstructions() bool {
	i := d.o.Config.Instructions
	return i.URL != "" || i.Given || i.FailClosed || exists(i.Dir)
}

// measureInstructions is what /metrics shows of them.
func (d *Daemon) measureInstructions() *admin.InstructionMeasures {
	m := d.instructing.Load()
	if m == nil {
		return nil
	}
	all, sessions := m.server.Measure(), m.sessions.Stats()
	_, state := m.shelf.Set()
	out := &admin.InstructionMeasures{StoreUp: state.OK, Live: sessions.Live, Issued: sessions.Issued, Renewed: sessions.Renewed,
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

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
