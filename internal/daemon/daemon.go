// Package daemon wires the packages into one running Doorward. It
// knows no flags and no signals: cmd/doorward fills Options and ends the
// context.
//
// Invariant: what New opened, Close closes, in reverse order; a listener that
// the bind table refuses is never bound, and the rest runs without it.
package daemon

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/doorward/doorward/internal/daemon/console"
	"github.com/doorward/doorward/internal/daemon/passkey"
	"github.com/doorward/doorward/internal/daemon/telemetry"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/relay"
	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream/process"
)

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

// onClose has f called by Close, or now when that has begun.
func (d *Daemon) onClose(f func()) { d.cleanup.add(f) }

// Close ends everything, newest first. It may be called after a failed New.
func (d *Daemon) Close() { d.cleanup.all() }

// api answers the requests that are served beside MCP: the state of the daemon,
// and what the operator asks and changes.
type api struct{ d *Daemon }
