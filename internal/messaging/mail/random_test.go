package mail_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/messaging/mail"
)

var (
	modelSeed  = flag.Uint64("mail.seed", 0, "the seed of the model test; 0: a new one")
	modelSteps = flag.Int("mail.steps", 3000, "its steps on SQLite")
)

// TestTheBookDoesWhatTheModelDoes runs random acts on the book and on the
// model, and compares outcome, deliveries and counters after each one. Fsck
// finds no difference at any time.
func TestTheBookDoesWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	for _, evict := range []bool{false, true} {
		o := mail.Options{Limits: small, Evict: evict}
		t.Run(fmt.Sprintf("sqlite, evict %v", evict), func(t *testing.T) {
			t.Parallel()
			runModel(t, sqliteBed(t, o), seed, evict, *modelSteps, true)
		})
	}
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		o := mail.Options{Limits: small}
		runModel(t, postgresBed(t, o), seed, false, 400, false)
	})
}

type world struct {
	t        *testing.T
	b        *bed
	m        *model
	r        *rand.Rand
	turns    bool // the clock can be advanced
	owners   []mail.Owner
	receipts map[*mPeer][]mReceipt
	bodies   int
	log      []string
	outcomes map[string]int
}

// mReceipt is a receipt with the mark of the notices and the ids of the whole messages in its
// answer.
type mReceipt struct {
	mail.Receipt
	mark int64
	held []string
}

func runModel(t *testing.T, b *bed, seed uint64, evict bool, steps int, turns bool) {
	w := &world{t: t, b: b, m: newModel(small, evict), r: rand.New(rand.NewPCG(seed, 5)), turns: turns, receipts: make(map[*mPeer][]mReceipt), outcomes: make(map[string]int)}
	for p := range 2 {
		for s := range 4 {
			w.owners = append(w.owners, owner(fmt.Sprint("uid:", p), fmt.Sprint("s", p, s)))
		}
	}
	defer func() {
		if t.Failed() {
			t.Logf("seed %d, the last acts:\n%s", seed, strings.Join(w.log[max(0, len(w.log)-30):], "\n"))
		}
	}()
	if raceDetector {
		steps /= 30
	}
	for range steps {
		w.step()
		w.compare()
	}
	for _, p := range w.m.peers {
		for state, n := range p.counts {
			w.outcomes["ended "+state] += int(n)
		}
	}
	t.Log(w.outcomes)
}

func (w *world) logf(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

// step does one random act.
func (w *world) step() {
	acts := []struct {
		weight int
		act    func()
	}{
		{60, w.register}, {400, w.send}, {200, w.inbox}, {60, w.ack}, {80, w.settle}, {4, w.unregister}, {20, w.pause},
		{4, w.transfer}, {3, w.retire}, {12, w.end}, {20, w.status}, {20, w.look},
	}
	if w.turns {
		acts = append(acts, struct {
			weight int
			act    func()
		}{60, w.pass})
	}
	sum := 0
	for _, a := range acts {
		sum += a.weight
	}
	n := w.r.IntN(sum)
	for _, a := range acts {
		if n -= a.weight; n < 0 {
			a.act()
			return
		}
	}
}

func pickOne[T any](r *rand.Rand, all []T) (t T, ok bool) {
	if len(all) == 0 {
		return t, false
	}
	return all[r.IntN(len(all))], true
}

// owner picks an owner, most of the time one with a peer.
func (w *world) owner() mail.Owner {
	var all []mail.Owner
	for _, o := range w.owners {
		if w.m.owned(o) != nil {
			all = append(all, o)
		}
	}
	if len(all) == 0 || w.r.IntN(10) == 0 {
		all = w.owners
	}
	return all[w.r.IntN(len(all))]
}

// message picks a known message, mostly a recent one.
func (w *world) message() (*mMessage, bool) {
	all := w.m.messages
	if w.r.IntN(4) > 0 {
		all = all[max(0, len(all)-12):]
	}
	return pickOne(w.r, all)
}

func (w *world) refused(err error, want string) bool {
	w.t.Helper()
	w.outcomes[strings.Fields(w.log[len(w.log)-1])[0]+" "+want]++
	if got := code(err); got != want {
		w.t.Fatalf("%s: got %q, want %q (%v)", w.log[len(w.log)-1], got, want, err)
	}
	return want != ""
}

func (w *world) register() {
	o, name := w.owners[w.r.IntN(len(w.owners))], fmt.Sprint("n", w.r.IntN(8))
	r := mail.Registration{Name: name}
	if w.r.IntN(4) == 0 {
		r.SetInbound, r.Inbound = true, []string{mail.InboundPolicy, mail.InboundAccept, mail.InboundHold, mail.InboundRefuse}[w.r.IntN(4)]
	}
	if w.r.IntN(3) == 0 {
		r.Former = w.owners[w.r.IntN(len(w.owners))].Session
	}
	w.logf("register %s %s as %s, former %s, %s", o.Principal, o.Session, name, r.Former, r.Inbound)
	got, err := w.b.Register(w.t.Context(), o, r, nil, said)
	p, created, takeover, want := w.m.registers(o, r)
	if w.refused(err, want) {
		return
	}
	if created {
		p.id = got.Peer.ID
	}
	if r.SetInbound {
		p.inbound = r.Inbound
	}
	n, _ := p.opened()
	if got.Peer.ID != p.id || got.Created != created || (got.Takeover != nil) != takeover || got.Peer.Epoch != p.epoch ||
		got.Counts.Pending+got.Counts.Held != int(n) || got.Peer.Inbound != p.inbound {
		w.t.Fatalf("registered %+v, the model has %+v", got, p)
	}
	if takeover {
		same(w.t, "inherited", int64(got.Takeover.Inherited), p.counts[mail.Queued])
	}
}

func (w *world) send() {
	o := w.owner()
	d := mail.Draft{Body: fmt.Sprintf("body %d %s", w.bodies, strings.Repeat("x", w.r.IntN(120))), TTL: int64(300 << w.r.IntN(10))}
	w.bodies++
	if old, ok := w.message(); ok && w.turns && w.r.IntN(10) == 0 {
		d.Body = old.body
	}
	var to []*mPeer
	var principals []string
	for range 2 + w.r.IntN(3) {
		p, ok := pickOne(w.r, w.m.peers)
		if !ok || p.forgotten || slices.Contains(to, p) || (p.gone && w.r.IntN(20) > 0) {
			continue
		}
		r := mail.Recipient{To: p.name, PeerID: p.id, Principal: p.principal, Hold: w.r.IntN(6) == 0, Reason: "policy"}
		if w.r.IntN(30) == 0 {
			r.Principal = "here uid:9"
		}
		to, principals, d.To = append(to, p), append(principals, r.Principal), append(d.To, r)
	}
	if len(to) == 0 {
		return
	}
	if w.r.IntN(5) == 0 {
		d.Key = fmt.Sprint("k", w.r.IntN(4))
		d.Fingerprint = []byte{byte(w.r.IntN(2))}
	}
	if old, ok := w.message(); ok && w.r.IntN(4) == 0 {
		d.Thread = old.thread
	}
	w.logf("send %s %s to %v %q key %q", o.Principal, o.Session, d.To, d.Body, d.Key)
	got, err := w.b.Send(w.t.Context(), o, d, said)
	want, replay, msg := w.modelSend(o, d, to, principals)
	if w.refused(err, want) {
		return
	}
	same(w.t, "replay", got.Replay, replay != nil)
	if replay != nil {
		same(w.t, "replayed id", got.MessageID, replay.MessageID)
		return
	}
	msg.id, msg.thread = got.MessageID, got.Thread
	if d.Key != "" {
		w.m.keys[o.Principal+msg.from.id+d.Key] = &mKey{string(d.Fingerprint), got, w.m.now + keyTime}
	}
	for i, p := range got.Deliveries {
		if p.State != msg.to[i].state || p.Seq != msg.to[i].seq || p.Live != to[i].live(w.m.now) {
			w.t.Fatalf("placed %+v, the model has %+v", p, msg.to[i])
		}
	}
}

// modelSend is Send in the model. A refusal changes nothing.
func (w *world) modelSend(o mail.Owner, d mail.Draft, to []*mPeer, principals []string) (string, *mail.Sent, *mMessage) {
	from, code := w.m.me(o)
	if code != "" {
		return code, nil, nil
	}
	if k := w.m.keys[o.Principal+from.id+d.Key]; d.Key != "" && k != nil && k.until > w.m.now {
		if k.print != string(d.Fingerprint) {
			return mail.IdempotencyConflict, nil, nil
		}
		w.m.fence(o)
		return "", k.sent, nil
	}
	refusals := make(map[string]bool)
	rooms := make([][]*mDelivery, len(to))
	for i, p := range to {
		code, room := w.m.refuses(from, p, principals[i], d.Body)
		refusals[code], rooms[i] = true, room
	}
	for _, code := range []string{mail.UnknownRecipient, mail.RecipientRefuses, mail.DuplicateSuppressed, mail.SenderQuota, mail.MailboxFull} {
		if refusals[code] {
			return code, nil, nil
		}
	}
	w.m.fence(o)
	msg := &mMessage{body: d.Body, from: from, sent: w.m.now, ttl: d.TTL * 1000}
	for i, p := range to {
		for _, x := range rooms[i] {
			w.m.end(x, mail.Evicted, "full", "")
		}
		w.m.accept(msg, p, d.To[i].Hold, d.To[i].Reason)
	}
	w.m.messages = append(w.m.messages, msg)
	return "", nil, msg
}

func (w *world) pass() {
	usual := []time.Duration{time.Second, 20 * time.Second, time.Minute, 121 * time.Second}
	long := []time.Duration{10 * time.Minute, time.Hour, 13 * time.Hour}
	days := []time.Duration{26 * time.Hour, 8 * 24 * time.Hour, 31 * 24 * time.Hour}
	d := usual[w.r.IntN(len(usual))]
	switch n := w.r.IntN(60); {
	case n == 0:
		d = days[w.r.IntN(len(days))]
	case n < 10:
		d = long[w.r.IntN(len(long))]
	}
	w.logf("pass %s", d)
	w.b.pass(d)
	w.b.sweep()
	must(w.b.t, w.b.ForgetSessions(w.b.t.Context(), ended))
	w.m.pass(d)
}

// compare compares everything that is stored with the model.
func (w *world) compare() {
	w.t.Helper()
	stored := make(map[string]string)
	must(w.t, w.b.db.Read(w.t.Context(), func(tx *store.Tx) error {
		clear(stored)
		return tx.Each(func(scan func(...any) error) error {
			var id, peer, state string
			var seq, attempts int64
			err := scan(&id, &peer, &state, &seq, &attempts)
			stored[id+" "+peer] = fmt.Sprint(state, " ", seq, " ", attempts)
			return err
		}, `SELECT message_id, peer_id, state, seq, attempts FROM deliveries`)
	}))
	want := make(map[string]string)
	for _, p := range w.m.peers {
		for _, d := range p.box {
			want[d.msg.id+" "+p.id] = fmt.Sprint(d.state, " ", d.seq, " ", d.attempts)
		}
	}
	if !maps.Equal(stored, want) {
		for k, v := range want {
			if stored[k] != v {
				w.t.Errorf("delivery %s is %q, the model has %q", k, stored[k], v)
			}
		}
		w.t.Fatalf("after %s: %d deliveries, the model has %d", w.log[len(w.log)-1], len(stored), len(want))
	}
	c, err := w.b.Desk().Fsck(w.t.Context(), false, said)
	must(w.t, err)
	if !c.OK || c.Accepted != w.m.total {
		w.t.Fatalf("after %s: accepted %d, the model has %d; %+v", w.log[len(w.log)-1], c.Accepted, w.m.total, c.Problems)
	}
	sums := make(map[string]int64)
	for _, p := range w.m.peers {
		for state, n := range p.counts {
			sums[state] += n
		}
	}
	for state, n := range c.States {
		same(w.t, state+" in all", n, sums[state])
	}
}
