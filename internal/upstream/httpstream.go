package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/doorward/doorward/internal/base/sse"
)

// Resumption of a broken stream (2025-11-25 Transports, "Resumability and
// Redelivery"; SEP-1699, where servers end streams on purpose).
const (
	defaultRetry = time.Second            // if the server names no time
	minRetry     = 100 * time.Millisecond // lower bound of the time that it names
	maxRetry     = time.Minute
	maxResumes   = 10   // attempts in a row without a new event
	maxEventID   = 1024 // bytes; a longer id is ignored
)

// Bounds for reading a stream to its end in the background after the answer, so that the
// connection can be used again.
const (
	drainTime  = time.Second
	drainBytes = 64 << 10
)

// stream reads the answer from an event stream. If the stream breaks, it is resumed if the
// server supports that.
func (x *httpCall) stream(resp *http.Response) (Reply, error) {
	for {
		reply, broken, err := x.follow(resp)
		if !broken {
			return reply, err
		}
		if resp, err = x.resume(err); err != nil {
			return Reply{}, err
		}
	}
}

// follow reads one stream until the answer, or until it breaks; err then says how. It closes
// the body, or leaves it to drain.
func (x *httpCall) follow(resp *http.Response) (reply Reply, broken bool, err error) {
	answered := false
	defer func() {
		if !answered {
			resp.Body.Close()
			return
		}
		x.draining = true
		go drain(resp.Body, x.cancel)
	}()
	r := sse.NewReader(resp.Body, x.c.srv.def.MaxMessage)
	for {
		ev, err := r.Next()
		if err != nil {
			err = streamFault(err)
			return Reply{}, errors.Is(err, ErrLost), err
		}
		x.note(ev)
		if !isMessage(ev) {
			continue
		}
		reply, answered, err = x.take(ev.Data)
		if err != nil {
			err = x.excuse(ev.Data, err)
		}
		if answered || err != nil {
			return reply, false, err
		}
	}
}

// streamFault returns the error for a stream that ended before the answer.
func streamFault(err error) error {
	switch {
	case errors.Is(err, sse.ErrTooLarge):
		return newFault(ErrTooLarge, "a long event")
	case err == io.EOF:
		return newFault(ErrLost, "the stream ended early")
	}
	return newFaultf(ErrLost, "the stream broke", err)
}

func isMessage(ev sse.Event) bool {
	return len(ev.Data) > 0 && (ev.Name == "" || ev.Name == "message")
}

// excuse decides whether a refused message fails the call: it does if it may have been the
// answer, or if there were too many.
func (x *httpCall) excuse(data []byte, err error) error {
	g := guess(data)
	if g.answer && g.message && (g.id == 0 || g.id == x.id) {
		return err
	}
	if x.bad++; x.bad > maxBad {
		return newFault(ErrProtocol, "too many events that are not messages")
	}
	return nil
}

// note keeps what a later resumption needs.
func (x *httpCall) note(ev sse.Event) {
	if ev.HasID && ev.ID != x.lastEvent {
		x.resumes = 0
		x.lastEvent = usableEventID(ev.ID)
	}
	if ev.Retry >= 0 {
		x.retry = retryTime(ev.Retry)
	}
}

// usableEventID returns the id if a header can carry it, else "".
func usableEventID(id string) string {
	if len(id) > maxEventID {
		return ""
	}
	for i := range len(id) {
		if id[i] < ' ' || id[i] == 0x7f {
			return ""
		}
	}
	return id
}

func retryTime(ms int) time.Duration {
	return min(max(time.Duration(min(ms, 1<<30))*time.Millisecond, minRetry), maxRetry)
}

// resume opens the stream of the call again, after the last event seen. If the stream cannot
// be resumed, it returns broken.
func (x *httpCall) resume(broken error) (*http.Response, error) {
	if x.c.modern || x.lastEvent == "" || x.r.Method == methodInitialize {
		return nil, broken
	}
	for x.resumes < maxResumes {
		x.resumes++
		if err := sleep(x.ctx, x.retry); err != nil {
			return nil, err
		}
		resp, err := x.c.get(x.ctx, x.lastEvent)
		switch {
		case x.ctx.Err() != nil:
			return nil, x.ctx.Err()
		case err != nil:
			continue
		case resp.StatusCode == http.StatusOK && isMedia(resp, mediaEvents):
			x.bound(resp)
			return resp, nil
		}
		resp.Body.Close()
		if !isPassing(resp.StatusCode) {
			return nil, x.unresumable(resp.StatusCode)
		}
	}
	return nil, broken
}

// unresumable returns the error of a call that cannot be resumed. It has reached the server,
// so it is ErrLost even if the session is gone.
func (x *httpCall) unresumable(status int) error {
	if status == http.StatusNotFound {
		x.c.fail(&fault{kind: ErrSession, status: status})
	}
	return &fault{kind: ErrLost, reason: "the stream cannot be resumed", status: status}
}

// isPassing reports whether another attempt may get another status.
func isPassing(status int) bool {
	return status/100 == 5 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
}

// get opens a stream, after the event lastEvent if that is not empty.
func (c *httpConn) get(ctx context.Context, lastEvent string) (*http.Response, error) {
	req := c.request(ctx, http.MethodGet, c.posting().header.Clone())
	delete(req.Header, "Content-Type")
	req.Header["Accept"] = []string{mediaEvents}
	if lastEvent != "" {
		req.Header[headerLastEvent] = []string{lastEvent}
	}
	resp, err := c.srv.roundTrip(req)
	if err != nil {
		return nil, err
	}
	if err := c.checkSession(resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// drain reads a stream to its end after the answer.
func drain(body io.ReadCloser, cancel context.CancelFunc) {
	limit := time.AfterFunc(drainTime, cancel)
	_, _ = io.CopyN(io.Discard, body, drainBytes) // the content is ignored
	limit.Stop()
	body.Close()
	cancel()
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
