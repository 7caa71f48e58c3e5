package front

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/base/lifetime"
	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Attachment is the Handler's state of a session. It is closed once, when the session ends.
type Attachment interface{ Close() }

// transport is the transport of a session; the session is unknown on the other one.
type transport uint8

const (
	overStreamable transport = iota + 1
	overSSE
)

// Session is the MCP session of a legacy client. It belongs to the principal and the route
// that it was opened with, and if that principal has a witness, to the same program.
type Session struct {
	Who    *principal.Principal // the principal that opened it
	Server string
	Digest string // of the id, for records; the id itself is as sensitive as a credential
	Init   Init

	id        string
	owner     atomic.Pointer[principal.Principal] // Who, with the latest credential
	transport transport
	ctx       context.Context
	end       context.CancelFunc
	version   version
	main      *eventLog    // the standalone stream
	place     place        // its stored copy
	state     atomic.Value // []byte: the state given to Remember
	seen      atomic.Int64
	readers   atomic.Int32 // open standalone streams

	mu       sync.Mutex
	attached Attachment
	closed   bool
	logs     map[uint64]*eventLog // resumable streams of POSTs
	streams  uint64
	asks     map[int64]chan Reply
	asked    int64
	calls    []runningCall
	most     int // limit of calls; not changed once the session is published
}

// runningCall is a call of a session under way. There are few at a time, and a session without
// one keeps little memory for them.
type runningCall struct {
	id     string // its raw bytes
	cancel context.CancelFunc
}

// fewCalls is the largest room for running calls that an idle session keeps.
const fewCalls = 4

// Bounds of one session.
const (
	sessionStreams = 32      // number of resumable streams kept
	sessionBytes   = 2 << 20 // bytes that they hold together
	sessionAsks    = 64      // open questions to the client
	sessionCalls   = 256     // running requests, unless another limit is set
)

func newSession(id string, who *principal.Principal, server string, t transport, now time.Time) *Session {
	s := &Session{Who: who, Server: server, Digest: protocol.SessionDigest(id), id: id, transport: t}
	s.main = newEventLog(0, t == overStreamable)
	s.ctx, s.end = lifetime.New(context.Background())
	s.seen.Store(now.UnixNano())
	s.retain()
	return s
}

// newSessionID returns 128 random bits in the URL-safe alphabet.
func newSessionID() string {
	var b [16]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Context returns a context that ends with the session.
func (s *Session) Context() context.Context { return s.ctx }

// Attached returns the Handler's state of the session, which it makes on first use. If the
// session has already ended, the new attachment is closed at once.
func (s *Session) Attached(make func() Attachment) Attachment {
	s.mu.Lock()
	late := s.attached == nil && s.closed
	if s.attached == nil {
		s.attached = make()
	}
	a := s.attached
	s.mu.Unlock()
	if late {
		a.Close() // without mu: a Handler asks its sessions under locks that Close takes
	}
	return a
}

// Listening reports whether the client has its standalone stream open.
func (s *Session) Listening() bool { return s.readers.Load() > 0 }

// IdleSince returns the time since which a session has had no request, call or standalone
// stream; idle is false while its stream is open or a call is running.
func (s *Session) IdleSince() (since time.Time, idle bool) {
	s.mu.Lock()
	idle = len(s.calls) == 0 && !s.Listening()
	s.mu.Unlock()
	return time.Unix(0, s.seen.Load()), idle // in this order: the end of a call or a stream is a use
}

// Notify sends a notification on the standalone stream. It waits there until the client opens
// the stream.
func (s *Session) Notify(method string, params []byte) {
	s.main.put(rawjson.AppendNotification(nil, method, params), 0)
}

var (
	errIDInUse = errors.New("a request of that id is under way")
	errAllBusy = errors.New("too many requests of the session are under way")
)

// enter registers a running request. The error is errIDInUse or errAllBusy.
func (s *Session) enter(id wire.ID, cancel context.CancelFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running(id) >= 0 {
		return errIDInUse
	}
	if len(s.calls) >= s.most {
		return errAllBusy
	}
	s.calls = append(s.calls, runningCall{string(id), cancel})
	return nil
}

// running returns the index of the running call with an id; -1: there is none. The caller holds mu.
func (s *Session) running(id wire.ID) int {
	return slices.IndexFunc(s.calls, func(c runningCall) bool { return c.id == string(id) })
}

func (s *Session) leave(id wire.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Store(time.Now().UnixNano())
	if i := s.running(id); i >= 0 {
		s.calls = slices.Delete(s.calls, i, i+1)
	}
	if len(s.calls) == 0 && cap(s.calls) > fewCalls {
		s.calls = nil
	}
}

// cancel ends the request that a notifications/cancelled names, if it is running in this
// session; anything else is ignored (Cancellation).
func (s *Session) cancel(params []byte) {
	id := wire.ID(rawjson.Get(params, "requestId"))
	s.mu.Lock()
	var cancel context.CancelFunc
	if i := s.running(id); i >= 0 {
		cancel = s.calls[i].cancel
	}
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// openLog makes the log of a POST's stream, which can be resumed. It returns nil if the streams of
// running calls exceed the bounds: the new stream cannot be resumed then, and all others still can.
func (s *Session) openLog() *eventLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.makeRoom() {
		return nil
	}
	s.streams++
	l := newEventLog(s.streams, true)
	if s.logs == nil {
		s.logs = make(map[uint64]*eventLog)
	}
	s.logs[s.streams] = l
	return l
}

// makeRoom drops the oldest ended streams until the number and the size of all are within bounds.
// A client can no longer resume a dropped stream. If those of running calls exceed the bounds by
// themselves, makeRoom drops nothing and returns false. The caller holds mu.
func (s *Session) makeRoom() bool {
	running, busy, kept := 0, 0, 0
	var over []uint64
	for n, l := range s.logs {
		ended, size := l.over(), l.bytes()
		if kept += size; ended {
			over = append(over, n)
		} else {
			running, busy = running+1, busy+size
		}
	}
	if !roomy(running, busy) {
		return false
	}
	slices.Sort(over)
	for ; len(over) > 0 && !roomy(len(s.logs), kept); over = over[1:] {
		kept -= s.logs[over[0]].bytes()
		delete(s.logs, over[0])
	}
	return true
}

// roomy reports whether a session with so many streams of that size may have another.
func roomy(streams, size int) bool { return streams < sessionStreams && size <= sessionBytes }

// logOf returns the stream of an event id's number; 0 is the standalone stream.
func (s *Session) logOf(number uint64) *eventLog {
	if number == 0 {
		return s.main
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs[number]
}

// nudge sends a keep-alive on the session's open streams.
func (s *Session) nudge() {
	s.main.nudge()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.logs {
		l.nudge()
	}
}

// heard reports that a keep-alive on a stream of the session has been read since the last
// call.
func (s *Session) heard() bool {
	heard := s.main.heard()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.logs {
		heard = l.heard() || heard
	}
	return heard
}

// close ends the session, its streams and its attachment.
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
