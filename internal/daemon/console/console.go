// Package console is the web console at /ui/. It shows the acts of the daemon and the calls
// that wait for a person, in a browser on this machine.
//
// Invariants: a GET, an address or a local origin signs no caller in. A session begins with a
// code that the operator fetched on the Unix socket, and acts in the operator's name through
// the same functions and the same gate as the command line. A text from elsewhere never becomes
// markup: templates escape it, and plaintext replaces invisible characters by escapes. Pages
// are bounded: lists have pages, and long texts are cut.
package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/passkey"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Options holds the functions and data of the daemon that the console needs. All functions are
// safe for concurrent use.
type Options struct {
	// Enter passes the gate as action `admin` and refuses the shell of an agent; leave records
	// the end of the act.
	Enter func(ctx context.Context, by Caller, what string) (leave func(), err error)
	// Allows is Enter without a record, for the continuation of a recorded act.
	Allows func(ctx context.Context, by Caller, what string) bool
	// MayBegin refuses to begin a session for a program that is an agent or MCP client, or below
	// one.
	MayBegin func(r *http.Request) error
	// Event records an event of a session; who may be nil.
	Event func(who *principal.Principal, action, reason string)
	// Refused records a request that was refused before a session was known.
	Refused func(r *http.Request, reason string)

	Status   func() admin.Status
	Refusals func() map[string]uint64 // since the start, by kind
	Limits   []Setting
	AuditDir string
	Seq      func() uint64 // of the last record
	// Checkpoint returns the last signed checkpoint of the log; false: there is none yet.
	Checkpoint func() (audit.Mark, bool)
	Trust      admin.Truster
	// Agents returns the operator's side of messaging; nil: it is off, or its database is
	// unavailable.
	Agents    func() admin.Agents
	StopAgent func(spawn string) error
	// Instructions is the operator's side of delivery.
	Instructions func() Instructions
	Policy       func() string
	Decide       func(policy.Request) policy.Decision
	Approvals    Approvals // nil: this daemon holds no calls
	Servers      Servers
	Passkeys     *passkey.Book
	// PasskeyRequired means that held calls and messages can be approved only with a passkey.
	PasskeyRequired bool
	Log             *slog.Logger
	Now             func() time.Time // nil: the wall clock, which goes on while the machine is suspended
}

// Setting is one key of the configuration with its value.
type Setting struct{ Key, Value string }

// Servers shows and restarts configured servers. Their status comes from Options.
type Servers interface {
	// Definitions returns the approved definitions of a server, as canonical JSON by item, such
	// as tool:NAME.
	Definitions(server string) map[string][]byte
	// Stderr returns the last lines of standard error, the oldest first.
	Stderr(server string) []string
	// Restart ends the processes of a server, which start again at the next
	// call, and returns their number. The error admin.ErrNotFound means that
	// there is no such server.
	Restart(server string) (ended int, err error)
}

// ErrVerdict means that a form contains an unknown decision.
var ErrVerdict = errors.New("no such decision")

// ErrGone is wrapped by the error of Options.MayBegin for a connection that has ended meanwhile, such
// as that of a request that the browser gave up.
var ErrGone = errors.New("the connection has ended")

// ErrUnknownProgram is wrapped by the error of Options.MayBegin for a program that cannot be
// determined.
var ErrUnknownProgram = errors.New("the program of the connection is not known")

// Approvals is the queue of held calls and messages.
type Approvals interface {
	Pending(ctx context.Context, by Caller) ([]Held, error)
	// Settle decides question n. It fails if the question is not open or the
	// caller may not decide, and with [ErrVerdict] if d is unknown.
	Settle(ctx context.Context, by Caller, n uint64, d Verdict) error
}

// Held is one call or message that waits for a person. Tool is one word, Args and Rest are JSON
// texts; Rest is what the server gets beside the arguments.
type Held struct {
	N                               uint64
	Time, Expires                   time.Time
	Client, Principal, Server, Tool string
	Args, Rest                      string
	Rule, Reason                    string // why it is held
	Notes                           []string
	Preview                         string // digest of the shown content
	Message                         string // id of the message; empty: it is a call
	Passkey                         bool   // the approval needs a passkey
}

// Verdict is the decision of a person: Decision is approve or deny, For is once, session, 1h or
// always, Why is the reason of a denial. Preview is the digest of the shown content, and
// Passkey the key that signed an approval.
type Verdict struct{ Decision, For, Why, Preview, Passkey string }

// Console serves /ui/.
type Console struct {
	o        Options
	sessions *book
	hour     *hour
	views    *views
	routes   map[string]route
	streams  atomic.Int32 // open live streams
	stop     context.CancelFunc
	stopped  context.Context
}

// New makes a console. Close ends its sessions and streams.
func New(o Options) (*Console, error) {
	if o.Now == nil {
		o.Now = func() time.Time { return time.Now().Round(0) }
	}
	v, err := newViews(o.Now)
	if err != nil {
		return nil, err
	}
	c := &Console{o: o, sessions: newBook(o.Now), hour: newHour(o.AuditDir, o.Now), views: v}
	c.stopped, c.stop = context.WithCancel(context.Background())
	c.routes = c.allRoutes()
	return c, nil
}

// Close ends every session and stream. It may be called more than once.
func (c *Console) Close() {
	c.sessions.endAll()
	c.stop()
}

// Issue makes a code that can begin one session on a listener within a minute.
func (c *Console) Issue(by Caller, listener string) (code string, until time.Time) {
	return c.sessions.issue(by, listener)
}

// SignOut ends all sessions and discards all codes. It returns the number of sessions.
func (c *Console) SignOut() int { return c.sessions.endAll() }

// Expected reports whether a request belongs to a session, or may begin one because a code was
// fetched for its listener. On a listener that requires a token, any other request is answered
// like one without a token.
func (c *Console) Expected(r *http.Request, v Visit) bool {
	return c.sessions.waits(v.Listener) || c.sessions.find(cookie(r, v), v) != nil
}
