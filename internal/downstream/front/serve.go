package front

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
)

// New makes a Door. Close ends its sessions.
func New(o Options) *Door {
	d := &Door{o: o, sessions: newSessions(o.Sessions, o.each, o.IdleSession), stop: make(chan struct{})}
	d.earlier.door, d.earlier.keeper = d, o.Keeper
	go d.sweep()
	return d
}

// holdEvery is the interval at which proofs are checked again: the streams of a revoked token
// end within five seconds.
const holdEvery = 3 * time.Second

func (d *Door) sweep() {
	hold, keep := time.Tick(holdEvery), time.Tick(keepAlive)
	for {
		select {
		case <-hold:
			d.sweepLost()
			d.hearAll()
		case <-keep:
			d.sessions.sweep(d.sessions.now())
			d.beat()
		case <-d.stop:
			return
		}
	}
}

// ServeHTTP checks a request in a fixed order: its form, Host and Origin,
// authentication, path, method, and only then the body.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.o.Timed {
		r = r.WithContext(context.WithValue(r.Context(), arrivedKey{}, time.Now()))
	}
	if len(r.TransferEncoding) > 0 {
		// net/http does not report whether Content-Length was present too. In that case two
		// parsers can disagree about the end of the body (RFC 9112, 6.3).
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

// wellFormed accepts origin-form targets of HTTP/1.1 and later without an upgrade.
func wellFormed(r *http.Request) bool {
	return strings.HasPrefix(r.RequestURI, "/") && r.ProtoAtLeast(1, 1) && r.Host != "" &&
		r.Method != http.MethodConnect && r.Method != http.MethodTrace && len(r.Header["Upgrade"]) == 0
}

// route selects the handler by the exact path of the request: no decoding, no cleaning, no
// redirect, so that all parsers of the path agree on it.
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
	buf, ok := d.body(w, r, who)
	if !ok {
		return
	}
	in.buf = buf
	defer in.release()
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

// classify determines the era from header and body together.
func (d *Door) classify(in *inbound, m *wire.Message) {
	meta := rawjson.GetPath(m.Params, "_meta", wire.MetaVersion)
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

// badVersion returns the answer to an unknown version. A modern client sends its version in
// the header and the body, and is told the supported versions.
func badVersion(header, meta string) *wire.Error {
	if header == meta {
		return unsupported(meta)
	}
	return errBadVersion
}
