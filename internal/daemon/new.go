package daemon

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/auditkey"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/daemon/console"
	"github.com/doorward/doorward/internal/daemon/policycheck"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/relay"
	"github.com/doorward/doorward/internal/relay/seal"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream/pin"
	"github.com/doorward/doorward/internal/upstream/scan"
)

// New opens the state and builds the parts of the daemon. It opens no listener.
func New(o Options) (*Daemon, error) {
	d := &Daemon{o: o, uid: uint32(os.Geteuid()), log: o.Log, callers: callers{observer: peer.NewObserver(peer.Limits{})}, holders: peer.NewHolders(int32(os.Getpid()))}
	d.listeners = &listeners{d: d}
	d.callers.clients.program, _ = os.Executable() // if unknown, a shim counts as an ordinary client
	steps := []func() error{d.openState, d.listeners.openArrivals, d.openProof, d.openAudit, d.openRunner, d.openDefinitions, d.openServers, d.openAuth, storedParts{d}.open, d.openDoor}
	for _, step := range steps {
		if err := step(); err != nil {
			d.Close()
			return nil, err
		}
	}
	return d, nil
}

// openState makes the state directory, private to this user.
func (d *Daemon) openState() error {
	dir, err := peer.PrivateDir(d.o.StateDir)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if err := dir.Close(); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	d.callers.clients.path, d.callers.clients.log = filepath.Join(d.o.StateDir, clientsFile), d.log
	if err := d.callers.clients.load(); err != nil {
		return err
	}
	return d.openPlaces()
}

// openPlaces pins the state and the runtime directory. The first holds keys, tokens and
// approvals, the second the socket: a directory that replaces one of them could impersonate
// this daemon.
func (d *Daemon) openPlaces() error {
	files := []string{filepath.Join(d.o.StateDir, "doorward.db")}
	if d.o.RuntimeDir != "" && !d.offline && d.o.Config.Listen.Unix == "auto" {
		if dir, err := peer.PrivateDir(d.o.RuntimeDir); err == nil { // otherwise the listener will be refused with the reason
			dir.Close()
			files = append(files, filepath.Join(d.o.RuntimeDir, listen.SocketName))
		}
	}
	for _, file := range files {
		place, err := durable.Pin(file)
		if err != nil {
			return fmt.Errorf("state directory: %w", err)
		}
		d.places = append(d.places, place)
		d.onClose(place.Close)
	}
	return nil
}

// openProof reads or makes the key, and publishes its public half.
func (d *Daemon) openProof() error {
	seed, err := sealKey(filepath.Join(d.o.StateDir, proofName))
	if err != nil {
		return err
	}
	d.proof = proof(ed25519.NewKeyFromSeed(seed))
	if err := durable.ReplaceAt(filepath.Join(d.o.StateDir, PublicProofName), []byte(d.proof.public()+"\n")); err != nil {
		return fmt.Errorf("publishing the daemon's key: %w", err)
	}
	return nil
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
		return fmt.Errorf("%w; find the cause, and keep the directory unchanged until then; to start a new log, move the directory away, start and stop the daemon, and accept the new log with `doorward audit verify --accept`", err)
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

func (d *Daemon) openRunner() error {
	if dir := configDir(); dir != "" {
		_ = os.MkdirAll(dir, 0o700) // a missing directory cannot be hidden; if it cannot be made here, no server can make it either
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

// stopTime is how long the child processes may take to end when the daemon stops.
const stopTime = 6 * time.Second

// openDefinitions opens the approved definitions of the servers, and the content rules.
func (d *Daemon) openDefinitions() error {
	f := &definitions{log: d.log, audit: d.audit}
	book, err := pin.Open(pin.Options{Dir: PinsDir(d.o.StateDir), Log: d.log, Note: f.note})
	if err != nil {
		return err
	}
	d.onClose(book.Close)
	f.pins, f.scans = book, scan.NewLibrary(f.patternsRead)
	d.agents = &agents{o: d.o, runner: d.runner, pins: book, daemonKey: d.proof.public()}
	f.agents, d.definitions = d.agents, f
	return nil
}

func (d *Daemon) openServers() error {
	d.outward = newOutward(d.o, d.audit)
	if d.arrivals != nil {
		d.outward.await = d.arrivals.Await
	}
	rules, err := d.compilePolicy(d.o.Config)
	if err != nil {
		return err
	}
	d.policy.Store(rules)
	set, err := newServers(d.o.Config, d.runner, d.log, d.o.Version, d.outward, nil, d.noteStderr)
	if err != nil {
		return err
	}
	d.definitions.guard(set)
	d.servers = set
	d.contained.Store(set.containment())
	d.onClose(func() { d.servers.close(nil) })
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

// compilePolicy is Policy for the daemon itself. A policy that equals the one in force is that
// one, because an approval is for the policy under which its act was held. cmd/doorward has shown
// the problems of the same text before; here they become one error.
func (d *Daemon) compilePolicy(c *config.Config) (*rules, error) {
	from := policyOptions(c, d.uid)
	if now := d.policy.Load(); now != nil && reflect.DeepEqual(now.from, from) {
		return now, nil
	}
	set, problems := policycheck.Compile(from)
	if set != nil {
		return &rules{set, PolicyText(c), from}, nil
	}
	var all []error
	for _, p := range problems {
		if !p.Warning {
			all = append(all, fmt.Errorf("%s:%d: %s", p.File, p.Line, p.Text))
		}
	}
	return nil, fmt.Errorf("the policy: %w", errors.Join(all...))
}

// noteStderr takes a line of a server's standard error.
func (d *Daemon) noteStderr(server, line string) {
	d.stderr.note(server, line)
	d.unseen.note(server, line)
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
	d.onClose(func() { _ = keeper.Close() }) // closing a directory writes nothing
	d.onClose(d.callers.clients.save)        // no other daemon can have the state directory yet
	d.door = front.New(front.Options{
		Handler: d.telemetry.Door(d.relay), Screen: screen, Authenticate: d.callers.authenticate, Holds: d.callers.auth.Holds, Refused: d.callers.refusedAtDoor,
		Resource: d.issuer.resource(),
		Ahead:    consoleHost{d}.ahead, Delivery: d.instructing.server.Delivery,
		Seen: d.seen, Unread: listen.Unread, HungUp: listen.HungUp, Await: listen.Await, Back: listen.Back,
		Paths: api{d}.paths(), BodyBytes: l.BodyBytes, Sessions: l.Sessions, Bounds: boundsOf(l, d.uid),
		SessionsPerPrincipal: l.SessionsPerPrincipal, CallsPerPrincipal: l.CallsPerPrincipal, Full: d.relay.Full,
		IdleSession: idleSession, StreamTime: l.Stream, Keeper: keeper, Timed: d.telemetry.Traces(),
	})
	d.onClose(d.door.Close)
	d.onClose(d.telemetry.Close)
	return nil
}

// idleSession is how long a session without an open stream outlives its last request. It is
// long enough for the pauses of an agent.
const idleSession = 2 * time.Hour

// open makes the web console.
func (h consoleHost) open() error {
	a := api(h)
	keys, err := openPasskeys(h.d.o.StateDir, h.d.audit.Append)
	if err != nil {
		return err
	}
	h.d.passkeys = keys
	c, err := console.New(console.Options{Passkeys: keys, PasskeyRequired: needsPasskey(h.d),
		Enter: h.enter, Allows: h.allows, MayBegin: h.mayBegin, Event: h.event,
		Refused: func(r *http.Request, reason string) { h.d.callers.events.request(r, sourceConsole, "http", reason) },
		Status:  a.status, Refusals: a.refusals, Limits: limitSettings(h.d.o.Config), AuditDir: AuditDir(h.d.o.StateDir, h.d.o.Config),
		Seq: func() uint64 { return h.d.audit.State().Seq }, Checkpoint: h.d.audit.Checkpointed,
		Trust:     admin.Truster{List: func() []admin.Trust { return h.d.definitions.trust("") }, Look: h.d.definitions.look, Approve: h.d.definitions.approve},
		Approvals: heldActs(h),
		Agents:    h.agents, StopAgent: h.stopAgent,
		Instructions: func() console.Instructions { return h.d.instructing.server.Operator() },
		Policy:       a.policyText, Decide: a.decide, Servers: consoleServers(h), Log: h.d.log,
	})
	if err != nil {
		return fmt.Errorf("making the console: %w", err)
	}
	h.d.console = c
	h.d.onClose(c.Close)
	return nil
}
