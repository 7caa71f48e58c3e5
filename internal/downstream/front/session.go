package front

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Attachment is what the Handler keeps with a session. It is closed once,
// when the session ends.
type Attachment interface{ Close() }

// transport is how a session's client reaches it; a session of one is unknown
// on the other.
type transport uint8

const (
	overStreamable transport = iota + 1
	overSSE
)

// Session is one legacy client's session. It belongs to the principal and the
// route it was opened with, and where that principal has a witness, to the very
// program.
type Session struct {
	Who    *principal.Principal // who opened it
	Server string
	Digest string // of the id, for records; the id itself is a credential's companion and stays here
	Init   []byte // the client's initialize params, raw; set before the Handler sees the session

	id        string
	owner     atomic.Pointer[principal.Principal] // Who, with the credential presented last
	transport transport
	ctx       context.Context
	end       context.CancelFunc
	version   version
	main      *eventLog    // the standalone stream
	place     place        // where it is kept for the next run
	state     atomic.Value // []byte: what the Handler remembers
	seen      atomic.Int64
	readers   atomic.Int32 // open standalone streams

	mu       sync.Mutex
	begun    bool // initialize has been seen
	attached Attachment
	closed   bool
	logs     map[uint64]*eventLog // resumable streams of POSTs
	streams  uint64
	asks     map[int64]chan Reply
	asked    int64
	calls    map[string]context.CancelFunc // in flight, by the raw bytes of the id
	most     int                           // of them; not changed once the session is known
}

// Bounds of one session.
const (
	sessionStreams = 32      // resumable streams kept
	sessionBytes   = 2 << 20 // and what they hold together
	sessionAsks    = 64      // open questions to the client
	sessionCalls   = 256     // requests in flight, where no other limit is set
)

func newSession(id string, who *principal.Principal, server string, t transport, now time.Time) *Session {
	sum := sha256.Sum256([]byte(id))
	s := &Session{Who: who, Server: server, Digest: hex.EncodeToString(sum[:8]), id: id, transport: t}
	s.main = newEventLog(0, t == overStreamable)
	s.ctx, s.end = context.WithCancel(context.Background())
	s.seen.Store(now.UnixNano())
	s.retain()
	return s
}

// newSessionID is 128 random bits in the URL-safe alphabet.
func newSessionID() string {
	var b [16]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Context ends with the session.
func (s *Session) Context() context.Context { return s.ctx }

// Attached returns what the Handler keeps with the session, made on first
// use. When the session has already ended, the new attachment is closed at
// once.
func (s *Session) Attached(make func() Attachment) Attachment {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attached == nil {
		s.attached = make()
		if s.closed {
			s.attached.Close()
		}
	}
	return s.attached
}

// Listening reports whether the client has its standalone stream open.
func (s *Session) Listening() bool { return s.readers.Load() > 0 }

// IdleSince reports since when a session has neither had a request nor an open stream;
// false while a stream is open or a call under way.
func (s *Session) IdleSince() (since time.Time, idle bool) {
	s.mu.Lock()
	calls := len(s.calls)
	s.mu.Unlock()
	return time.Unix(0, s.seen.Load()), calls == 0 && !s.Listening()
}

// Notify sends a notification on the standalone stream; it waits there until
// the client opens it.
func (s *Session) Notify(method string, params []byte) {
	s.main.put(rawjson.AppendNotification(nil, method, params), 0)
}

var (
	errIDInUse = errors.New("a request of that id is under way")
	errAllBusy = errors.New("too many requests of the session are under way")
)

// enter notes a request in flight. The error is errIDInUse or errAllBusy.
func (s *Session) enter(id wire.ID, cancel context.CancelFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = make(map[string]context.CancelFunc)
	}
	if _, dup := s.calls[string(id)]; dup {
		return errIDInUse
	}
	if len(s.calls) >= s.most {
		return errAllBusy
	}
	s.calls[string(id)] = cancel
	return nil
}

func (s *Session) leave(id wire.ID) {
	s.mu.Lock()
	delete(s.calls, string(id))
	s.mu.Unlock()
}

// cancel ends the request that a notifications/cancelled names, if it is in
// flight in this session; anything else is ignored (Cancellation).
func (s *Session) cancel(params []byte) {
	id := wire.Get(params, "requestId")
	s.mu.Lock()
	cancel := s.calls[string(id)]
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// begin admits one initialize.
func (s *Session) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.begun
	s.begun = true
	return first
}

// openLog makes the log of a POST's stream. The oldest ended one makes room.
func (s *Session) openLog() *eventLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams++
	l := newEventLog(s.streams, true)
	if s.logs == nil {
		s.logs = make(map[uint64]*eventLog)
	}
	s.makeRoom()
	s.logs[s.streams] = l
	return l
}

// makeRoom drops the oldest streams until their number and what they keep are
// within bounds. A client that has not come back for one by then has lost it.
// The caller holds mu.
func (s *Session) makeRoom() {
	kept := 0
	for _, l := range s.logs {
		kept += l.bytes()
	}
	for len(s.logs) >= sessionStreams || len(s.logs) > 0 && kept > sessionBytes {
		oldest := s.streams
		for n := range s.logs {
			oldest = min(oldest, n)
		}
		kept -= s.logs[oldest].bytes()
		delete(s.logs, oldest)
	}
}

// logOf finds the stream that an event id names: 0 is the standalone one.
func (s *Session) logOf(number uint64) *eventLog {
	if number == 0 {
		return s.main
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs[number]
}

// nudge keeps the session's open streams alive.
func (s *Session) nudge() {
	s.main.nudge()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.logs {
		l.nudge()
	}
}

// heard reports that a stream of the session has been read since the last
// keep-alive.
func (s *Session) heard() bool {
	heard := s.main.heard()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.logs {
		heard = l.heard() || heard
	}
	return heard
}

// close ends the session and everything that hangs on it.
func (s *Session) close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	a := s.attached
	logs := slices.Collect(maps.Values(s.logs))
	s.mu.Unlock()
	s.end()
	s.letGo()
	s.main.end()
	for _, l := range logs {
		l.cut()
	}
	if a != nil {
		a.Close()
	}
}
