// Package approval keeps the acts that wait for the operator's decision, and the operator's
// grants, so that policy can hold an act instead of denying it.
//
// Invariants: one approval runs one act, at most once, and only for a caller that still waits
// or comes back for it. A question, its answer, its expiry and a grant are recorded before
// they have an effect. An act that is not decided in time is not done. Arguments are kept in
// memory only. A number is given to one question, also after a restart.
package approval

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

var (
	// ErrFull says that too many questions are open, in total or of this caller.
	ErrFull = errors.New("too many calls wait for approval")
	// ErrSettled says that no such question is open.
	ErrSettled = errors.New("no such call waits for approval")
	// ErrVerdict says that a verdict is not valid.
	ErrVerdict = errors.New("not a decision")
)

// Call is one held act.
type Call struct {
	Held    *gate.Held
	Act     gate.Act
	Args    []byte // arguments as the operator sees them, canonical JSON
	Rest    []byte // what else the server gets, canonical JSON; empty: nothing
	Run     []byte // arguments as the server gets them; nil: the call has none
	Client  string // program of the caller, as far as it is known
	Session string // session or process that a grant for the session is bound to
	Notes   []string

	// Stale reports that an approval does not let the act through any more; nil: never. It is
	// called with the queue locked.
	Stale func() bool
	// Gone reports that the caller cannot come back; nil: it can.
	Gone func() bool
}

// bytes returns the length of what the caller chose.
func (c Call) bytes() int { return len(c.Act.Name) + len(c.Args) + len(c.Rest) }

// Question is a held call as the operator sees it, or a message that another package holds
// and that the same commands decide.
type Question struct {
	N                                       uint64
	Time, Expires                           time.Time
	Client, Principal, Server, Tool, Action string
	Args                                    string // JSON
	Rest                                    string // JSON of what else the server gets; empty: nothing
	Rule, Reason                            string
	Preview                                 string // digest of what the operator sees, hex
	Waiting                                 int    // callers that wait
	Notes                                   []string
	Message                                 string // id of a message; empty: it is a call
}

// Verdict is the operator's decision. For is once, session, 1h or always.
type Verdict struct {
	Approve bool
	For     string
	Why     string
	Passkey string // name of the passkey that signed it; empty: none was required
}

// Answer is the outcome of a held call: exactly one of Approval, Denied, Pending and Stale.
type Answer struct {
	Approval *gate.Approval
	// Run holds the call's arguments that the operator was shown. The call is made with
	// these; an equal call may have written its numbers in another way. Empty: the call's own
	// are used.
	Run     string
	Denied  bool
	Why     string
	Pending uint64 // number of the question that is still open
	Expires time.Time
	Ref     uint64 // number of the record of the outcome
	Stale   bool   // the act has to be decided again
}

// Options configures a Queue.
type Options struct {
	Expire time.Duration                       // how long a question is open
	Record func(*audit.Record) (uint64, error) // writes one record and returns its number
	Save   func(grants []Grant) error          // stores the grants that outlive the process
	Last   uint64                              // number that was given last, by an earlier run
	Give   func(n uint64) error                // stores the last number, before it is given; nil: the next run gives it again
	Notify func(Question)                      // tells the operator; nil: nothing does
	Now    func() time.Time                    // nil: the wall clock, which goes on while the machine is suspended

	// Elapsed returns the time since some moment before New. It goes on while the machine is
	// suspended, and no one can set it; nil: that since the machine started.
	Elapsed func() time.Duration
}

// Bounds of the queue.
const (
	mostOpen   = 1000
	mostOfOne  = 100
	mostBytes  = 32 << 20
	bytesOfOne = mostBytes / 8 // of the questions of one caller, if it has more than one
	mostWhy    = 400
	nameLength = 12
)

// Queue holds the calls that wait. It is safe for concurrent use.
type Queue struct {
	o Options

	mu     sync.Mutex
	last   uint64
	byCall map[gate.Binding]*question
	byN    map[uint64]*question
	ofWho  shares
	bytes  int
	under  int            // calls under way to a question or its answer
	ofOne  map[string]int // the same by caller
	grants []Grant
	uses   map[string]bool // tools and argument names of calls approved before

	elsewhere map[string]uint64 // numbers of items that other packages keep
}

type state int

const (
	open state = iota
	approved
	denied
)

// question is one open call, or a decided one until its caller comes back.
type question struct {
	call    Call
	shown   Question
	ref     uint64 // of approval.asked
	state   state
	answer  Answer
	waiters []*waiter
	timer   *time.Timer
}

// stale reports that an approval does not let the act of the call through any more.
func (c Call) stale() bool { return c.Stale != nil && c.Stale() }

// gone reports that the caller of the question cannot come back: it said so, or its program has
// ended.
func (at *question) gone() bool {
	w := at.call.Act.Who.Witness()
	return at.call.Gone != nil && at.call.Gone() || w != nil && !w.Holds()
}

// hold keeps the witness of the caller's program until letGo.
func (at *question) hold() {
	if w := at.call.Act.Who.Witness(); w != nil {
		w.Retain()
	}
}

func (at *question) letGo() {
	if w := at.call.Act.Who.Witness(); w != nil {
		w.Release()
	}
}

// waiter is one caller that waits. left reports that its connection is gone.
type waiter struct {
	answer chan Answer // a zero Answer: ask again
	left   func() bool
	leave  func() // gives its place back; nil: it has none
}

// wallClock returns the time without the monotonic reading. That one stops while a laptop is
// suspended, and an approval for an hour would last until after the night.
func wallClock() time.Time { return time.Now().Round(0) }

// New makes a queue with the grants that were saved.
func New(o Options, saved []Grant) *Queue {
	if o.Now == nil {
		o.Now = wallClock
	}
	if o.Elapsed == nil {
		o.Elapsed = elapsed()
	}
	q := &Queue{o: o, last: o.Last, byCall: map[gate.Binding]*question{}, byN: map[uint64]*question{}, ofWho: shares{}, ofOne: map[string]int{}, uses: map[string]bool{}}
	q.grants = q.resume(saved)
	return q
}

// Await asks the operator about a call and waits for the answer. If a question about an equal
// call is open, it waits for that one. It returns after wait at the latest, with the number
// of the question. asked is called with that number once the caller waits.
func (q *Queue) Await(ctx context.Context, c Call, wait time.Duration, left func() bool, asked func(n uint64)) (Answer, error) {
	w := &waiter{answer: make(chan Answer, 1), left: left}
	defer func() {
		if w.leave != nil {
			w.leave()
		}
	}()
	timer := time.After(wait)
	for {
		a, at, err := q.attach(c, w)
		if err != nil || at == nil {
			return a, err
		}
		asked(at.shown.N)
		select {
		case a := <-w.answer:
			if a != (Answer{}) {
				return a, nil
			}
			if left() { // the approval is for a caller that comes back
				return Answer{Pending: at.shown.N, Expires: at.shown.Expires}, nil
			}
		case <-timer:
			return q.leave(at, w), nil
		case <-ctx.Done():
			q.leave(at, w)
			return Answer{}, ctx.Err()
		}
	}
}

// attach returns the answer if there is one already, or the question that w waits for.
func (q *Queue) attach(c Call, w *waiter) (Answer, *question, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.stale() {
		return Answer{Stale: true}, nil, nil
	}
	if a, ok, err := q.granted(c); ok || err != nil {
		return a, nil, err
	}
	at := q.byCall[c.Held.Binding]
	switch {
	case at == nil:
	case at.state != open:
		q.remove(at)
		return at.answer, nil, nil
	case !q.isOpen(at): // a later call is a new question
		if err := q.lapse(at); err != nil {
			return Answer{}, nil, err
		}
		at = nil
	}
	if err := w.seat(q, c.Act.Who.Name()); err != nil {
		return Answer{}, nil, err
	}
	if at == nil {
		var err error
		if at, err = q.ask(c); err != nil {
			return Answer{}, nil, err
		}
	}
	at.waiters = append(at.waiters, w)
	return Answer{}, at, nil
}

// ask opens a question. The caller holds mu.
func (q *Queue) ask(c Call) (*question, error) {
	who := c.Act.Who.Name()
	if q.full(c) {
		review(q)
		if q.full(c) {
			return nil, ErrFull
		}
	}
	now := q.o.Now()
	at := &question{call: c, shown: Question{N: q.last + 1, Time: now, Expires: now.Add(q.o.Expire), Client: c.Client, Principal: who,
		Server: c.Act.Server, Tool: c.Act.Name, Action: c.Act.Action, Args: string(c.Args), Rest: string(c.Rest),
		Rule: c.Held.Ask.Rule, Reason: c.Held.Ask.Reason, Notes: append(q.notes(c), c.Notes...)}}
	at.shown.Preview = at.shown.Digest()
	err := q.give(at.shown.N)
	if err != nil {
		return nil, err
	}
	if at.ref, err = q.record(at, "approval.asked", c.Act.Who, 0, audit.Field{Name: "expires", Value: at.shown.Expires.UTC().Format(time.RFC3339)}); err != nil {
		return nil, err
	}
	q.last++
	q.byN[at.shown.N], q.byCall[c.Held.Binding] = at, at
	q.ofWho.charge(who, 1, c.bytes())
	q.bytes += c.bytes()
	at.hold()
	at.timer = time.AfterFunc(q.o.Expire, func() { q.expire(at) })
	q.Tell(at.shown)
	return at, nil
}

// Tell notifies the operator of a question, and returns at once.
func (q *Queue) Tell(s Question) {
	if q.o.Notify != nil {
		go q.o.Notify(s)
	}
}

// Digest returns the digest of everything that the operator sees of the question.
func (s Question) Digest() string {
	h := sha256.New()
	for _, part := range append([]string{strconv.FormatUint(s.N, 10), s.Client, s.Principal, s.Server, s.Action, s.Tool, s.Args, s.Rest, s.Rule, s.Reason}, s.Notes...) {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// record writes a record about a question. ref is an earlier record of it.
func (q *Queue) record(at *question, what string, who *principal.Principal, ref uint64, detail ...audit.Field) (uint64, error) {
	a := at.call.Act
	r := audit.Record{Kind: audit.Event, Source: "approval", Who: who, Session: a.Session, Action: what, Resource: a.Server + "/" + a.Name,
		Rule: at.shown.Rule, Ref: ref, Detail: append([]audit.Field{{Name: "n", Value: strconv.FormatUint(at.shown.N, 10)}, {Name: "preview", Value: at.shown.Preview}}, detail...)}
	n, err := q.o.Record(&r)
	if err != nil {
		return 0, fmt.Errorf("recording %s: %w", what, err)
	}
	return n, nil
}

// remove forgets a question. The caller holds mu.
func (q *Queue) remove(at *question) {
	if q.byN[at.shown.N] != at {
		return
	}
	at.timer.Stop()
	at.letGo()
	delete(q.byN, at.shown.N)
	delete(q.byCall, at.call.Held.Binding)
	q.ofWho.charge(at.shown.Principal, -1, -at.call.bytes())
	q.bytes -= at.call.bytes()
}

// leave removes a caller from a question and returns that the question is still open, or the
// answer if one came at the same moment.
func (q *Queue) leave(at *question, w *waiter) Answer {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case a := <-w.answer:
		if a != (Answer{}) {
			return a
		}
	default:
	}
	at.waiters = slices.DeleteFunc(at.waiters, func(other *waiter) bool { return other == w })
	return Answer{Pending: at.shown.N, Expires: at.shown.Expires}
}

// isOpen reports whether a question can still be answered. Its timer, which ends it, stands
// still while the machine is suspended. The caller holds mu.
func (q *Queue) isOpen(at *question) bool {
	return at.state == open && q.o.Now().Before(at.shown.Expires)
}

// Pending returns the open questions, the oldest first.
func (q *Queue) Pending() []Question {
	q.mu.Lock()
	defer q.mu.Unlock()
	review(q)
	all := []Question{}
	for _, n := range slices.Sorted(maps.Keys(q.byN)) {
		if at := q.byN[n]; q.isOpen(at) {
			shown := at.shown
			shown.Waiting = len(at.waiters)
			all = append(all, shown)
		}
	}
	return all
}
