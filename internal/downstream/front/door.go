package front

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Options are what the door needs from the rest of the house. The functions
// are called for every request and must be safe for concurrent use.
type Options struct {
	Handler Handler
	// Screen checks Host and Origin, before anything else is looked at. false
	// is a 403.
	Screen func(*http.Request) bool
	// Authenticate says who is calling. ErrLimited is a 429, ErrMalformed a 400,
	// ErrUnavailable a 503, any other error a 401; the error itself never
	// reaches the caller.
	Authenticate func(*http.Request) (*principal.Principal, error)
	// Ahead serves what needs no caller: it reports whether it has answered. nil:
	// there is nothing but /health.
	Ahead func(w http.ResponseWriter, r *http.Request, path string) bool
	// Delivery checks the delivery session of a request to an MCP route, beside the
	// caller's own credential, and returns its id, empty where none came. An error
	// is a 401. nil: there are none.
	Delivery func(*http.Request, *principal.Principal) (id string, err error)
	// Holds reports whether the proof of a principal still holds; it is called
	// every few seconds for sessions and calls in progress. nil: always.
	Holds func(*principal.Principal) bool
	// Refused is called for each request that is refused before the handler, with
	// the reason: ErrOrigin, ErrScope, or the error of Authenticate.
	Refused func(r *http.Request, status int, reason error)
	// Seen is called for every sign of life of a client: an authenticated request,
	// and a keep-alive that was read. session is the digest of its session, or
	// empty. It must not block. nil: signs of life are not reported.
	Seen func(who *principal.Principal, session string)
	// Unread measures, for the connection of a request, how much of what was
	// written to it has not been read. nil, and nil functions: it cannot be
	// told, and then an open stream is no sign of life.
	Unread func(ctx context.Context) func() (int, error)
	// Resource tells clients where to get tokens. nil: nowhere.
	Resource *Resource
	// Paths serve routes other than MCP, for authenticated callers, by exact path
	// or, where the key ends in a slash, by prefix.
	Paths map[string]func(http.ResponseWriter, *http.Request, *principal.Principal)

	BodyBytes            int64
	Sessions             int
	SessionsPerPrincipal int
	CallsPerPrincipal    int // a session may not have more under way; 0: 256
	IdleSession          time.Duration
	// Bounds are the sessions and the calls under way in one of them that a principal
	// may have. nil: SessionsPerPrincipal and CallsPerPrincipal, whoever it is.
	Bounds func(*principal.Principal) (sessions, calls int)
	// Full answers what finds no room at the door; rule names the limit. It
	// records the refusal. nil: there is no record.
	Full func(x *Exchange, rule string) Reply
	// Timed notes when each request comes in, for Exchange.Arrived.
	Timed bool
	// Keeper keeps sessions for the next run of the daemon. nil: they end with it.
	Keeper Keeper
	// StreamTime is how long the event stream of one call is held open; after
	// it a client of 2025-11-25 is asked to come back for the rest (SEP-1699).
	// 0: as long as the call takes.
	StreamTime time.Duration
}

// Door is the HTTP handler of every listener. Nothing is served beside it.
type Door struct {
	o        Options
	sessions *sessions
	earlier  earlier
	leases   sync.Map // *lease -> nil: what is under way for those who can lose it
	stop     chan struct{}
	closing  sync.Once
}

// New makes a door. Close ends its sessions.
func New(o Options) *Door {
	d := &Door{o: o, sessions: newSessions(o.Sessions, o.each, o.IdleSession), stop: make(chan struct{})}
	d.earlier.door, d.earlier.keeper = d, o.Keeper
	go d.sweep()
	return d
}

// holdEvery is how often the right to a stream is looked at again: a revoked
// token's streams end within five seconds.
const holdEvery = 3 * time.Second

func (d *Door) sweep() {
	hold, keep := time.NewTicker(holdEvery), time.NewTicker(keepAlive)
	defer hold.Stop()
	defer keep.Stop()
	for {
		select {
		case <-hold.C:
			d.sweepLost()
			d.hearAll()
		case <-keep.C:
			d.sessions.sweep()
			d.beat()
		case <-d.stop:
			return
		}
	}
}

// Sessions is the number of open sessions.
func (d *Door) Sessions() int { return d.sessions.count() }

// Each calls f for every open session until it returns false.
func (d *Door) Each(f func(*Session) bool) {
	d.sessions.mu.RLock()
	all := make([]*Session, 0, len(d.sessions.byID))
	for _, s := range d.sessions.byID {
		all = append(all, s)
	}
	d.sessions.mu.RUnlock()
	for _, s := range all {
		if !f(s) {
			return
		}
	}
}

// Close ends every session and stream. It may be called more than once.
func (d *Door) Close() {
	d.closing.Do(func() {
		close(d.stop)
		d.sessions.close()
	})
}

// ServeHTTP checks a request in a fixed order: its form, Host and Origin,
// authentication, path, method, and only then the body.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.o.Timed {
		r = r.WithContext(context.WithValue(r.Context(), arrivedKey{}, time.Now()))
	}
	if len(r.TransferEncoding) > 0 {
		// net/http does not tell whether Content-Length was there as well. Then two
		// readers can disagree where the body ends (RFC 9112, 6.3).
		w.Header().Set("Connection", "close")
	}
	if !wellFormed(r) {
		w.Header().Set("Connection", "close")
		plain(w, http.StatusBadRequest)
		return
	}
	if !d.o.Screen(r) {
		refusals{d}.refuse(w, r, http.StatusForbidden, ErrOrigin)
		return
	}
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if path == "/health" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		writeJSON(w, http.StatusOK, []byte(`{"status":"ok"}`))
		return
	}
	if (refusals{d}).isMetadata(path) {
		refusals{d}.metadata(w, r, path)
		return
	}
	if d.o.Ahead != nil && d.o.Ahead(w, r, path) {
		return
	}
	who, err := d.o.Authenticate(r)
	if err != nil || !who.Valid() {
		refusals{d}.unauthenticated(w, r, path, err)
		return
	}
	d.route(w, r, who, path)
}

// wellFormed admits origin-form targets of HTTP/1.1 and 2 without an upgrade.
func wellFormed(r *http.Request) bool {
	return strings.HasPrefix(r.RequestURI, "/") && r.ProtoAtLeast(1, 1) && r.Host != "" &&
		r.Method != http.MethodConnect && r.Method != http.MethodTrace && len(r.Header["Upgrade"]) == 0
}

// route selects the handler by the path exactly as it was sent: no decoding, no
// cleaning, no redirect, so that every reader of the path agrees on it.
func (d *Door) route(w http.ResponseWriter, r *http.Request, who *principal.Principal, path string) {
	face, server := splitPath(path)
	if face != "mcp" && face != "sse" && face != "messages" {
		d.other(w, r, who, path)
		return
	}
	r, ok := d.withDelivery(w, r, who, path)
	if !ok {
		return
	}
	switch face {
	case "mcp":
		d.mcp(w, r, who, server)
	case "sse":
		sseFace{d}.open(w, r, who, server)
	case "messages":
		sseFace{d}.post(w, r, who, server)
	}
}

// splitPath returns "/mcp/notes" as ("mcp", "notes") and "/mcp" as ("mcp", "").
// What is not exactly of that form has no face.
func splitPath(path string) (face, server string) {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return "", ""
	}
	face, server, more := strings.Cut(rest, "/")
	if more && !serverName(server) {
		return "", ""
	}
	return face, server
}

func serverName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return s != ""
}

// mcp serves /mcp and /mcp/{server} in both eras.
func (d *Door) mcp(w http.ResponseWriter, r *http.Request, who *principal.Principal, server string) {
	if !d.o.Handler.Known(who, server) {
		if !(refusals{d}).lacksScope(w, r, who, server) {
			fail(w, http.StatusNotFound, nil, errUnknownServer)
		}
		return
	}
	switch r.Method {
	case http.MethodPost:
		d.post(w, r, who, server)
	case http.MethodGet:
		streamable{d}.listen(w, r, who, server)
	case http.MethodDelete:
		streamable{d}.endSession(w, r, who, server)
	default:
		w.Header().Set("Allow", "POST, GET, DELETE")
		plain(w, http.StatusMethodNotAllowed)
	}
}

// inbound is one POST after its body has been read and parsed.
type inbound struct {
	w      http.ResponseWriter
	r      *http.Request
	who    *principal.Principal
	server string
	size   int64
	json   bool // what the client accepts
	sse    bool
	stream bool   // and prefers
	header string // MCP-Protocol-Version
}

// post reads, parses and classifies one POST to an MCP endpoint.
func (d *Door) post(w http.ResponseWriter, r *http.Request, who *principal.Principal, server string) {
	in := inbound{w: w, r: r, who: who, server: server}
	if !isJSON(r.Header["Content-Type"]) {
		plain(w, http.StatusUnsupportedMediaType)
		return
	}
	if in.json, in.sse, in.stream = accepts(r.Header["Accept"]); !in.json && !in.sse {
		plain(w, http.StatusNotAcceptable)
		return
	}
	if !once(r.Header) {
		fail(w, http.StatusBadRequest, nil, errHeaderOnce)
		return
	}
	buf, ok := d.body(w, r)
	if !ok {
		return
	}
	defer bodies.put(buf)
	in.size = int64(len(buf.b))
	in.header = r.Header.Get("Mcp-Protocol-Version")
	if len(buf.b) > 0 && firstByte(buf.b) == '[' {
		streamable{d}.batch(&in, buf.b)
		return
	}
	m, err := wire.Parse(buf.b, wire.FromClient)
	if err != nil {
		fail(w, http.StatusBadRequest, nil, syntax(err))
		return
	}
	d.classify(&in, &m)
}

// body reads the request's body, or answers why not.
func (d *Door) body(w http.ResponseWriter, r *http.Request) (*buffer, bool) {
	buf, err := readBody(w, r, d.o.BodyBytes)
	switch {
	case err == nil:
		return buf, true
	case errors.Is(err, errTooLarge):
		w.Header().Set("Connection", "close")
		plain(w, http.StatusRequestEntityTooLarge)
	default:
		w.Header().Set("Connection", "close")
		plain(w, http.StatusBadRequest)
	}
	return nil, false
}

// classify settles the era from header and body together.
func (d *Door) classify(in *inbound, m *wire.Message) {
	meta := wire.GetPath(m.Params, "_meta", wire.MetaVersion)
	version, _ := wire.Text(meta)
	id := in.r.Header.Get("Mcp-Session-Id")
	switch {
	case protocol.LooksModern(in.header) || protocol.LooksModern(version):
		d.modern(in, m, version)
	case in.header != "" && !protocol.IsLegacyVersion(in.header):
		fail(in.w, http.StatusBadRequest, m.ID, badVersion(in.header, version))
	case m.Method == "initialize" && id == "":
		streamable{d}.initialize(in, m)
	case id != "":
		streamable{d}.inSession(in, m, id)
	case version != "":
		fail(in.w, http.StatusBadRequest, m.ID, unsupported(version))
	default:
		fail(in.w, http.StatusBadRequest, m.ID, errNoVersion)
	}
}

// badVersion is the answer to an unknown version. A modern client sends its
// version in the header and the body, and is told the supported versions.
func badVersion(header, meta string) *wire.Error {
	if header == meta {
		return unsupported(meta)
	}
	return errBadVersion
}

// unsupported is -32022 with what this route can serve.
func unsupported(requested string) *wire.Error {
	data := []byte(`{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"],"requested":`)
	data = append(rawjson.AppendQuote(data, requested), '}')
	return &wire.Error{Code: CodeVersion, Message: "Unsupported protocol version", Data: data}
}

func syntax(err error) *wire.Error {
	e := &wire.Error{Code: CodeParse, Message: "Parse error"}
	var s *wire.SyntaxError
	if errors.As(err, &s) && s.Code == CodeInvalidRequest {
		e = &wire.Error{Code: CodeInvalidRequest, Message: "Invalid request"}
	}
	return e
}

// serve runs one request to its end on its stream.
func (d *Door) serve(ctx context.Context, x *Exchange) {
	x.stream.watch()
	reply := d.ask(ctx, x)
	x.stream.finish(x.Era, x.ID, reply)
	x.stream.leave()
}
