package front

import (
	"context"
	"net/http"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
)

// sseFace is the transport HTTP+SSE of 2024-11-05.
type sseFace struct{ d *Door }

// open serves GET /sse and /sse/{server}: the stream of the 2024-11-05 transport, whose first
// event names the address for POSTs. The session ends with the stream.
func (e sseFace) open(w http.ResponseWriter, r *http.Request, who *principal.Principal, server string) {
	if !e.d.o.Handler.Known(who, server) {
		fail(w, http.StatusNotFound, nil, errUnknownServer)
		return
	}
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET")
		plain(w, http.StatusMethodNotAllowed)
		return
	}
	if _, sse, _ := accepts(r.Header["Accept"]); !sse {
		plain(w, http.StatusNotAcceptable)
		return
	}
	if v := r.Header.Get("Mcp-Protocol-Version"); v != "" && !protocol.IsLegacyVersion(v) {
		fail(w, http.StatusBadRequest, nil, errBadVersion)
		return
	}
	if rule := e.d.sessions.reserve(who); rule != "" {
		streamable(e).full(w, nil, &Exchange{Who: who, Server: server, Era: Legacy, Method: "initialize"}, rule)
		return
	}
	s := e.d.newSession(newSessionID(), who, server, overSSE)
	s.readers.Add(1) // before the client can send a message: its handler asks whether the client listens
	e.d.sessions.publish(s)
	e.d.seen(who, s)
	out, err := e.d.takeOver(w, r)
	if err != nil {
		e.d.sessions.remove(s)
		return
	}
	if out.named("", "endpoint", []byte(endpoint(server, s.id))) != nil {
		out.close()
	}
	gen, _ := s.main.reserve(true)
	s.main.attachRaw(out, gen, 0)
	back := e.d.lend(who, out.close)
	out.gone(func() { back(); e.d.sessions.remove(s) })
}

func endpoint(server, id string) string {
	if server != "" {
		server = "/" + server
	}
	return "/messages" + server + "?session_id=" + id
}

// post serves POST /messages: every message is accepted at once and answered on the session's
// stream.
func (e sseFace) post(w http.ResponseWriter, r *http.Request, who *principal.Principal, server string) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		plain(w, http.StatusMethodNotAllowed)
		return
	}
	id, ok := sessionID(r.URL.RawQuery)
	s := e.d.sessions.find(id, who, server, overSSE)
	if !ok || s == nil {
		fail(w, http.StatusNotFound, nil, errUnknownSession)
		return
	}
	e.d.seen(who, s)
	if !isJSON(r.Header["Content-Type"]) || !once(r.Header) {
		plain(w, http.StatusUnsupportedMediaType)
		return
	}
	if e := s.version.differs(r.Header.Get("Mcp-Protocol-Version")); e != nil {
		fail(w, http.StatusBadRequest, nil, e)
		return
	}
	buf, ok := e.d.body(w, r, who)
	if !ok {
		return
	}
	if !s.holds() { // the program may have ended while the body was sent
		bodies.put(buf)
		fail(w, http.StatusNotFound, nil, errUnknownSession)
		return
	}
	m, err := wire.Parse(buf.b, wire.FromClient)
	if err != nil {
		fail(w, http.StatusBadRequest, nil, syntax(err))
		bodies.put(buf)
		return
	}
	in := &inbound{w: w, r: r, who: who, server: server, size: int64(len(buf.b))}
	if err := e.accept(in, &m, s, buf); err != nil {
		streamable(e).notEntered(in, &m, s, err)
		bodies.put(buf)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusAccepted)
	w.Write([]byte("Accepted"))
}

// sessionID parses the only query parameter, without decoding.
func sessionID(query string) (string, bool) {
	const key = "session_id="
	if len(query) <= len(key) || query[:len(key)] != key {
		return "", false
	}
	return query[len(key):], true
}

// accept starts to serve one message. On success it returns the buffer to the pool when the
// message is done; on an error the buffer still belongs to the caller.
func (e sseFace) accept(in *inbound, m *wire.Message, s *Session, buf *buffer) error {
	if m.Kind == wire.Notification && !s.Init.admits(m.Method) {
		return notTaken{errNotInitialized}
	}
	if m.Kind != wire.Request {
		if e := streamable(e).oneWay(in, m, s); e != nil {
			return notTaken{e}
		}
		bodies.put(buf)
		return nil
	}
	ctx, cancel := context.WithCancel(s.ctx)
	if err := s.enter(m.ID, cancel); err != nil {
		cancel()
		return err
	}
	msg := *m
	go func() {
		defer bodies.put(buf)
		defer cancel()
		defer s.leave(msg.ID)
		x := streamable(e).exchange(in, &msg, s, &stream{log: s.main, shared: true, began: true})
		x.client, x.hungUp = nil, nil // the answer goes to the session's stream, not to this connection
		defer e.d.during(x, cancel)()
		e.answer(ctx, in, &msg, x)
	}()
	return nil
}

func (e sseFace) answer(ctx context.Context, in *inbound, m *wire.Message, x *Exchange) {
	var reply Reply
	switch {
	case !x.Session.Init.admits(m.Method):
		reply = Reply{Error: errNotInitialized}
	case m.Method != "initialize":
		reply = e.d.o.Handler.Request(ctx, x).Answer(ctx)
	case x.Session.Init.begun.Swap(true):
		reply = Reply{Error: errInitialized}
	default:
		reply = streamable(e).open(ctx, x.Session, in, m)
	}
	x.stream.finish(Legacy, m.ID, reply)
}
