// Package daemon wires the packages into one running Doorward. It
// knows no flags and no signals: cmd/doorward fills Options and ends the
// context.
//
// Invariant: what New opened, Close closes, in reverse order; a listener that
// the bind table refuses is never bound, and the rest runs without it.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/auditkey"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/daemon/console"
	"github.com/doorward/doorward/internal/daemon/passkey"
	"github.com/doorward/doorward/internal/daemon/telemetry"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/relay"
	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/relay/seal"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream/process"
)

// Options are everything that a daemon is told from outside.
type Options struct {
	Config     *config.Config
	StateDir   string
	RuntimeDir string
	Token      secret.Value // DOORWARD_TOKEN, or empty
	TokenFile  string       // --token-file, or empty
	Dev        bool
	Version    string
	Log        *slog.Logger
	Say        io.Writer // one line a listener, then `ready`
}

// ErrNoListener says that nothing is left to serve on.
var ErrNoListener = errors.New("no listener is left")

// Daemon is one running Doorward.
type Daemon struct {
	o           Options
	uid         uint32
	log         *slog.Logger
	audit       *audit.Log
	gate        *gate.Gate
	relay       *relay.Relay
	door        *front.Door
	callers     callers
	issuer      issuer
	runner      *process.Runner
	proof       proof // proves to clients of the socket whose daemon this is
	checkpoints *checkpoints
	retention   *retention
	places      places // the state and the runtime directory
	servers     *serverSet
	policy      atomic.Pointer[rules] // in force
	outward     *outward
	definitions *definitions
	approvals   *approval.Queue
	agents      *agents
	key         *audit.Key
	// contained says how the servers are contained.
	contained atomic.Pointer[containment]
	// unseen is what servers asked for and could not see.
	unseen unseen
	// messaging is the server agent; nil: off, or storeless says why not yet.
	messaging atomic.Pointer[messaging]
	storeless atomic.Pointer[string]
	// instructing delivers instructions, also while its database is away.
	instructing *instructing
	telemetry   *telemetry.Telemetry
	metrics     *prometheus.Registry
	offline     bool // an operator's command without a daemon
	// holders finds the processes of loopback callers.
	holders *peer.Holders

	reloading sync.Mutex

	listeners *listeners
	console   *console.Console
	passkeys  *passkey.Book
	warmth    *warmth
	said      said // the last lines that servers wrote to standard error

	cleanup undoing
}

// Refused is a listener that stays shut.
type Refused struct{ Network, Addr, Reason string }

// New opens the state and wires the rooms. Nothing listens yet.
func New(o Options) (*Daemon, error) {
	d := &Daemon{o: o, uid: uint32(os.Geteuid()), log: o.Log, callers: callers{observer: peer.NewObserver(peer.Limits{})}, holders: peer.NewHolders(int32(os.Getpid()))}
	d.listeners = &listeners{d: d}
	d.callers.clients.program, _ = os.Executable() // without it a shim is a client like any other
	steps := []func() error{d.openState, d.openProof, d.openAudit, d.openRunner, d.openDefinitions, d.openServers, d.openAuth, storedParts{d}.open, d.openDoor}
	for _, step := range steps {
		if err := step(); err != nil {
			d.Close()
			return nil, err
		}
	}
	return d, nil
}

// onClose has f called by Close, or now when that has begun.
func (d *Daemon) onClose(f func()) { d.cleanup.add(f) }

// openState makes the state directory, private and ours.
func (d *Daemon) openState() error {
	dir, err := peer.PrivateDir(d.o.StateDir)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if err := dir.Close(); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	d.callers.clients.orphans = orphans{path: filepath.Join(d.o.StateDir, orphansFile), log: d.log}
	if err := d.callers.clients.orphans.load(); err != nil {
		return err
	}
	return d.openPlaces()
}

func (d *Daemon) openAudit() error {
	key, err := auditkey.LoadOrCreate(filepath.Join(d.o.StateDir, "audit.key"))
	if err != nil {
		return err
	}
	d.key, d.checkpoints = key, newCheckpoints(d.o)
	d.retention = newRetention(d.o, d.checkpoints)
	log, err := audit.Open(AuditDir(d.o.StateDir, d.o.Config), audit.Options{
		Always: d.o.Config.Audit.Sync == "always", Key: key, Log: d.log, Checkpointed: d.checkpoints.wake,
		SegmentBytes: segmentBytes(d.o.Config.Audit.Retain), Rotated: d.retention.wake})
	if errors.Is(err, audit.ErrLocked) {
		return fmt.Errorf("another doorward runs on the state directory %s: stop it, or give this one its own with --state-dir: %w", d.o.StateDir, err)
	}
	if errors.Is(err, audit.ErrDamaged) {
		return fmt.Errorf("%w; find out why, and keep the directory as it is for that; to start a new log, move it away, start, and stop, and accept the new one with `doorward audit verify --accept`", err)
	}
	if err != nil {
		return err
	}
	d.audit, d.checkpoints.log = log, log
	d.callers.events = newDoorEvents(log)
	d.onClose(func() {
		d.callers.events.close()
		if err := log.Close(); err != nil {
			d.log.Error("closing the audit log", "err", err)
		}
		d.checkpoints.final()
	})
	return nil
}

// AuditDir is where the records are.
func AuditDir(state string, c *config.Config) string {
	if c != nil && c.Audit.Dir != "" {
		return c.Audit.Dir
	}
	return filepath.Join(state, "audit")
}

func (d *Daemon) openRunner() error {
	if dir := configDir(); dir != "" {
		_ = os.MkdirAll(dir, 0o700) // a missing directory cannot be hidden; where it cannot be made, no server can make it either
	}
	d.unseen.never = ownPaths(d.o)
	r, err := sandboxes(d.o, true)
	if err != nil {
		return err
	}
	d.runner = r
	d.onClose(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			d.log.Error("ending the servers", "err", err)
		}
	})
	return nil
}

// stopTime is how long the children may take to end when the daemon stops.
const stopTime = 6 * time.Second

func (d *Daemon) openServers() error {
	d.outward = newOutward(d.o, d.audit)
	rules, err := d.compilePolicy(d.o.Config)
	if err != nil {
		return err
	}
	d.policy.Store(rules)
	set, err := newServers(d.o.Config, d.runner, d.log, d.o.Version, d.outward, nil, d.heard)
	if err != nil {
		return err
	}
	d.definitions.guard(set)
	d.servers = set
	d.contained.Store(set.containment())
	d.onClose(func() { d.servers.close() })
	key, err := sealKey(filepath.Join(d.o.StateDir, "seal.key"))
	if err != nil {
		return err
	}
	sealer, err := seal.New(key)
	if err != nil {
		return err
	}
	d.warmth = openWarmth(d.o.StateDir, d.uid, d.log)
	l := d.o.Config.Limits
	d.gate = gate.New(rules.set, d.audit, limitsOf(l, d.uid))
	d.issuer.gate = d.gate
	d.openInstructing()
	hold, err := d.openApprovals()
	if err != nil {
		return err
	}
	openTelemetry(d)
	d.relay = relay.New(relay.Options{Gate: d.gate, Hold: hold, Observer: d.telemetry, Servers: set.relay, Seal: sealer, Log: d.log,
		Owner: fmt.Sprintf("uid:%d", d.uid), Own: isOwn(d.uid), Place: d.placeOf, Version: d.o.Version, Dev: d.o.Dev, StepUp: d.issuer.stepUp, Guide: d.instructing.server, Note: d.audit.Later, Opened: d.warmth.opened})
	d.definitions.relay = d.relay
	d.onClose(d.relay.Close)
	return nil
}

func (d *Daemon) openDoor() error {
	if err := (consoleHost{d}).open(); err != nil {
		return err
	}
	l := d.o.Config.Limits
	keeper, err := openKeeper(d.o.StateDir, d.log)
	if err != nil {
		return err
	}
	d.onClose(func() { _ = keeper.Close() }) // nothing is written by closing a directory
	d.door = front.New(front.Options{
		Handler: d.telemetry.Door(d.relay), Screen: screen, Authenticate: d.callers.authenticate, Holds: d.callers.auth.Holds, Refused: d.callers.refusedAtDoor,
		Resource: d.issuer.resource(),
		Ahead:    consoleHost{d}.ahead, Delivery: d.instructing.server.Delivery,
		Seen: d.seen, Unread: listen.Unread,
		Paths: api{d}.paths(), BodyBytes: l.BodyBytes, Sessions: l.Sessions, Bounds: boundsOf(l, d.uid),
		SessionsPerPrincipal: l.SessionsPerPrincipal, CallsPerPrincipal: l.CallsPerPrincipal, Full: d.relay.Full,
		IdleSession: idleSession, StreamTime: l.Stream, Keeper: keeper, Timed: d.telemetry.Traces(),
	})
	d.onClose(d.door.Close)
	d.onClose(d.telemetry.Close)
	return nil
}

// idleSession is how long a session without an open stream outlives its last
// request. Agents pause for lunch.
const idleSession = 2 * time.Hour

// Close ends everything, newest first. It may be called after a failed New.
func (d *Daemon) Close() { d.cleanup.all() }

// undoing is a list of functions to close, newest first. A function that is added
// afterwards runs at once.
type undoing struct {
	mu   sync.Mutex
	todo []func()
	over bool
}

func (u *undoing) add(f func()) {
	u.mu.Lock()
	over := u.over
	if !over {
		u.todo = append(u.todo, f)
	}
	u.mu.Unlock()
	if over {
		f()
	}
}

func (u *undoing) all() {
	u.mu.Lock()
	todo := u.todo
	u.todo, u.over = nil, true
	u.mu.Unlock()
	for _, f := range slices.Backward(todo) {
		f()
	}
}
