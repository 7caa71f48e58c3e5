package upstream

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/doorward/doorward/internal/base/lifetime"
	"github.com/doorward/doorward/internal/base/sse"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream/egress"
)

// Pauses before the stream for messages outside of calls is opened again after a failure.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// probeTime bounds the question whether a session lives.
const probeTime = 10 * time.Second

// steady is how long a stream is open if its end is no failure.
const steady = 10 * time.Second

// listener keeps the GET stream of a legacy session open. It is the only way for a server to
// send messages outside of calls (2025-11-25 Transports, "Listening for Messages from the
// Server").
type listener struct {
	c         *httpConn
	lastEvent string
	pause     time.Duration // before the next attempt
	asked     time.Duration // the pause that the server named; 0: none
	bad       int           // refused messages since the last good one
	warned    bool          // logged that there is no stream at present
	again     bool          // there was an attempt before
	stream    *eventStream  // nil: not open
	woken     bool          // the stream has data that is not read
}

// Listen implements Conn.
func (c *httpConn) Listen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.modern || c.listening || c.end != nil {
		return
	}
	c.listening = true
	go (&listener{c: c, pause: firstPause}).run()
}

// step is what a listener does next.
type step uint8

const (
	over   step = iota // it ends
	again              // it opens the stream again
	silent             // it waits for data; wake is called when there is some
)

// run ends with the connection, or if the server has no such stream. It also returns when the
// stream is silent and its data can be awaited without a goroutine; wake then continues.
func (l *listener) run() {
	for {
		switch l.once() {
		case over, silent:
			return
		}
		l.again = true
		if sleep(l.c.ctx, l.jitter()) != nil {
			return
		}
	}
}

// once opens the stream, if it is not open, and follows it.
func (l *listener) once() step {
	if l.stream == nil {
		if then := l.begin(); l.stream == nil {
			return then
		}
	}
	then := l.follow()
	if then != silent {
		l.stream.close()
		l.stream, l.woken = nil, false
	}
	return then
}

// eventStream is the open stream of a listener.
type eventStream struct {
	body  io.ReadCloser
	r     *sse.Reader
	began time.Time
	leave func()
}

func (s *eventStream) close() {
	s.body.Close()
	s.leave()
}

// begin opens the stream. If it could not, it returns what to do next.
func (l *listener) begin() step {
	leave, err := l.c.srv.enterStream()
	if err != nil {
		l.full(err)
		return again
	}
	ctx, cancel := lifetime.New(l.c.ctx)
	end := func() { cancel(); leave() }
	resp, err := l.open(ctx)
	if err != nil {
		end()
		l.slower()
		return l.retries(true)
	}
	body := watch(resp.Body, l.c.srv.def.Idle, func() time.Duration { cancel(); return 0 })
	if resp.StatusCode != http.StatusOK || !isMedia(resp, mediaEvents) {
		defer end()
		defer body.Close()
		return l.retries(l.refused(resp.StatusCode))
	}
	resp.Header, resp.Request = nil, nil // the body keeps resp as long as the stream is open
	if l.again && l.lastEvent == "" {
		l.c.give(Event{Missed: true})
	}
	l.stream = &eventStream{body: body, r: sse.NewReader(body, l.c.srv.def.MaxMessage), began: time.Now(), leave: end}
	l.opened()
	return again
}

// retries returns what to do after a failed attempt; may: it may be repeated.
func (l *listener) retries(may bool) step {
	if may && l.c.ctx.Err() == nil {
		return again
	}
	return over
}

// refused handles an answer that is no stream; false: another attempt is pointless. Most
// refusals pass: the server may not have noticed yet that the stream before has ended (409),
// and a server without an event store may refuse the event to resume after (400, 404), which
// is then left out.
func (l *listener) refused(status int) bool {
	unresumable := l.lastEvent != "" && (status == http.StatusBadRequest || status == http.StatusNotFound)
	switch {
	case unresumable:
		l.lastEvent = ""
	case status == http.StatusNotFound && l.c.who.Load().session != "":
		return l.forgotten()
	case status == http.StatusBadRequest && l.c.who.Load().session != "" && !l.warned:
		return l.doubtful(status)
	case status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented:
		return false
	case isCredential(status) && l.c.srv.deps.Credential != nil: // each attempt would renew a token that calls can use
		l.report(slog.Int("status", status))
		return false
	case !isPassing(status) && status != http.StatusConflict:
		l.report(slog.Int("status", status))
	}
	l.slower()
	return unresumable || isPassing(status) || status/100 == 4 && status != http.StatusNotFound
}

// forgotten handles a 404 of a stream that names a session. The server may have forgotten the
// session, or may not serve streams at its address. A ping shows which, because a forgotten
// session fails the connection. False: another attempt is pointless.
func (l *listener) forgotten() bool {
	ctx, cancel := context.WithTimeout(l.c.ctx, probeTime)
	defer cancel()
	_, err := l.c.Call(ctx, &Request{Method: methodPing}, nil)
	if err == nil || errors.Is(err, ErrProtocol) || l.c.ctx.Err() != nil {
		return false
	}
	l.slower()
	return true
}

// doubtful handles a 400 of a stream that names a session, once until the next stream. It is the
// answer of the TypeScript examples for a session that the server has forgotten, and of other
// servers for other reasons: the stream is then tried again. False: the session is over.
func (l *listener) doubtful(status int) bool {
	if l.forgotten() {
		return true
	}
	if l.c.ctx.Err() != nil {
		return false
	}
	l.report(slog.Int("status", status))
	l.slower()
	return true
}

// open requests the stream on a goroutine that then ends, because a request makes the stack
// large, and it would be kept as long as the stream is open.
func (l *listener) open(ctx context.Context) (resp *http.Response, err error) {
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		resp, err = l.c.get(ctx, l.lastEvent)
	}()
	<-opened
	return resp, err
}

// full notes that this server has too many streams, and makes the next attempt later.
func (l *listener) full(err error) {
	l.report(slog.Any("reason", err))
	l.slower()
}

// report logs, once until the next stream, that there is none and why.
func (l *listener) report(why slog.Attr) {
	if !l.warned {
		l.warned = true
		l.c.srv.log.Warn("no stream for messages of the server", why)
	}
}

// wake continues after the stream was silent.
func (l *listener) wake() {
	l.woken = true
	l.run()
}

// follow reads the stream until it ends or is silent.
func (l *listener) follow() step {
	for ; ; l.woken = false {
		if !l.woken && l.stream.r.Rest() && egress.Await(l.stream.body, l.wake) {
			return silent
		}
		ev, ok, err := l.stream.r.Step()
		if err != nil {
			l.ended(time.Since(l.stream.began))
			return l.retries(true)
		}
		if !ok {
			continue
		}
		l.note(ev)
		if isMessage(ev) && !l.take(ev.Data) {
			l.c.srv.log.Warn("too many events that are not messages on the stream of the server")
			return over
		}
	}
}

// opened notes that the stream is open. The pause after it is the one that the server named,
// or a longer one, because the stream may end at once.
func (l *listener) opened() {
	l.warned = false
	if l.asked > 0 {
		l.pause = l.asked
		return
	}
	l.slower()
}

// ended makes the pause short after a stream that was open for long, although it was silent.
func (l *listener) ended(lived time.Duration) {
	if lived >= steady {
		l.sooner()
	}
}

// note keeps the position for a resumption. After an event the pause is short again.
func (l *listener) note(ev sse.Event) {
	if ev.HasID {
		l.lastEvent = usableEventID(ev.ID)
	}
	if ev.Retry >= 0 {
		l.asked = retryTime(ev.Retry)
	}
	l.sooner()
}

// take passes one message to its receiver; false: too many were refused.
func (l *listener) take(data []byte) bool {
	m, err := wire.Parse(data, wire.FromServer)
	if err != nil {
		l.c.srv.counts.garbage.Add(1)
		l.bad++
		return l.bad <= maxBad
	}
	l.bad = 0
	switch {
	case m.Kind == wire.Response:
		l.c.srv.counts.unknown.Add(1)
	case m.Kind == wire.Request && m.Method == methodPing:
		l.c.answerLater(keepEvent(m, false))
	case m.Method == methodProgress:
		l.c.progress(m)
	case m.Method == methodLog && l.c.offerLogs(m):
	default:
		l.c.noteQuestion(m)
		l.c.give(keepEvent(m, false))
	}
	return true
}

// slower doubles the pause.
func (l *listener) slower() { l.pause = min(2*l.pause, lastPause) }

// sooner makes the pause the shortest one, or the one that the server named.
func (l *listener) sooner() {
	l.pause = firstPause
	if l.asked > 0 {
		l.pause = l.asked
	}
}

// jitter spreads the attempts of sessions whose streams broke at the same time.
func (l *listener) jitter() time.Duration {
	return l.pause - time.Duration(rand.Int64N(int64(l.pause)/4+1))
}
