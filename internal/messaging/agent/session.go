package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
)

// The facts of a principal by which sessions are distinguished, and agents' processes
// recognised.
const (
	factInstance = principal.FactInstance
	factToken    = "token"
	factProcess  = "process"
	factParent   = "parent_process"
)

// legacyPrefix begins the name of a legacy session.
const legacyPrefix = "s:"

// SessionOf returns the name of the session in which who acts: a legacy session is named
// by its digest; without one, the name is made from the process instance on the Unix
// socket, the token, or the principal itself.
func SessionOf(who *principal.Principal, digest string) string {
	if digest != "" {
		return legacyPrefix + digest
	}
	if f, ok := who.Fact(factInstance); ok && f.Value != "" && f.Grade.MayRestrict() {
		sum := sha256.Sum256([]byte(f.Value))
		return "i:" + hex.EncodeToString(sum[:])[:32]
	}
	if f, ok := who.Fact(factToken); ok && f.Value != "" && f.Grade.MayAllow() {
		return "t:" + f.Value
	}
	return "p:" + who.Name()
}

// gradeOf returns the grade of a principal's name.
func gradeOf(who *principal.Principal) string {
	switch kind, _, _ := principal.Parse(who.Name()); kind {
	case principal.KindUID:
		return principal.Attested.String()
	case principal.KindLoopback:
		return principal.Observed.String()
	}
	return principal.Verified.String()
}

// session is a session that was seen here: its owner, its last sign of life, and its
// waiting calls and streams. The table's lock guards everything but last and called.
type session struct {
	owner   mail.Owner
	witness principal.Witness // of the process behind it; nil: there is none
	last    atomic.Int64      // sign of life, in nanoseconds of the table's clock
	called  atomic.Int64      // the last call, in nanoseconds of the table's clock; 0: none
	touched int64             // when its lease was last extended in the book

	peer    string     // the id of its peer; empty: none
	ended   bool       // its connection is closed, or its process gone
	shim    string     // the parent process of a shim, for siblings
	joined  *session   // the sibling whose session it shares; nil: none
	members []*session // siblings that joined it

	calls   int    // waiting calls
	takes   int    // of these, the calls that any new mail ends
	listens int    // open streams of subscriptions/listen
	subs    int    // subscriptions of a legacy session
	name    string // of its peer, to which its sends are charged; empty: charged to itself
	named   int    // calls of register that gave it a peer
	made    uint64 // later sessions have higher numbers

	position *position // of an inbox without a cursor; nil: none

	hooked   int64 // the last time that a hook asked for it; 0: none did
	hookTold int64 // the newest message of its present peer that a hook has reported

	gives    int   // answers of inbox that gave it messages
	gaveUpTo int64 // the newest message of its present peer that was given since a hook told of one that came back; 0: none
}

// lives reports whether it, or a sibling that joined it, has not ended.
func (s *session) lives() bool {
	if !s.ended {
		return true
	}
	return slices.ContainsFunc(s.members, func(m *session) bool { return !m.ended })
}

// Bounds of waiting calls: of one session, and of all sessions of one principal.
const (
	maxWaiting      = 4
	maxWaitingOfAll = 4096
)

// How long sessions are kept without a sign of life: with a peer, also a sibling's, whose
// lease a later sign extends again, and without one.
const (
	keptBound   = 24 * time.Hour
	keptUnbound = 10 * time.Minute
	touchMost   = 30 * time.Second // upper bound of sessions.touch
)

// sessions is the table of the sessions that were seen.
type sessions struct {
	node  string
	join  bool                 // siblings of one parent share a session
	joins func(session string) // called with the name of a session that joins another one; nil: not called
	clock func() time.Duration
	touch time.Duration // between two extensions of one lease

	mu     sync.RWMutex
	byKey  map[string]*session // by principal.Key and session
	byID   map[string]*session // by peer id
	late   map[string]bool     // sessions that were closed during a call: their leases are ended once more
	made   uint64              // sessions so far
	asleep map[string]int      // waiting calls, by principal

	paces   paces
	formers formers
}

func newSessions(node string, join bool, lease time.Duration) *sessions {
	start := time.Now()
	t := &sessions{node: node, join: join, touch: min(touchMost, lease/3), clock: func() time.Duration { return time.Since(start) },
		byKey: make(map[string]*session), byID: make(map[string]*session), late: make(map[string]bool), asleep: make(map[string]int)}
	t.paces = paces{mu: &t.mu, clock: func() time.Duration { return t.clock() }, of: make(map[string]pace)}
	return t
}

func (t *sessions) now() int64 { return int64(t.clock()) + 1 }

// seen notes a sign of life of a known session. It is called for every request, so it costs
// one look-up, and it makes no text of the key of a legacy session.
func (t *sessions) seen(who *principal.Principal, digest string) {
	var room [128]byte
	key := appendKey(room[:0], who, digest)
	t.mu.RLock()
	s := t.byKey[string(key)]
	t.mu.RUnlock()
	if s != nil {
		s.last.Store(t.now())
	}
}

// appendKey appends the key of the session in which who acts: its name and SessionOf.
func appendKey(b []byte, who *principal.Principal, digest string) []byte {
	b = append(append(b, who.Name()...), 0)
	if digest != "" {
		return append(append(b, legacyPrefix...), digest...)
	}
	return append(b, SessionOf(who, "")...)
}

// use is how a session is used.
type use uint8

const (
	asStream  use = iota // by a stream that was opened once and stays: no sign of life
	asCall               // by a call
	asBridged            // by a call through `doorward connect`: the agent is the parent of its process
)

// of returns the session in which who acts, creating it on first use.
func (t *sessions) of(who *principal.Principal, digest string, u use) *session {
	name := SessionOf(who, digest)
	key := who.Name() + "\x00" + name
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byKey[key]
	if s == nil {
		s = t.enter(who, name, key)
	} else if u != asStream {
		s.last.Store(t.now())
	}
	if u == asBridged {
		s.behindShim(who)
	}
	lead := t.leader(s)
	if u != asStream {
		lead.called.Store(t.now())
	}
	return lead
}

func (t *sessions) qualified(who *principal.Principal) string {
	return mail.Qualify(t.node, who.Name())
}

// enter makes a session. The caller holds mu.
func (t *sessions) enter(who *principal.Principal, name, key string) *session {
	t.made++
	s := &session{made: t.made, witness: who.Witness(), owner: mail.Owner{
		Principal: t.qualified(who), Session: name, Node: t.node, Grade: gradeOf(who)}}
	if kind, id, _ := principal.Parse(who.Name()); kind == principal.KindSpawn {
		s.owner.Spawn = id
	}
	if f, ok := who.Fact(factProcess); ok && f.Value != "" {
		s.owner.Processes = []string{f.Value}
	}
	if s.witness != nil {
		s.witness.Retain()
	}
	s.last.Store(t.now())
	t.byKey[key] = s
	return s
}

// behindShim adds the parent process of a shim, which is the agent itself, once. That the
// session comes from a shim is claimed; the claim can only keep an agent's shell from the
// operator's commands.
func (s *session) behindShim(who *principal.Principal) {
	f, ok := who.Fact(factParent)
	if s.shim != "" || !ok || f.Value == "" || !f.Grade.MayRestrict() {
		return
	}
	s.shim = f.Value
	s.owner.Processes = append(s.owner.Processes[:len(s.owner.Processes):len(s.owner.Processes)], f.Value)
}

// leader returns the session that s acts as: a sibling's, if siblings may join and s has
// no peer of its own. The caller holds mu.
func (t *sessions) leader(s *session) *session {
	if s.joined == nil && t.join && s.shim != "" && s.peer == "" {
		for _, o := range t.byKey {
			if o != s && o.joined == nil && o.peer != "" && o.shim == s.shim && o.owner.Principal == s.owner.Principal && o.lives() {
				s.joined = o
				o.members = append(o.members, s)
				if t.joins != nil {
					t.joins(s.owner.Session)
				}
				break
			}
		}
	}
	if s.joined == nil {
		return s
	}
	s.joined.last.Store(max(s.joined.last.Load(), s.last.Load()))
	return s.joined
}

// end marks a session as ended, because its connection was closed. again: a call was in
// progress then and may have extended its lease.
func (t *sessions) end(who *principal.Principal, digest string, again bool) {
	name := SessionOf(who, digest)
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byKey[who.Name()+"\x00"+name]
	switch {
	case s != nil:
		s.ended = true
	case again:
		t.late[name] = true
	}
}

// wait takes one of the session's places for waiting calls; false: there is none. takes: any
// new mail ends the call.
func (t *sessions) wait(s *session, takes bool) (leave func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	who := s.owner.Principal
	if s.calls >= maxWaiting || t.asleep[who] >= maxWaitingOfAll {
		return nil, false
	}
	n := 0
	if takes {
		n = 1
	}
	s.calls++
	s.takes += n
	t.asleep[who]++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		s.calls--
		s.takes -= n
		if t.asleep[who]--; t.asleep[who] == 0 {
			delete(t.asleep, who)
		}
	}, true
}

// waits reports whether a waiting call of the session takes any new mail.
func (t *sessions) waits(s *session) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return s.takes > 0
}

// stream counts an open stream on which mail is pushed.
func (t *sessions) stream(s *session, listen bool) (leave func()) {
	n := &s.subs
	if listen {
		n = &s.listens
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	*n++
	return func() {
		t.mu.Lock()
		*n--
		t.mu.Unlock()
	}
}

// ownerOf returns the owner as which a session acts in the book.
func (t *sessions) ownerOf(s *session) mail.Owner {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return s.owner
}

// paceOf returns the key to which the sends of a session are charged.
func (t *sessions) paceOf(s *session) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return s.paceKey()
}

func (s *session) paceKey() string {
	if s.name != "" {
		return "name\x00" + s.name
	}
	return "session\x00" + s.owner.Principal + "\x00" + s.owner.Session
}

// former remembers the processes of a session that has a name. The caller holds mu.
func (t *sessions) former(s *session) {
	if s.peer != "" {
		t.formers.add(s.owner.Processes)
	}
}
