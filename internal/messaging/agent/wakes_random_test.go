package agent

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream"
)

var (
	wakesSeed = flag.Uint64("wakes.seed", 0, "the seed of TestEverySleeperWakes; 0: another one each time")
	wakesActs = flag.Int("wakes.acts", 12, "the acts of each session in TestEverySleeperWakes")
)

// everybody lets every local user in.
const everybody = `@id("everybody") permit (principal, action, resource);`

// sleeper is a session that sleeps in one or several ways while acts are done in it.
type sleeper struct {
	*agentClient
	name                 string
	streams, waits, asks bool // by a stream, a waiting call, hooks

	opening sync.Mutex

	mu    sync.Mutex
	told  []time.Time // by the stream
	ended int         // waiting calls that told it of mail
	hook  time.Time   // when a hook told it
	last  string      // the id of a message that it was given
	end   func()      // of its listen; nil: none
}

// tale is one run of generated acts on sleepers.
type tale struct {
	*house
	t      *testing.T
	all    []*sleeper // whose mailboxes have mail
	silent []*sleeper // that get no mail
	waits  sync.WaitGroup
	stop   context.CancelFunc
	ctx    context.Context
}

// sleep opens a session that sleeps as r decides.
func (w *tale) sleep(r *rand.Rand, user, name string, modern bool, also ...principal.Fact) *sleeper {
	who, wit := programOf(user, name, also...)
	s := &sleeper{name: name}
	for !s.streams && !s.waits && !s.asks {
		s.streams, s.waits, s.asks = r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0
	}
	s.agentClient = &agentClient{h: w.house, who: who, session: "digest-" + name, witness: wit, quick: true}
	if modern {
		s.session = ""
	}
	if len(also) > 0 { // siblings share a mailbox, so what one of them takes tells no other one
		s.namespace, s.streams, s.waits, s.asks = "default", true, false, false
	}
	s.conn, s.hello = w.s.Open(who, s.session, modern, s.hears)
	return s
}

// hears notes what a stream tells.
func (s *sleeper) hears(e upstream.Event) {
	if e.Method != "notifications/resources/updated" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, time.Now())
}

// opens begins the stream of a session, and closes one that is open.
func (w *tale) opens(s *sleeper) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.session != "" {
		for _, method := range []string{"resources/unsubscribe", "resources/subscribe"} {
			w.about(s, method)
		}
		return
	}
	w.closes(s)
	ctx, cancel := context.WithCancel(context.Background())
	done, ready := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(done)
		_, _ = s.conn.Call(ctx, &upstream.Request{Method: "subscriptions/listen", Params: []byte(listenParams)}, func(e upstream.Event) {
			once.Do(func() { close(ready) })
			s.hears(e)
		})
	}()
	<-ready
	s.mu.Lock()
	s.end = func() { cancel(); <-done }
	s.mu.Unlock()
}

func (w *tale) closes(s *sleeper) {
	if s.session != "" {
		w.about(s, "resources/unsubscribe")
		return
	}
	s.mu.Lock()
	end := s.end
	s.end = nil
	s.mu.Unlock()
	if end != nil {
		end()
	}
}

// about makes a request about the resource.
func (w *tale) about(s *sleeper, method string) {
	pass, err := w.gate.Enter(gate.Act{Who: s.who, Session: s.session, Action: method, Server: ServerName, Name: inboxURI}.Deferred())
	if err != nil {
		w.t.Errorf("%s: %v", method, err)
		return
	}
	defer pass.Leave("ok", 0)
	_, _ = s.conn.Call(gate.WithPass(context.Background(), pass), &upstream.Request{Method: method, Params: []byte(`{"uri":"` + inboxURI + `"}`)}, nil)
}

// waitsOn makes one waiting call after the other, until the tale is over.
func (w *tale) waitsOn(s *sleeper, r *rand.Rand) {
	for w.ctx.Err() == nil {
		tool, args := "inbox", m{"wait_ms": 50000}
		if r.IntN(2) == 0 {
			tool = "wait"
		}
		got, err := s.try(w.ctx, tool, args, nil)
		if err != nil || got.failed {
			time.Sleep(5 * time.Millisecond) // it has no name, or may not read
			continue
		}
		if got.len("messages") > 0 || got.str("reason") == "mail" {
			s.mu.Lock()
			s.ended++
			s.mu.Unlock()
		}
		if tool == "wait" {
			_, _ = s.try(w.ctx, "inbox", m{}, nil)
		}
	}
}

// hooked runs a hook of a session's program.
func (w *tale) hooked(s *sleeper) HookCounts {
	begin := time.Now()
	c, err := w.s.Hook(context.Background(), s.who, s.session, nil)
	if err == nil && c.Tell {
		s.mu.Lock()
		s.hook = begin
		s.mu.Unlock()
	}
	return c
}

// acts does one act of a session.
func (w *tale) acts(s *sleeper, r *rand.Rand) {
	call := func(tool string, args m) *reply {
		got, err := s.try(context.Background(), tool, args, nil)
		if err != nil {
			return &reply{t: w.t, failed: true}
		}
		return got
	}
	to := w.all[r.IntN(len(w.all))]
	switch r.IntN(18) {
	case 0, 1, 2, 3:
		call("send", m{"to": to.name, "body": fmt.Sprint(r.Uint64())})
	case 4, 5:
		if got := call("inbox", m{}); got.len("messages") > 0 {
			s.mu.Lock()
			s.last = got.str("messages.0.message_id")
			s.mu.Unlock()
		}
	case 6:
		call("inbox", m{"max": 1})
	case 7:
		call("inbox", m{"after": call("register", m{}).str("cursor"), "max": 1 + r.IntN(3)})
	case 8:
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // its answer is lost
		_, _ = s.try(ctx, "inbox", m{}, nil)
	case 9:
		call("inbox", m{"peek": true})
	case 10:
		s.mu.Lock()
		id := s.last
		s.mu.Unlock()
		if id != "" {
			call("ack", m{"message_ids": []string{id}, "outcome": []string{"done", "rejected"}[r.IntN(2)]})
		}
	case 11:
		call("unregister", m{})
		call("register", m{"name": s.name})
	case 12:
		call("register", m{"name": s.name + []string{"", "-x"}[r.IntN(2)], "inbound": []string{"accept", "hold", "accept"}[r.IntN(3)]})
	case 13:
		w.about(s, "resources/read")
	case 14:
		if s.streams {
			w.opens(s)
		}
	case 15, 16:
		if s.asks {
			w.hooked(s)
		}
	case 17:
		w.operates(to, r)
	}
}

// operates does an act of the operator about a session.
func (w *tale) operates(s *sleeper, r *rand.Rand) {
	o, me := w.s.Operator(), human()
	switch r.IntN(6) {
	case 0:
		_, _ = o.Pause(context.Background(), me, s.name, true)
		_, _ = o.Pause(context.Background(), me, s.name, false)
	case 1:
		_, _ = o.Retire(context.Background(), me, s.name)
	case 2:
		w.letsIn()
	case 3:
		w.s.PolicyChanged()
	case 4:
		w.s.signals.signal("") // as after an uncertain commit
	case 5:
		if all, err := o.Holds(context.Background(), me); err == nil && len(all) > 0 {
			_, _ = o.Settle(context.Background(), me, HoldPurge, all[r.IntN(len(all))].MessageID)
		}
	}
}

// letsIn ends all pauses, and approves all held messages.
func (w *tale) letsIn() {
	o, me := w.s.Operator(), human()
	peers, _ := o.Peers(context.Background(), me)
	for _, p := range peers {
		if p.Paused {
			_, _ = o.Pause(context.Background(), me, p.PeerID, false)
		}
	}
	all, _ := o.Holds(context.Background(), me)
	for _, m := range all {
		if m.State == mail.Held {
			_, _ = o.Settle(context.Background(), me, HoldApprove, m.MessageID)
		}
	}
}

// acting returns the session as which a client acts, without making it join a sibling.
func (w *tale) acting(s *sleeper) *session {
	w.s.sessions.mu.RLock()
	defer w.s.sessions.mu.RUnlock()
	on := w.s.sessions.byKey[s.who.Name()+"\x00"+SessionOf(s.who, s.session)]
	if on != nil && on.joined != nil {
		return on.joined
	}
	return on
}

// newestOf returns the seq of the newest unread message of a peer and the time since which it
// is unread, and the number of messages that are given and not confirmed.
func (w *tale) newestOf(peer string) (seq int64, since time.Time, given int64) {
	err := w.db.Read(context.Background(), func(tx *store.Tx) error {
		var at int64
		err := tx.Each(func(scan func(...any) error) error { return scan(&seq, &at) },
			`SELECT seq, changed_at FROM deliveries WHERE peer_id = ?1 AND state = 'queued' ORDER BY seq DESC LIMIT 1`, peer)
		since = time.UnixMilli(at)
		if err != nil {
			return err
		}
		return tx.Row([]any{&given}, `SELECT count(*) FROM deliveries WHERE peer_id = ?1 AND state = 'leased'`, peer)
	})
	if err != nil {
		w.t.Error(err)
	}
	return seq, since, given
}

// toldSince reports whether a stream or a hook has told a session anything since a time.
func (s *sleeper) toldSince(t time.Time) (stream, hook bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stream = len(s.told) > 0 && !s.told[len(s.told)-1].Before(t)
	return stream, !s.hook.Before(t)
}

func (s *sleeper) counts() (told, ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.told), s.ended
}

// calm checks a session after the last act: it was told of the mail that it has.
func (w *tale) calm(s *sleeper) {
	on := w.acting(s)
	if on == nil {
		return
	}
	me, err := w.book.Me(context.Background(), w.s.sessions.ownerOf(on))
	if err != nil {
		return // no name
	}
	await(w.t, "the leases end", func() bool { _, _, given := w.newestOf(me.ID); return s.waits || given == 0 })
	if s.waits {
		return
	}
	seq, since, _ := w.newestOf(me.ID)
	if seq == 0 {
		return
	}
	if s.streams {
		await(w.t, fmt.Sprintf("the stream of %s tells of message %d", s.name, seq), func() bool { is, _ := s.toldSince(since); return is })
	}
	if s.asks {
		_, is := s.toldSince(since)
		if c := w.hooked(s); !is && !c.Tell {
			w.t.Errorf("no hook tells %s of message %d: %+v", s.name, seq, c)
		}
		if c := w.hooked(s); c.Tell {
			w.t.Errorf("a hook tells %s twice of message %d: %+v", s.name, seq, c)
		}
	}
}

// wakes sends a last message to a session, which has to hear of it in each way.
func (w *tale) wakes(s *sleeper, from *agentClient) {
	on := w.acting(s)
	owner := w.s.sessions.ownerOf(on)
	me, err := w.book.Me(context.Background(), owner)
	if err != nil {
		s.call("register", m{"name": fmt.Sprint(s.name, rand.Uint32())}).want("")
		if me, err = w.book.Me(context.Background(), w.s.sessions.ownerOf(w.acting(s))); err != nil {
			w.t.Fatalf("%s has no name: %v", s.name, err)
		}
	}
	s.call("register", m{"inbound": "accept"}).want("")
	told, ended := s.counts()
	from.call("send", m{"to": me.ID, "body": fmt.Sprint("last ", rand.Uint64())}).want("")
	if s.waits {
		await(w.t, "a waiting call of "+s.name+" ends", func() bool { _, now := s.counts(); return now > ended })
		return // the call may have taken the message before anything else told of it
	}
	if s.streams {
		await(w.t, "the stream of "+s.name+" tells", func() bool { now, _ := s.counts(); return now > told })
	}
	if c := w.hooked(s); s.asks && !c.Tell {
		w.t.Errorf("no hook tells %s: %+v", s.name, c)
	}
}

// Whatever the order of acts, a session that sleeps is told of its mail, and of that of no
// other session; and nothing is left of a sleep that has ended.
func TestEverySleeperWakes(t *testing.T) {
	t.Parallel()
	seed := *wakesSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-wakes.seed=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	h := build(t, plan{rules: everybody, join: true, mail: mail.Limits{Lease: 100 * time.Millisecond, Attempts: 1000, Duplicate: -1, SenderMessages: 1000},
		limits: Limits{SendsPerMinute: 1e6, Burst: 1e6}})
	h.s.minGap = 10 * time.Millisecond
	w := &tale{house: h, t: t}
	w.ctx, w.stop = context.WithCancel(context.Background())
	defer w.stop()
	from := h.legacy("from").registered("from")
	user := principal.UID(1000)
	for i := range 3 {
		w.all = append(w.all, w.sleep(r, user, fmt.Sprint("agent", i), r.IntN(2) == 0))
	}
	parent := principal.Fact{Name: factParent, Value: "boot/parent@1", Grade: principal.Observed}
	for i := range 2 {
		w.all = append(w.all, w.sleep(r, user, fmt.Sprint("shim", i), r.IntN(2) == 0, parent))
	}
	for i, user := range []string{user, principal.UID(1001)} {
		s := w.sleep(r, user, fmt.Sprint("silent", i), i == 0)
		s.streams, s.waits, s.asks = true, true, true
		w.silent = append(w.silent, s)
	}
	for _, s := range append(w.silent, w.all...) {
		if s.streams {
			w.opens(s)
		}
		if r.IntN(2) == 0 || s.name[:2] == "si" {
			s.call("register", m{"name": s.name}).want("")
		} else {
			s.call("inbox", m{}) // a shim is known by its first call
		}
		if s.waits {
			r := rand.New(rand.NewPCG(r.Uint64(), 1))
			w.waits.Go(func() { w.waitsOn(s, r) })
		}
	}
	var busy sync.WaitGroup
	for _, s := range w.all {
		for range 2 {
			r := rand.New(rand.NewPCG(r.Uint64(), 2))
			busy.Go(func() {
				for range *wakesActs {
					w.acts(s, r)
				}
			})
		}
	}
	busy.Wait()
	w.letsIn()
	for _, s := range w.all {
		w.calm(s)
	}
	for _, s := range w.all {
		w.wakes(s, from)
	}
	for _, s := range w.silent {
		if told, ended := s.counts(); told > 0 || ended > 0 {
			t.Errorf("%s was told of another one's mail: %d times by its stream, %d by a call", s.name, told, ended)
		}
		if c := w.hooked(s); c.Tell || !c.Known {
			t.Errorf("a hook of %s: %+v", s.name, c)
		}
	}
	w.stop()
	w.waits.Wait()
	for _, s := range append(w.silent, w.all...) {
		w.closes(s)
	}
	await(t, "nothing waits", func() bool {
		h.s.signals.mu.Lock()
		n := len(h.s.signals.waiters)
		h.s.signals.mu.Unlock()
		h.s.sessions.mu.RLock()
		defer h.s.sessions.mu.RUnlock()
		for _, on := range h.s.sessions.byKey {
			n += on.calls + on.takes + on.listens + on.subs
		}
		return n+len(h.s.sessions.asleep) == 0
	})
}
