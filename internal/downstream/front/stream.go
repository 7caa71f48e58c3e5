package front

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/sse"
	"github.com/doorward/doorward/internal/trust/wire"
)

const (
	// streamAfter is how long an answer may take before its stream is opened, so that the
	// client and proxies receive keep-alives.
	streamAfter = 10 * time.Second
	// keepAlive is the time between comments on a silent stream.
	keepAlive = 15 * time.Second
	// writeLimit is how long one write may block.
	writeLimit = 30 * time.Second
	// largeAnswer is the size from which the write of an answer gets a deadline; smaller
	// answers fit into the socket's buffer.
	largeAnswer = 32 << 10
)

// sink writes server-sent events to one HTTP response.
type sink struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	buf []byte
}

func newSink(w http.ResponseWriter) *sink {
	return &sink{w: w, rc: http.NewResponseController(w)}
}

// start sends the headers of an event stream.
func (s *sink) start() error {
	h := s.w.Header()
	h["Content-Type"] = streamType
	h["Cache-Control"] = noCache
	h["X-Accel-Buffering"] = noBuffer
	s.w.WriteHeader(http.StatusOK)
	return s.rc.Flush()
}

func (s *sink) event(id string, data []byte) error {
	return s.named(id, "message", data)
}

func (s *sink) named(id, name string, data []byte) error {
	s.buf = sse.Append(s.buf[:0], id, name, data)
	err := s.write(s.buf)
	if cap(s.buf) > 4096 { // an idle stream keeps no large buffer
		s.buf = nil
	}
	return err
}

func (s *sink) comment() error { return s.write([]byte(": keep-alive\n\n")) }

func (s *sink) write(b []byte) error {
	if err := s.rc.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return err
	}
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	return s.rc.Flush()
}

// stream is the way to the client of one exchange. Its form is open until the first message:
// if that is the final answer, it is sent as one JSON body; otherwise the answer becomes an
// event stream (Streamable HTTP, "Sending Messages").
type stream struct {
	mu     sync.Mutex
	w      http.ResponseWriter
	out    *sink            // nil: no event stream has begun, or its client has left
	log    *eventLog        // messages kept for resumption; nil: none
	open   func() *eventLog // makes log when the stream begins; nil: no log
	gen    uint64           // our connection in log; see eventLog
	prime  bool             // begin with an event that carries only an id
	began  bool             // headers were sent
	ended  bool             // the final answer was sent
	shared bool             // log belongs to the session and does not end with the exchange
	json   bool             // the client accepts application/json
	sse    bool             // the client accepts text/event-stream
	prefer bool             // the client prefers text/event-stream
	late   *lateWriter      // w, once the connection was taken over
	timer  *time.Timer
	life   hearing

	disowned atomic.Pointer[string] // the challenge to a caller whose proof has become invalid
}

// watch starts the timer that opens the stream of a slow answer.
func (s *stream) watch() {
	if s.sse {
		s.timer = time.AfterFunc(streamAfter, s.tick)
	}
}

func (s *stream) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || (s.began && s.out == nil) {
		return
	}
	s.timer.Reset(s.beat())
}

// beat writes a keep-alive, or checks whether the last one was read, and returns the time
// until the next call. The caller holds mu.
func (s *stream) beat() time.Duration {
	s.life.listen()
	if s.life.looks() {
		return keepAlive - lookAfter
	}
	if !s.began {
		s.start()
	} else if s.out.comment() != nil {
		s.out = nil
	}
	if s.out == nil {
		return keepAlive
	}
	return s.life.written()
}

// begin makes the answer an event stream now.
func (s *stream) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start()
}

// start sends the headers. The caller holds mu.
func (s *stream) start() {
	if s.began || s.ended || !s.sse {
		return
	}
	s.began = true
	if s.open != nil {
		s.log = s.open()
	}
	if s.log != nil {
		s.gen = s.log.attach()
	}
	out := newSink(s.w)
	if out.start() != nil {
		return
	}
	if s.prime && s.log != nil && out.write(priming(s.log.eventID(0))) != nil {
		return
	}
	s.out = out
}

// priming returns the first event of a stream that can be resumed: an id to resume with, the
// time to wait before that, and no data (2025-11-25 Transports, "Sending Messages").
func priming(id string) []byte {
	return []byte("id: " + id + "\nretry: 500\ndata: \n\n")
}

// send puts a message on the stream. It is false if the message cannot reach this client any
// more.
func (s *stream) send(msg []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.start()
	return s.emit(msg)
}

// emit writes one event, and stores it if the stream can be resumed. The caller holds mu.
func (s *stream) emit(msg []byte) bool {
	id := ""
	if s.log != nil {
		seq, mine := s.log.putInTurn(msg, s.gen)
		if !mine {
			return true // another connection writes it
		}
		id = s.log.eventID(seq)
	}
	if s.out == nil {
		return s.log != nil
	}
	if s.out.event(id, msg) != nil {
		s.out = nil
		return s.log != nil
	}
	return true
}

// leave is called when the client's connection has ended or its handler returns. The response
// must not be used after it.
func (s *stream) leave() {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Lock()
	s.out, s.w, s.sse = nil, nil, false
	if s.log != nil && !s.shared {
		s.log.detach(s.gen)
	}
	s.mu.Unlock()
}

// finish sends the final answer: as one JSON body if nothing has been streamed, else as the
// last event. Errors are sent as JSON if possible, because the HTTP status distinguishes
// them.
func (s *stream) finish(era Era, id wire.ID, r Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if r.None {
		s.finishEmpty()
		return
	}
	if r.Transient {
		s.unkept()
	}
	if !s.began && !s.shared && s.json && (!s.prefer || r.Error != nil) {
		s.finishJSON(era, id, r)
		return
	}
	if !s.began && !s.shared {
		s.ended = false
		s.start()
		s.ended = true
	}
	s.emit(appendReply(nil, id, r))
	if s.log != nil && !s.shared {
		s.log.end()
	}
}

// unkept drops the log, so that a client that has left cannot get the answer by resuming. The
// caller holds mu.
func (s *stream) unkept() {
	s.open, s.prime = nil, false
	if s.log == nil || s.shared {
		return
	}
	s.log.end()
	s.log.detach(s.gen)
	s.log = nil
}

// finishEmpty ends a request that needs no answer, because it was cancelled.
func (s *stream) finishEmpty() {
	if s.log != nil && !s.shared {
		s.log.end()
	}
	if !s.began && !s.shared && s.w != nil {
		s.withdraw()
	}
}

// withdraw answers a cancelled request: 401 if the caller's proof became invalid, else 202.
func (s *stream) withdraw() {
	challenge := s.disowned.Load()
	if challenge == nil {
		s.w.WriteHeader(http.StatusAccepted)
		return
	}
	s.w.Header().Set("WWW-Authenticate", *challenge)
	plain(s.w, http.StatusUnauthorized)
}

func (s *stream) finishJSON(era Era, id wire.ID, r Reply) {
	status := http.StatusOK
	if r.Error != nil {
		status = statusOf(era, r.Error)
	}
	if r.Status != 0 {
		status = r.Status
	}
	if r.challenge != "" {
		s.w.Header().Set("WWW-Authenticate", r.challenge)
	}
	if r.RetryAfter > 0 {
		s.w.Header().Set("Retry-After", strconv.Itoa(r.RetryAfter))
	}
	buf := bodies.get(len(r.Result) + len(id) + 64)
	buf.b = appendReply(buf.b, id, r)
	if len(buf.b) >= largeAnswer {
		http.NewResponseController(s.w).SetWriteDeadline(time.Now().Add(writeLimit))
	}
	writeJSON(s.w, status, buf.b)
	bodies.put(buf)
}

// hold waits until the exchange is done or its stream has been open for limit; then the
// client has to resume the stream for the rest. If the client prefers a stream, it is begun
// first, since there is nothing to resume otherwise. Without a stream, hold waits for the
// end.
func (s *stream) hold(done <-chan struct{}, limit time.Duration) {
	select {
	case <-done:
		return
	case <-time.After(limit):
	}
	if s.prefer {
		s.begin()
	}
	s.mu.Lock()
	away := s.began && s.log != nil
	s.mu.Unlock()
	if !away {
		<-done
	}
}
