// Package upstream speaks to MCP servers: over a child's standard streams, over
// Streamable HTTP in both protocol eras, and over the older HTTP+SSE.
//
// The rest of Doorward sees one kind of connection, Conn, for every server. A
// Conn carries raw params one way and raw results the other. It mints the ids and
// progress tokens that a server sees, so that an answer can reach only the call
// it was made for. Everything a server sends is treated as hostile: strictly
// parsed once, bounded in size and number, and dropped and counted when it has no
// receiver.
//
// Invariants: every call ends exactly once, with a reply or with an error that
// says whether the server may have run it. No memory that a caller keeps aliases
// a reused buffer. A broken server affects only its own connection. When a
// connection is over, its process, descriptors and goroutines are gone.
package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream/egress"
	"github.com/doorward/doorward/internal/upstream/process"
)

// Kinds of server, the values of Definition.Kind.
const (
	KindStdio = "stdio" // a child process, newline-delimited JSON
	KindHTTP  = "http"  // Streamable HTTP, falling back to HTTP+SSE
	KindSSE   = "sse"   // HTTP+SSE of revision 2024-11-05
)

// Defaults of Definition and Deps.
const (
	DefaultMaxMessage   = 16 << 20         // bytes of one message
	DefaultProbeTimeout = 5 * time.Second  // for the answer to server/discover
	DefaultStart        = 10 * time.Minute // a first start may download the server's package
)

// handshakeLimit bounds a handshake over the network if Definition.Timeout sets no limit.
const handshakeLimit = 2 * time.Minute

// Definition says what one server is and how to reach it.
type Definition struct {
	Name string
	Kind string // KindStdio, KindHTTP or KindSSE

	Path string   // stdio: absolute path of the program
	Args []string // stdio
	Env  []string // stdio: the complete environment, "NAME=value"
	Dir  string   // stdio: working directory, "" for the daemon's

	Sandbox process.Sandbox // stdio: how it is contained

	URL          string      // http, sse
	Headers      http.Header // http, sse: the credential for this server; sent to the URL's origin only
	AllowPrivate bool        // http, sse: loopback and private addresses are allowed

	Start      time.Duration // stdio: from the start of the program to the end of the handshake; 0: DefaultStart
	Timeout    time.Duration // of one call in total; 0: none. It does not apply to subscriptions/listen and to the handshake of a program
	Connect    time.Duration // http, sse: of a connection, and as long again of its TLS handshake; 0: 10 s
	FirstByte  time.Duration // http, sse: from a request to the header of its answer; 0: none
	Idle       time.Duration // of silence during a call or on a stream; 0: none
	MaxMessage int           // bytes of one message from the server; 0: DefaultMaxMessage
	MaxStreams int           // http, sse: streams held open beside the calls; 0: no bound
	KeepStderr bool          // stdio: standard error is logged too
}

// Deps are the dependencies of a server.
type Deps struct {
	Runner       *process.Runner // starts the children; needed for stdio
	Log          *slog.Logger    // nil: slog.Default
	ClientInfo   []byte          // raw {"name":…,"version":…}; becomes the User-Agent of HTTP requests
	ProbeTimeout time.Duration   // 0: DefaultProbeTimeout

	Credential Credential                     // http, sse: of this one server; nil: Headers are enough
	Proxy      string                         // http, sse: egress.Options.Proxy
	Notice     func(server string, open bool) // called when a circuit opens or closes; may be nil
	// Await is egress.Options.Await, for silent streams of servers over plain HTTP; nil: each has
	// a goroutine.
	Await  func(c net.Conn, f func()) (stop func() bool, err error)
	Stderr func(server, line string) // stdio: receives what servers write to standard error; may be nil
}

// Server is one configured MCP server. It holds no connection itself.
type Server struct {
	def         Definition
	deps        Deps
	log         *slog.Logger
	url         *url.URL          // http, sse
	origin      string            // http, sse: of url
	transport   *egress.Transport // http, sse
	template    *http.Request     // http, sse: to the URL, without a header
	circuit     circuit           // http, sse
	streams     atomic.Int64      // http, sse: held open beside the calls
	agent       string            // User-Agent
	backoff     restarts          // stdio
	diagnostics diagnostics       // stdio
	falls       falls             // stdio
	counts      counters
}

// New checks the definition. It starts and dials nothing.
func New(def Definition, deps Deps) (*Server, error) {
	s := &Server{def: def, deps: deps, log: deps.Log, agent: userAgent(deps.ClientInfo)}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.log = s.log.With("server", def.Name)
	if s.def.MaxMessage <= 0 {
		s.def.MaxMessage = DefaultMaxMessage
	}
	if s.deps.ProbeTimeout <= 0 {
		s.deps.ProbeTimeout = DefaultProbeTimeout
	}
	switch def.Kind {
	case KindStdio:
		return s, checkStdio(&s.def, s.deps)
	case KindHTTP, KindSSE:
		return s, s.checkHTTP()
	}
	return nil, fmt.Errorf("server %q: unknown kind %q", def.Name, def.Kind)
}

func checkStdio(d *Definition, deps Deps) error {
	if deps.Runner == nil {
		return fmt.Errorf("server %q: no runner for child processes", d.Name)
	}
	if d.Path == "" {
		return fmt.Errorf("server %q: no program to start", d.Name)
	}
	return nil
}

func (s *Server) checkHTTP() error {
	u, err := egress.CheckURL(s.def.URL)
	if err != nil {
		return fmt.Errorf("server %q: %w", s.def.Name, err)
	}
	s.url, s.origin = u, egress.Origin(u)
	s.template = s.newRequest(http.MethodPost, nil)
	s.circuit.change = s.noted
	s.circuit.clean.Store(true)
	s.transport = egress.NewRoundTripper(egress.Options{
		AllowPrivate: s.def.AllowPrivate,
		Origin:       s.origin,
		Dial:         s.def.Connect,
		TLS:          s.def.Connect,
		Header:       -1, // no limit here: FirstByte and the limit of the call apply
		Proxy:        s.deps.Proxy,
		Await:        s.deps.Await,
	})
	return nil
}

// Close closes idle HTTP connections. Connections in use stay open; their owner closes them.
func (s *Server) Close() {
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
}

// Request is one request to a server. Only the progress token in Params is replaced.
type Request struct {
	Method        string
	Params        []byte
	ProgressToken []byte // the client's raw token; nil: none. The connection mints its own and restores this one in progress notifications
	// Logs is the key of the client that receives the server's log messages with this call,
	// where the stream of a legacy server does not assign them to calls; empty: none. Of
	// several calls with one key, one receives each message.
	Logs    string
	Headers http.Header // modern HTTP only: the Mcp-Param-* to forward; other names are left out
	Asks    bool        // the server may ask the client during the call, see Abandoned
}

// Reply is a server's answer: a result, or a JSON-RPC error. Plain is the wire.Message's; a
// built-in server sets it for a result in which no member has the name of a question.
type Reply struct {
	Result []byte
	Error  *wire.Error
	Plain  bool
}

// Event is a message of a server that answers no call: a notification, or (ID != nil) a
// request that needs Answer. The slices belong to the receiver.
//
// In the modern era Params still carry the subscription id that the connection minted; the
// receiver restores the client's own.
type Event struct {
	Method string
	Params []byte
	ID     wire.ID
	Plain  bool // the wire.Message's
	// Missed: it stands for messages outside of calls that may have been lost, because the
	// stream for them was not open. The other members are empty.
	Missed bool
}

// size returns the bytes that the event keeps in memory. The server chose all of them.
func (ev Event) size() int { return len(ev.Method) + len(ev.Params) + len(ev.ID) }

// Conn is one connection to a server: a child, a session, or in the modern HTTP era only a
// sequence of requests. All methods are safe for concurrent use.
//
// Two requests of a server never become events: ping is answered here, and any request in the
// modern era is a violation, dropped and counted.
type Conn interface {
	// Call sends a request and waits. on is called on the caller's goroutine, in order, for
	// each message on behalf of this call; if it is nil, such messages go to the connection's
	// own on. When ctx is done the call is cancelled at the server (notifications/cancelled,
	// or the stream is closed in the modern HTTP era) and ctx's error is returned.
	Call(ctx context.Context, r *Request, on func(Event)) (Reply, error)
	// Notify sends a notification.
	Notify(ctx context.Context, method string, params []byte) error
	// Answer answers an Event that has an ID. Legacy era only.
	Answer(ctx context.Context, id wire.ID, r Reply) error
	// Listen opens the stream for messages outside of calls, if this kind of connection has
	// one of its own (legacy Streamable HTTP) and it is not open. It returns at once; the
	// stream is opened again when it breaks.
	Listen()
	// Close ends the connection: calls in flight fail with ErrLost, a session
	// is deleted, a child is stopped. It returns at once.
	Close()
	// Done is closed when the connection can carry no more calls.
	Done() <-chan struct{}
	// Err returns the reason, once Done is closed.
	Err() error
}

// Gone returns a channel that is closed when a connection has ended and, if it is one to a
// program, its process has too.
func Gone(c Conn) <-chan struct{} {
	if child, ok := c.(*stdioConn); ok {
		return child.proc.Done()
	}
	return c.Done()
}

// After calls f when c can carry no more calls. A goroutine waits for that if the connection
// cannot call f itself.
func After(c Conn, f func()) {
	if e, ok := c.(interface{ AfterDone(func()) }); ok {
		e.AfterDone(f)
		return
	}
	go func() {
		<-c.Done()
		f()
	}()
}

// Finished reports whether the program behind c has ended by itself with exit status 0, as an
// idle one may. It is false for a connection over HTTP.
func Finished(c Conn) bool {
	s, ok := c.(*stdioConn)
	if !ok || s.quiet.Load() {
		return false
	}
	select {
	case <-s.proc.Done():
		return s.proc.Err() == nil
	default:
		return false
	}
}

// Abandoned reports whether a call that may ask was given up in the last leftTime, and the
// program behind c has not answered it since. It is false for a connection over HTTP.
func Abandoned(c Conn) bool {
	s, ok := c.(*stdioConn)
	return ok && s.pending.abandoned(time.Now())
}

// userAgent returns "name/version" of the client info, as far as it has them.
func userAgent(info []byte) string {
	name, _ := rawjson.GetString(info, "name")
	version, _ := rawjson.GetString(info, "version")
	clean := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r <= ' ' || r > '~' || r == '/' {
				return -1
			}
			return r
		}, s)
	}
	agent := clean(name)
	if agent == "" {
		return "doorward"
	}
	if v := clean(version); v != "" {
		agent += "/" + v
	}
	return agent
}

// callLimit returns the total time of a call, 0 for none: a subscription stays open, and
// dialLimit bounds the handshake of a program.
func (d *Definition) callLimit(method string) time.Duration {
	if method == methodListen || d.Kind == KindStdio && (method == methodInitialize || method == methodDiscover) {
		return 0
	}
	return d.Timeout
}

// silence returns how long a call may be silent, 0 if its total time is not longer anyway.
func (d *Definition) silence(method string) time.Duration {
	if total := d.callLimit(method); total > 0 && total <= d.Idle {
		return 0
	}
	return d.Idle
}

// dialLimit returns the total time of a handshake.
func (d *Definition) dialLimit() time.Duration {
	switch {
	case d.Kind == KindStdio && d.Start > 0:
		return d.Start
	case d.Kind == KindStdio:
		return DefaultStart
	case d.Timeout > 0:
		return d.Timeout
	}
	return handshakeLimit
}
