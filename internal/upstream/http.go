package upstream

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/doorward/doorward/internal/base/lifetime"
	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream/egress"
)

// Header names, in their canonical form.
const (
	headerSession   = "Mcp-Session-Id"
	headerVersion   = "Mcp-Protocol-Version"
	headerMethod    = "Mcp-Method"
	headerName      = "Mcp-Name"
	headerParam     = "Mcp-Param-" // prefix
	headerLastEvent = "Last-Event-Id"
)

const (
	mediaJSON   = "application/json"
	mediaEvents = "text/event-stream"
)

// maxSessionID bounds the session id of a server, in bytes. Some servers use a token as the
// id.
const maxSessionID = 4096

// httpConn speaks Streamable HTTP. In the legacy era it is one session; in the modern era it
// is only the headers that all its requests share.
//
// The goroutine that calls reads the answer itself, so a result is neither passed to another
// goroutine nor copied.
type httpConn struct {
	srv       *Server
	modern    bool
	who       atomic.Pointer[identity]
	ids       atomic.Int64
	hold      hold
	events    outlet // to the owner of the connection
	own       outlet // answers what the server asks of the connection itself
	answering func() // called when an answer begins; set during a probe only

	ctx    context.Context // of the background work
	cancel context.CancelFunc

	mu        sync.Mutex
	calls     inFlight
	end       error // why the connection is over; nil while it is not
	listening bool
	done      chan struct{}
	after     []func() // called when done is closed
}

// identity names a connection to its server. It is replaced, never changed.
type identity struct {
	session string // as the server gave it, "" for none
	version string // negotiated, "" before

	mu   sync.Mutex
	made weak.Pointer[posting] // used last; the collector takes that of an idle connection
}

// posting holds what every POST of a connection carries. It is never changed, because requests
// share the header map.
type posting struct {
	header http.Header
	head   *egress.Head // of all POSTs with this header
}

func (s *Server) newHTTP(modern bool, on func(Event)) *httpConn {
	c := &httpConn{srv: s, modern: modern, done: make(chan struct{})}
	c.ctx, c.cancel = lifetime.New(context.Background())
	c.events = outlet{on: on, max: s.def.MaxMessage, held: true}
	c.own = outlet{on: c.answerOwn, max: s.def.MaxMessage}
	c.become("", "")
	return c
}

// become sets what later requests carry. The session is copied, because it was read together
// with the rest of an answer's header.
func (c *httpConn) become(session, version string) {
	c.who.Store(&identity{session: strings.Clone(session), version: strings.Clone(version)})
}

// posting returns what a POST carries.
func (c *httpConn) posting() *posting {
	who := c.who.Load()
	who.mu.Lock()
	defer who.mu.Unlock()
	p := who.made.Value()
	if p == nil {
		h := who.header(c.srv)
		p = &posting{header: h, head: egress.NewHead(c.request(context.Background(), http.MethodPost, h))}
		who.made = weak.Make(p)
	}
	return p
}

// header returns the header of a POST.
func (w *identity) header(s *Server) http.Header {
	h := s.header()
	h["Content-Type"] = []string{mediaJSON}
	h["Accept"] = []string{mediaJSON + ", " + mediaEvents}
	if w.session != "" {
		h[headerSession] = []string{w.session}
	}
	if w.version != "" {
		h[headerVersion] = []string{w.version}
	}
	return h
}

// header returns what every request to this server carries: the configured headers and
// Doorward's User-Agent.
func (s *Server) header() http.Header {
	h := make(http.Header, len(s.def.Headers)+8)
	for name, values := range s.def.Headers {
		h[http.CanonicalHeaderKey(name)] = values
	}
	// Accept-Encoding is removed because bodies are read without decoding.
	for _, ours := range []string{headerSession, headerVersion, headerMethod, headerName, headerLastEvent, "Accept-Encoding"} {
		delete(h, ours)
	}
	if h["User-Agent"] == nil {
		h["User-Agent"] = []string{s.agent}
	}
	return h
}

// newRequest returns a request without body to the configured URL. Requests made from it by
// WithContext need not parse the URL again.
func (s *Server) newRequest(method string, h http.Header) *http.Request {
	return &http.Request{
		Method: method, URL: s.url, Host: s.url.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
}

// request returns a request to the server without a body. Its header is h itself, not a copy.
func (c *httpConn) request(ctx context.Context, method string, h http.Header) *http.Request {
	req := c.srv.template.WithContext(ctx)
	req.Method, req.Header = method, h
	return req
}

// post sends body with the header, nil for that of the connection. It uses the transport
// directly: there are no redirects to follow, and no cookies.
func (c *httpConn) post(ctx context.Context, body []byte, header http.Header) (*http.Response, error) {
	if header != nil {
		return c.srv.send(c.request(ctx, http.MethodPost, header), body, nil)
	}
	p := c.posting()
	return c.srv.send(c.request(ctx, http.MethodPost, p.header), body, p.head)
}

// send sends a POST with a body. head is that of the request, or nil; see egress.Message.
func (s *Server) send(req *http.Request, body []byte, head *egress.Head) (*http.Response, error) {
	m := egress.NewMessage(head, body)
	req.ContentLength = int64(len(body))
	// With GetBody the transport repeats a request of which nothing was written, because the
	// server had just closed an idle connection.
	req.Body, req.GetBody = m, m.Again
	return s.roundTrip(req)
}

// Notify implements Conn.
func (c *httpConn) Notify(ctx context.Context, method string, params []byte) error {
	var header http.Header
	if c.modern {
		header = c.modernHeader(method, params, nil)
	}
	return c.tell(ctx, rawjson.AppendNotification(nil, method, params), header)
}

// Answer implements Conn. In the modern era servers ask nothing.
func (c *httpConn) Answer(ctx context.Context, id wire.ID, r Reply) error {
	if c.modern {
		return newFault(ErrProtocol, "the modern era has no answers of clients")
	}
	c.hold.answered(string(id))
	return c.tell(ctx, appendAnswer(nil, id, r), nil)
}

// tell sends a message that has only a status as its answer.
func (c *httpConn) tell(ctx context.Context, body []byte, header http.Header) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if end := c.Err(); end != nil {
		return unsent(end)
	}
	limited, cancel := context.WithTimeout(ctx, c.srv.def.dialLimit())
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	resp, err := c.post(limited, body, header)
	if err != nil {
		return netFault(ctx, limited, err)
	}
	defer resp.Body.Close()
	if err := c.checkSession(resp); err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		_, err := c.refused(resp, "", 0)
		return err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 4096) // so that the connection can be used again; the content is ignored
	return nil
}

// checkSession fails the connection if the server changes the session id.
func (c *httpConn) checkSession(resp *http.Response) error {
	given := resp.Header[headerSession]
	if c.modern || len(given) == 0 || len(given) == 1 && given[0] == c.who.Load().session {
		return nil
	}
	err := newFault(ErrProtocol, "the session id changed")
	c.fail(err)
	return err
}

// adopt takes the session id from the answer to initialize.
func (c *httpConn) adopt(resp *http.Response) error {
	given := resp.Header[headerSession]
	switch {
	case len(given) == 0:
		return nil
	case len(given) > 1 || !isSessionID(given[0]):
		return newFault(ErrProtocol, "the session id is not usable")
	}
	c.become(given[0], "")
	return nil
}

// isSessionID reports whether an id is visible ASCII and not too long (2025-11-25 Transports,
// "Session Management").
func isSessionID(id string) bool {
	if id == "" || len(id) > maxSessionID {
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool { return r < 0x21 || r > 0x7e })
}

// Done implements Conn.
func (c *httpConn) Done() <-chan struct{} { return c.done }

// AfterDone calls f when Done is closed, at once if it is. No goroutine waits for that.
func (c *httpConn) AfterDone(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
		go f()
	default:
		c.after = append(c.after, f)
	}
}

// over closes Done.
func (c *httpConn) over() {
	c.mu.Lock()
	close(c.done)
	after := c.after
	c.after = nil
	c.mu.Unlock()
	for _, f := range after {
		go f()
	}
}

// Err implements Conn.
func (c *httpConn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end
}

// fail marks the connection as over. Calls in flight continue, and each gets its own answer
// or error.
func (c *httpConn) fail(end error) {
	if c.finish(end) {
		c.srv.log.Warn("server connection broke", slog.Any("reason", end), slog.Any("counts", c.srv.Counts()))
		c.over()
	}
}

// finish stops the background work; false: it was stopped before.
func (c *httpConn) finish(end error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end != nil {
		return false
	}
	c.end = end
	c.cancel()
	c.events.close()
	c.own.close()
	return true
}

// Close implements Conn: calls in flight are cut off, a session is deleted in
// the background, and then Done is closed.
func (c *httpConn) Close() {
	first := c.finish(errClosed)
	c.mu.Lock()
	for _, x := range c.calls {
		x.cancel()
	}
	c.mu.Unlock()
	switch {
	case !first:
	case c.who.Load().session == "":
		c.over()
	default:
		go c.deleteSession()
	}
}

// deleteSession tells the server that the session is over. A refusal is ignored: 405 is
// allowed.
func (c *httpConn) deleteSession() {
	defer c.over()
	ctx, cancel := context.WithTimeout(context.Background(), sideLimit)
	defer cancel()
	req := c.request(ctx, http.MethodDelete, c.posting().header.Clone())
	delete(req.Header, "Content-Type")
	resp, err := c.srv.roundTrip(req)
	if err != nil {
		c.srv.log.Debug("session not deleted", slog.Any("error", err))
		return
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 4096) // so that the connection can be used again
	resp.Body.Close()
}

// answerOwn answers what a server asks of the connection itself.
func (c *httpConn) answerOwn(ev Event) {
	ctx, cancel := context.WithTimeout(c.ctx, sideLimit)
	defer cancel()
	if err := c.Answer(ctx, ev.ID, ownAnswer(ev)); err != nil {
		c.srv.log.Debug("answer not sent", slog.Any("error", err))
	}
}

// modernHeader returns the header of one modern request: the values that repeat the body
// (Streamable HTTP, "Standard Headers"), and the client's Mcp-Param-*. No other header of the
// client is used.
func (c *httpConn) modernHeader(method string, params []byte, extra http.Header) http.Header {
	base := c.posting().header
	h := make(http.Header, len(base)+len(extra)+3)
	for name, values := range extra {
		if name = http.CanonicalHeaderKey(name); strings.HasPrefix(name, headerParam) {
			h[name] = values
		}
	}
	maps.Copy(h, base)
	values := make([]string, 0, 3)
	set := func(name, value string) {
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	if v, ok := wire.Text(rawjson.GetPath(params, "_meta", wire.MetaVersion)); ok {
		set(headerVersion, protocol.EncodeHeader(v))
	}
	set(headerMethod, protocol.EncodeHeader(method))
	if key := protocol.NameMember(method); key != "" {
		if name, ok := rawjson.GetString(params, key); ok {
			set(headerName, protocol.EncodeHeader(name))
		}
	}
	return h
}
