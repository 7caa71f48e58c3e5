// Package daemon connects the packages to one running Doorward. It knows no flags and no
// signals: cmd/doorward fills Options and ends the context.
//
// Invariant: Close closes what New opened, in reverse order. A listener that the bind table
// refuses is never bound, and the daemon runs without it.
package daemon

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/doorward/doorward/internal/base/store"
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

// ErrNoListener means that no listener could be opened.
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
	proof       proof // proves the daemon's identity to clients of the Unix socket
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
	// contained describes how the servers are contained.
	contained atomic.Pointer[containment]
	// unseen holds the paths that servers mentioned and could not see.
	unseen unseen
	// messaging is the server agent; nil: it is off, or storeless holds the reason why it has
	// not started.
	messaging atomic.Pointer[messaging]
	storeless atomic.Pointer[string]
	database  atomic.Pointer[store.DB] // nil: it is not open
	// instructing delivers instructions. It exists also while its database is unavailable.
	instructing *instructing
	telemetry   *telemetry.Telemetry
	metrics     *prometheus.Registry
	offline     bool // an operator's command without a running daemon
	// holders finds the processes of loopback callers.
	holders *peer.Holders
	// arrivals reports data on idle connections; nil: this system does not report it.
	arrivals *peer.Arrivals

	reloading sync.Mutex
	inForce   inForce

	listeners *listeners
	console   *console.Console
	passkeys  *passkey.Book
	warmth    *warmth
	stderr    stderrLines // the last lines of the servers' standard error

	cleanup undoing
}

// Refused is a listener that was not opened.
type Refused struct{ Network, Addr, Reason string }

// onClose makes Close call f. If Close has begun, f is called at once.
func (d *Daemon) onClose(f func()) { d.cleanup.add(f) }

// Close ends everything, newest first. It may be called after a failed New.
func (d *Daemon) Close() { d.cleanup.all() }

// api serves the requests other than MCP: the state of the daemon, and the operator's
// questions and changes.
type api struct{ d *Daemon }
