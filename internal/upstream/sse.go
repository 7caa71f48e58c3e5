package upstream

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/sse"
	"github.com/doorward/doorward/internal/upstream/egress"
)

// maxEndpoint bounds the announced endpoint, in bytes.
const maxEndpoint = 8 << 10

// sseConn speaks HTTP+SSE of revision 2024-11-05: all messages of the server come on one
// event stream, whose first event names the URL for messages to the server.
type sseConn struct {
	stream
	body   io.ReadCloser
	reader *sse.Reader
	post   *http.Request   // template of a POST to the announced endpoint
	life   context.Context // of the stream
	cancel context.CancelFunc
	leave  func() // the count of the server's streams
	once   sync.Once
}

func (s *Server) legacyEvents(ctx context.Context, initParams []byte, on func(Event)) (Conn, []byte, error) {
	c, err := s.openEvents(ctx, on)
	if err != nil {
		return nil, nil, err
	}
	result, err := c.initialize(ctx, initParams)
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	c.events.release()
	return c, result, nil
}

// openEvents opens the stream and waits for the endpoint. ctx limits that, but not the life
// of the stream.
func (s *Server) openEvents(ctx context.Context, on func(Event)) (*sseConn, error) {
	leave, err := s.enterStream()
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, cancel)
	c, err := s.announce(life, on)
	if !stop() && err == nil {
		err = ctx.Err()
		c.body.Close()
	}
	if err != nil {
		cancel()
		leave()
		return nil, netFault(ctx, ctx, err)
	}
	c.cancel, c.leave = cancel, leave
	go c.read()
	return c, nil
}

func (s *Server) announce(ctx context.Context, on func(Event)) (*sseConn, error) {
	h := s.header()
	h["Accept"] = []string{mediaEvents}
	resp, err := s.roundTrip(s.newRequest(http.MethodGet, h).WithContext(ctx))
	if err != nil {
		return nil, err
	}
	c := &sseConn{body: resp.Body, life: ctx, reader: sse.NewReader(resp.Body, s.def.MaxMessage)}
	c.stream.init(s, false, on)
	c.carry = c.send
	if err := c.expectEndpoint(resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return c, nil
}

// expectEndpoint reads the first event, which must be the endpoint. It must have the same
// origin as the stream, because the server's credential is sent to it.
func (c *sseConn) expectEndpoint(resp *http.Response) error {
	switch {
	case resp.StatusCode/100 != 2:
		err := statusFault(resp.StatusCode, nil)
		if resp.StatusCode/100 == 4 && errors.Is(err, ErrProtocol) && !isCredential(resp.StatusCode) {
			return asEra(err, "no HTTP+SSE endpoint")
		}
		return err
	case !isMedia(resp, mediaEvents):
		return &fault{kind: ErrEra, reason: "no event stream", status: resp.StatusCode}
	}
	ev, err := c.reader.Next()
	if err != nil {
		return streamFault(err)
	}
	if ev.Name != "endpoint" {
		return newFault(ErrProtocol, "the first event is not the endpoint")
	}
	endpoint, err := resolveEndpoint(c.srv.url, string(ev.Data))
	if err != nil {
		return newFaultf(ErrProtocol, "the announced endpoint", err)
	}
	h := c.srv.header()
	h["Content-Type"] = []string{mediaJSON}
	h["Accept"] = []string{mediaJSON + ", " + mediaEvents}
	c.post = c.srv.newRequest(http.MethodPost, h)
	c.post.URL, c.post.Host = endpoint, endpoint.Host
	return nil
}

// resolveEndpoint resolves the announced endpoint against the configured URL. Only path and
// query may differ.
func resolveEndpoint(base *url.URL, announced string) (*url.URL, error) {
	if len(announced) > maxEndpoint {
		return nil, errors.New("too long")
	}
	ref, err := url.Parse(announced)
	if err != nil {
		return nil, errors.New("not a valid URL")
	}
	u, err := egress.CheckURL(base.ResolveReference(ref).String())
	if err != nil {
		return nil, err
	}
	if egress.Origin(u) != egress.Origin(base) {
		return nil, errors.New("of another origin")
	}
	return u, nil
}

// send posts one message. The answer, if any, comes on the stream.
func (c *sseConn) send(ctx context.Context, _ <-chan time.Time, b []byte) (begun bool, err error) {
	limited, cancel := context.WithTimeout(ctx, c.srv.def.dialLimit())
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	resp, err := c.srv.send(c.post.WithContext(limited), b, nil)
	if err != nil {
		err = netFault(ctx, limited, err)
		return !errors.Is(err, ErrNotSent), err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		_, _ = io.CopyN(io.Discard, resp.Body, 4096) // so that the connection can be used again
		return true, nil
	}
	reply, _ := refusalBody(resp, 0)
	if isForgotten(resp.StatusCode, reply) {
		err := &fault{kind: ErrSession, status: resp.StatusCode, reply: reply}
		c.end(err)
		return false, err
	}
	return false, statusFault(resp.StatusCode, reply)
}

// read passes on every event until the stream ends.
func (c *sseConn) read() {
	defer c.body.Close()
	for {
		ev, err := c.reader.Next()
		switch {
		case err != nil:
			err = streamFault(err)
		case ev.Name == "endpoint": // a second one is ignored
			c.srv.counts.violations.Add(1)
		case isMessage(ev):
			err = c.intake.accept(ev.Data, false)
		}
		if err != nil {
			c.end(err)
			return
		}
	}
}

func (c *sseConn) end(err error) {
	if c.fail(err) && err != errClosed {
		c.srv.log.Warn("server connection broke", slog.Any("reason", err), slog.Any("counts", c.srv.Counts()))
	}
	c.cancel()
	c.once.Do(c.leave)
}

// Close implements Conn. The session ends with its stream.
func (c *sseConn) Close() { c.end(errClosed) }
