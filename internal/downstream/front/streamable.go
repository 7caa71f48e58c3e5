package front

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/doorward/doorward/internal/base/lifetime"
	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
)

// streamable is the transport Streamable HTTP with sessions, of the legacy era.
type streamable struct{ d *Door }

// initialize opens a legacy session (2025-11-25 Lifecycle).
func (f streamable) initialize(in *inbound, m *wire.Message) {
	if m.Kind != wire.Request {
		fail(in.w, http.StatusBadRequest, m.ID, errNoVersion)
		return
	}
	if rule := f.d.sessions.reserve(in.who); rule != "" {
		f.full(in.w, m.ID, &Exchange{Who: in.who, Server: in.server, Era: Legacy, Method: m.Method, Size: in.size}, rule)
		return
	}
	s := f.d.newSession(newSessionID(), in.who, in.server, overStreamable)
	reply := f.open(in.r.Context(), s, in, m)
	if !s.Init.answered.Load() {
		f.d.sessions.release(in.who)
		s.close()
	} else {
		f.d.sessions.publish(s)
		s.place.keep(s)
		f.d.seen(in.who, s)
		in.w.Header()["Mcp-Session-Id"] = []string{s.id}
	}
	st := &stream{w: in.w, json: in.json, sse: in.sse, prefer: in.stream}
	st.finish(Legacy, m.ID, reply)
	st.leave()
}

// open negotiates the version and passes the initialize to the Handler. The session stores
// the client's initialize params. It is answered if the Handler has accepted it and its client has
// not left meanwhile: otherwise no client learns its id.
func (f streamable) open(ctx context.Context, s *Session, in *inbound, m *wire.Message) Reply {
	s.version.negotiate(m.Params)
	s.Init.set(m.Params)
	// If the client leaves while a server starts, its session ends.
	stop := context.AfterFunc(ctx, s.end)
	defer stop()
	defer f.d.lend(in.who, s.end)()
	reply := f.d.ask(s.ctx, f.exchange(in, m, s, &stream{}))
	s.Init.answered.Store(reply.Error == nil && !reply.None && stop() && s.ctx.Err() == nil)
	return reply
}

func (f streamable) exchange(in *inbound, m *wire.Message, s *Session, st *stream) *Exchange {
	return &Exchange{Who: in.who, Server: in.server, Era: Legacy, Version: s.version.name(), Session: s,
		ID: m.ID, Method: m.Method, Params: m.Params, Size: in.size, stream: st, request: in.r,
		SameProgram: m.Method != "initialize" && s.sameProgram(in.who), Namespace: namespace(in.r.Header), Former: former(in.r.Header), Delivery: delivery(in.r), client: in.r.Context(), hungUp: f.d.o.hungUp(in.r)}
}

// full answers a request that exceeds a limit of the front.
func (f streamable) full(w http.ResponseWriter, id wire.ID, x *Exchange, rule string) {
	reply := f.noRoom(x, rule)
	w.Header().Set("Retry-After", strconv.Itoa(reply.RetryAfter))
	fail(w, statusOf(Legacy, reply.Error), id, reply.Error)
}

func (f streamable) noRoom(x *Exchange, rule string) Reply {
	if f.d.o.Full == nil {
		return Reply{Error: errFull, RetryAfter: 1}
	}
	return f.d.o.Full(x, rule)
}

// notEntered answers a message that its session did not accept.
func (f streamable) notEntered(in *inbound, m *wire.Message, s *Session, err error) {
	if errors.Is(err, errAllBusy) {
		f.full(in.w, m.ID, f.exchange(in, m, s, nil), RuleCalls)
		return
	}
	var refused notTaken
	if errors.As(err, &refused) {
		accepted(in, refused.e)
		return
	}
	fail(in.w, http.StatusBadRequest, m.ID, errTwice)
}

// notTaken is the error of a notification that the Handler refused.
type notTaken struct{ e *wire.Error }

func (n notTaken) Error() string { return n.e.Message }

// inSession serves a POST that names a session.
func (f streamable) inSession(in *inbound, m *wire.Message, id string) {
	s, e := f.d.earlier.found(in.r, id, in.who, in.server)
	if s == nil {
		fail(in.w, statusOfMiss(e), m.ID, e)
		return
	}
	if e := s.version.differs(in.header); e != nil {
		fail(in.w, http.StatusBadRequest, m.ID, e)
		return
	}
	f.d.seen(in.who, s)
	switch {
	case m.Method == "initialize":
		fail(in.w, http.StatusBadRequest, m.ID, errInitialized)
	case m.Kind == wire.Request:
		f.request(in, m, s)
	default:
		accepted(in, f.oneWay(in, m, s))
	}
}

// accepted answers a message without a reply of its own: 202, or 400 with the reason why it
// was not accepted (2025-11-25 Transports, "Sending Messages to the Server").
func accepted(in *inbound, e *wire.Error) {
	if e != nil {
		fail(in.w, http.StatusBadRequest, nil, e)
		return
	}
	in.w.WriteHeader(http.StatusAccepted)
}

// oneWay serves notifications and responses.
func (f streamable) oneWay(in *inbound, m *wire.Message, s *Session) *wire.Error {
	switch {
	case m.Kind == wire.Response:
		s.answer(m)
	case m.Method == "notifications/cancelled":
		s.cancel(m.Params)
	case m.Method != "notifications/initialized":
		return f.d.o.Handler.Notification(s.ctx, f.exchange(in, m, s, nil))
	}
	return nil
}

// request serves one request in a session. A disconnect does not cancel it (2025-11-25
// Transports): the call goes on, and its stream, if one had begun, can be resumed.
func (f streamable) request(in *inbound, m *wire.Message, s *Session) {
	ctx, cancel := lifetime.New(s.ctx) // cheaper than context.WithCancel below a lifetime
	if err := s.enter(m.ID, cancel); err != nil {
		cancel()
		f.notEntered(in, m, s, err)
		return
	}
	st := &stream{w: in.w, json: in.json, sse: in.sse, prefer: in.stream, life: f.d.hearing(in, s)}
	if v := s.version.name(); v >= protocol.V20250618 {
		st.open, st.prime = s.openLog, v >= protocol.V20251125
	}
	x := f.exchange(in, m, s, st)
	if f.d.o.StreamTime > 0 && st.prime {
		f.serveLong(ctx, cancel, x)
		return
	}
	back := f.d.during(x, cancel)
	f.serve(ctx, in, x, func() {
		back()
		s.leave(x.ID)
		cancel()
	})
}

// serve runs one request on its stream, and then calls end. If the request waits for an event,
// it may be answered after serve has returned.
func (f streamable) serve(ctx context.Context, in *inbound, x *Exchange, end func()) {
	waits := false
	defer func() {
		if !waits {
			end()
		}
	}()
	x.stream.watch()
	reply := f.d.o.Handler.Request(ctx, x)
	if waits = reply.Later != nil && f.detach(in, x); waits {
		go f.await(ctx, x, reply.Later, end)
		return
	}
	x.stream.finish(x.Era, x.ID, f.d.completed(x, reply.Answer(ctx)))
	x.stream.leave()
}

// serveLong serves a call whose stream is held open for a limited time. The call can outlive
// its connection, so it gets a goroutine and a copy of its message.
func (f streamable) serveLong(ctx context.Context, cancel context.CancelFunc, x *Exchange) {
	x.ID, x.Method = append(wire.ID(nil), x.ID...), strings.Clone(x.Method)
	x.Params = append([]byte(nil), x.Params...)
	gone, left := context.WithCancel(context.Background())
	keep := context.AfterFunc(x.client, left)
	x.client = gone
	hungUp, held := x.hungUp, new(atomic.Bool)
	held.Store(true)
	x.hungUp = func() bool { return hungUp != nil && held.Load() && hungUp() }
	done := make(chan struct{})
	back := f.d.during(x, cancel)
	go func() {
		defer back()
		defer cancel()
		defer x.Session.leave(x.ID)
		defer close(done)
		x.stream.finish(x.Era, x.ID, f.d.ask(ctx, x))
	}()
	x.stream.watch()
	x.stream.hold(done, f.d.o.StreamTime)
	keep() // Doorward ends the connection here: its client has not left
	held.Store(false)
	x.stream.leave()
}

// named returns the session of a GET or DELETE; nil: the request has been answered with an
// error.
func (f streamable) named(w http.ResponseWriter, r *http.Request, who *principal.Principal, server string) *Session {
	id := r.Header.Get("Mcp-Session-Id")
	if id == "" || !once(r.Header) || protocol.LooksModern(r.Header.Get("Mcp-Protocol-Version")) {
		w.Header().Set("Allow", "POST")
		plain(w, http.StatusMethodNotAllowed)
		return nil
	}
	s, e := f.d.earlier.found(r, id, who, server)
	if s == nil {
		fail(w, statusOfMiss(e), nil, e)
		return nil
	}
	if e := s.version.differs(r.Header.Get("Mcp-Protocol-Version")); e != nil {
		fail(w, http.StatusBadRequest, nil, e)
		return nil
	}
	return s
}

// statusOfMiss returns the status of a request whose session was not found. 404 tells its
// client to open a new session (2025-11-25 Transports, "Session Management"); a failure to
// reopen the session has another status.
func statusOfMiss(e *wire.Error) int {
	if e == errUnknownSession {
		return http.StatusNotFound
	}
	return statusOf(Legacy, e)
}

// listen serves GET: the standalone stream, or with Last-Event-ID the rest of a broken
// stream.
func (f streamable) listen(w http.ResponseWriter, r *http.Request, who *principal.Principal, server string) {
	s := f.named(w, r, who, server)
	if s == nil {
		return
	}
	f.d.seen(who, s)
	if _, sse, _ := accepts(r.Header["Accept"]); !sse {
		plain(w, http.StatusNotAcceptable)
		return
	}
	log, after, resumed := s.main, uint64(unsent), false
	if last := r.Header.Get("Last-Event-Id"); last != "" {
		log, after = s.resume(last)
		resumed = true
	}
	if log == nil {
		fail(w, http.StatusBadRequest, nil, errUnknownEvent)
		return
	}
	if resumed && log.spent(after) { // a client resumes an empty answer again, and then without an event id
		w.WriteHeader(http.StatusNoContent)
		return
	}
	gen, ok := log.reserve(resumed)
	if !ok {
		plain(w, http.StatusConflict)
		return
	}
	out, err := f.d.takeOver(w, r)
	if err != nil {
		log.detach(gen)
		return
	}
	f.hear(s, log, out, gen, after, f.d.lend(who, out.close))
}

// hear attaches a GET stream to its log until the client leaves, and then calls back.
func (f streamable) hear(s *Session, log *eventLog, out *rawStream, gen, after uint64, back func()) {
	if log == s.main {
		out.lost = func() { f.listening(s, true) }
	}
	gap, ok := log.attachRaw(out, gen, after)
	if !ok {
		back()
		out.close()
		return
	}
	if log != s.main {
		out.gone(func() { back(); log.detach(gen) })
		return
	}
	s.readers.Add(1)
	out.gone(func() {
		back()
		s.seen.Store(f.d.sessions.now().UnixNano())
		s.readers.Add(-1)
		log.detach(gen)
	})
	f.listening(s, gap)
}

// listening tells the Handler that the standalone stream is open.
func (f streamable) listening(s *Session, gap bool) {
	x := ListeningOf(s)
	x.Gap = gap
	f.d.o.Handler.Notification(s.ctx, x)
}

// ListeningOf returns the exchange with the method Listening.
func ListeningOf(s *Session) *Exchange {
	return &Exchange{Who: s.Owner(), Server: s.Server, Era: Legacy, Version: s.version.name(), Session: s, Method: Listening}
}

// Listening is the method of the exchange that tells the Handler that a session's standalone
// stream was opened, or that messages of the open stream were dropped. It is not an MCP method.
const Listening = "doorward/listening"

// resume returns the stream of an event id and the position in it. It searches only the
// streams of this session.
func (s *Session) resume(id string) (*eventLog, uint64) {
	stream, pos, ok := strings.Cut(id, "-")
	number, err1 := strconv.ParseUint(stream, 10, 64)
	after, err2 := strconv.ParseUint(pos, 10, 64)
	if !ok || err1 != nil || err2 != nil {
		return nil, 0
	}
	return s.logOf(number), after
}

// endSession serves DELETE.
func (f streamable) endSession(w http.ResponseWriter, r *http.Request, who *principal.Principal, server string) {
	if f.d.earlier.forgotten(r, who, server) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	s := f.named(w, r, who, server)
	if s == nil {
		return
	}
	f.d.sessions.remove(s)
	w.WriteHeader(http.StatusNoContent)
}
