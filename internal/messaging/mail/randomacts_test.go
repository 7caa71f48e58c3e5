package mail_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/messaging/mail"
)

func (w *world) inbox() {
	o := w.owner()
	f := mail.Fetch{Max: 1 + w.r.IntN(4), MaxBytes: 60 + w.r.IntN(200), Peek: w.r.IntN(6) == 0}
	if old, ok := w.message(); ok && w.r.IntN(4) == 0 {
		f.Thread = old.thread
	}
	p, want := w.m.me(o)
	var after mReceipt
	if p != nil && w.r.IntN(3) > 0 {
		if r, ok := pickOne(w.r, w.receipts[p]); ok {
			for i := len(w.receipts[p]) - 1; i >= 0 && w.r.IntN(4) > 0; i-- { // the latest that covers a message
				if x := w.receipts[p][i]; x.Seq > 0 {
					r = x
					break
				}
			}
			if f.After = &r.Receipt; r.Epoch != p.epoch {
				want = mail.CursorInvalid
			}
			after = r
		}
	}
	w.logf("inbox %s %s %+v after %+v", o.Principal, o.Session, f, f.After)
	got, err := w.b.Inbox(w.t.Context(), o, f, said)
	if w.refused(err, want) {
		return
	}
	w.modelInbox(o, p, f, after, got)
}

func (w *world) modelInbox(o mail.Owner, p *mPeer, f mail.Fetch, after mReceipt, got *mail.Batch) {
	acked := 0
	covers := f.After != nil && after.mark > p.covered
	if !f.Peek && (p.counts[mail.Queued]+p.counts[mail.Leased] > 0 || covers) {
		w.m.fence(o)
		if f.After != nil {
			for _, d := range w.m.covered(p, f.After) {
				if !slices.Contains(after.held, d.msg.id) {
					w.t.Fatalf("the receipt %+v acknowledges %s, which was not in its answer", after, d.msg.id)
				}
			}
			acked = w.m.receive(p, f.After)
			p.covered = max(p.covered, after.mark)
		}
	}
	given, cut, more := w.m.give(p, f)
	var want, have []string
	for _, d := range given {
		want = append(want, fmt.Sprint(d.msg.id, d.seq, d.attempts))
	}
	for _, x := range got.Messages {
		have = append(have, fmt.Sprint(x.ID, x.Seq, x.Attempt))
	}
	equal(w.t, "messages", have, want...)
	same(w.t, "acked", got.Acked, acked)
	same(w.t, "more", got.More, more)
	for i, x := range got.Messages {
		same(w.t, "truncated", x.Truncated, cut && i == 0)
		if body := given[i].msg.body; !x.Truncated {
			same(w.t, "body", x.Body, body)
		} else {
			same(w.t, "cut body", x.Body, body[:f.MaxBytes])
		}
	}
	w.counts(p, got.Counts)
	r := mReceipt{got.Counts.Receipt, w.m.newest(p), nil}
	for _, x := range got.Messages {
		if !x.Truncated {
			r.held = append(r.held, x.ID)
		}
	}
	w.receipts[p] = append(w.receipts[p], r)
}

// counts compares the counts of a mailbox with the model.
func (w *world) counts(p *mPeer, c mail.Counts) {
	w.t.Helper()
	same(w.t, "pending", int64(c.Pending), p.counts[mail.Queued]+p.counts[mail.Leased])
	same(w.t, "held", int64(c.Held), p.counts[mail.Held])
	same(w.t, "missed", c.Missed, mail.Missed{Evicted: int(p.counts[mail.Evicted]), Expired: int(p.counts[mail.Expired]),
		Dead: int(p.counts[mail.Dead]), Refused: int(p.counts[mail.Refused]), Purged: int(p.counts[mail.Purged])})
	newest := int64(0)
	if all := w.m.oldest(p, ""); len(all) > 0 {
		newest = all[len(all)-1].seq
	}
	same(w.t, "newest", c.Newest, newest)
	var notices []string
	for _, n := range c.Notices {
		notices = append(notices, strings.Join([]string{n.MessageID, n.State, n.Note}, " "))
	}
	slices.Sort(notices)
	want := w.m.outstanding(p)
	if len(want) > 100 {
		same(w.t, "notices", len(notices), 100)
		return
	}
	equal(w.t, "notices", notices, want...)
}

func (m *model) covered(p *mPeer, r *mail.Receipt) (all []*mDelivery) {
	for _, d := range m.oldest(p, r.Thread) {
		if d.seq <= r.Seq && d.epoch == p.epoch && !d.cut {
			all = append(all, d)
		}
	}
	return all
}

func (m *model) receive(p *mPeer, r *mail.Receipt) int {
	all := m.covered(p, r)
	for _, d := range all {
		m.end(d, mail.Acked, "", "")
	}
	return len(all)
}

func (m *model) give(p *mPeer, f mail.Fetch) (given []*mDelivery, cut, more bool) {
	room := f.MaxBytes
	for i, d := range m.oldest(p, f.Thread) {
		n := len(d.msg.body)
		if i == f.Max || (i > 0 && n > room) {
			more = true
			break
		}
		given = append(given, d)
		if n > room {
			cut, more = true, len(m.oldest(p, f.Thread)) > 1
			break
		}
		room -= n
	}
	if f.Peek {
		return given, cut, more
	}
	for _, d := range given {
		if d.state == mail.Queued {
			d.attempts++
			m.move(d, mail.Leased)
		}
		d.given, d.epoch, d.lease, d.cut = true, p.epoch, m.now+leaseTime, cut
	}
	return given, cut, more
}

func (w *world) ack() {
	o := w.owner()
	var ids []string
	var msgs []*mMessage
	for range 1 + w.r.IntN(3) {
		if x, ok := w.message(); ok && !slices.Contains(msgs, x) {
			ids, msgs = append(ids, x.id), append(msgs, x)
		}
	}
	rejected, note := w.r.IntN(3) == 0, []string{"", "a note"}[w.r.IntN(2)]
	w.logf("ack %s %s %v rejected %v %q", o.Principal, o.Session, ids, rejected, note)
	got, err := w.b.Ack(w.t.Context(), o, ids, rejected, note, said)
	p, want := w.m.fence(o)
	if w.refused(err, want) {
		return
	}
	acked, already, unknown := 0, 0, 0
	for _, x := range msgs {
		i := slices.IndexFunc(x.to, func(d *mDelivery) bool { return d.to == p && !d.released })
		switch {
		case i < 0 || !x.to[i].given:
			unknown++
		case !x.to[i].open():
			already++
		case rejected:
			w.m.end(x.to[i], mail.Rejected, "", note)
			acked++
		default:
			w.m.end(x.to[i], mail.Acked, "", note)
			acked++
		}
	}
	equal(w.t, "acked, already, unknown", []int{got.Acked, got.Already, len(got.Unknown)}, acked, already, unknown)
}

// settle does a random act of the operator on a message.
func (w *world) settle() {
	x, ok := w.message()
	what := w.r.IntN(4)
	for i := len(w.m.messages) - 1; i >= 0 && w.r.IntN(40) > 0; i-- {
		if y := w.m.messages[i]; slices.ContainsFunc(y.to, func(d *mDelivery) bool { return d.state == mail.Held || d.state == mail.Dead }) {
			x = y
			break
		}
	}
	if !ok {
		return
	}
	w.logf("settle %d %s", what, x.id)
	acts := []func() ([]mail.Settled, error){
		func() ([]mail.Settled, error) { return w.b.Desk().Approve(w.t.Context(), x.id, "", nil, said) },
		func() ([]mail.Settled, error) { return w.b.Desk().Reject(w.t.Context(), x.id, "", said) },
		func() ([]mail.Settled, error) { return w.b.Desk().Purge(w.t.Context(), x.id, said) },
		func() ([]mail.Settled, error) { return w.b.Desk().Requeue(w.t.Context(), x.id, said) },
	}
	in := [][]string{{mail.Held}, {mail.Held}, {mail.Held, mail.Queued, mail.Leased}, {mail.Dead, mail.Expired}}[what]
	got, err := acts[what]()
	var todo []*mDelivery
	for _, d := range x.to {
		if slices.Contains(in, d.state) && !d.released && !d.again && (what < 3 || (!d.to.gone && !x.bodyGone)) {
			todo = append(todo, d)
		}
	}
	want := ""
	if len(todo) == 0 {
		want = mail.UnknownMessage
	}
	if what == 3 {
		for _, d := range todo {
			if n, bytes := d.to.opened(); n >= int64(w.m.limits.MailboxMessages) || bytes+int64(len(x.body)) > w.m.limits.MailboxBytes {
				want = mail.MailboxFull
			}
		}
	}
	if w.refused(err, want) {
		return
	}
	same(w.t, "settled", len(got), len(todo))
	again := &mMessage{body: x.body, thread: x.thread, from: x.from, sent: w.m.now, ttl: x.ttl}
	if x.thread == x.id {
		again.thread = got[0].NewID
	}
	slices.SortFunc(todo, func(a, b *mDelivery) int { return strings.Compare(a.to.id, b.to.id) })
	for _, d := range todo {
		switch what {
		case 0:
			w.m.letIn(d, "approved")
		case 1:
			w.m.end(d, mail.Refused, "refused", "")
		case 2:
			w.m.end(d, mail.Purged, "purged", "")
		case 3:
			d.again, again.id = true, got[0].NewID
			paused, inbound := d.to.paused, d.to.inbound
			d.to.paused, d.to.inbound = false, mail.InboundPolicy // a message of the operator is not held
			w.m.accept(again, d.to, false, "")
			d.to.paused, d.to.inbound = paused, inbound
		}
	}
	if what == 3 {
		w.m.messages = append(w.m.messages, again)
	}
}

func (w *world) unregister() {
	o := w.owner()
	w.logf("unregister %s %s", o.Principal, o.Session)
	got, err := w.b.Unregister(w.t.Context(), o, said)
	p, want := w.m.fence(o)
	if want == mail.NotRegistered {
		want = ""
	}
	if w.refused(err, want) {
		return
	}
	same(w.t, "released", got.Released, p != nil)
	if p != nil {
		same(w.t, "expired with it", got.Pending, w.m.release(p))
	}
}

// peer picks a peer that is not gone.
func (w *world) peer() (*mPeer, bool) {
	var all []*mPeer
	for _, p := range w.m.peers {
		if !p.gone {
			all = append(all, p)
		}
	}
	return pickOne(w.r, all)
}

func (w *world) pause() {
	p, ok := w.peer()
	if !ok {
		return
	}
	on := w.r.IntN(2) == 0
	w.logf("pause %s %v", p.name, on)
	must(w.t, w.b.Desk().Pause(w.t.Context(), p.id, on, said))
	if p.paused = on; on {
		return
	}
	held := slices.Clone(p.box)
	slices.SortFunc(held, func(a, b *mDelivery) int { return strings.Compare(a.msg.id, b.msg.id) })
	for _, d := range held {
		if d.state == mail.Held && d.reason == "paused" {
			w.m.letIn(d, "resumed")
		}
	}
}

func (w *world) transfer() {
	p, ok := w.peer()
	if !ok {
		return
	}
	to := w.owner().Principal
	w.logf("transfer %s to %s", p.name, to)
	got, err := w.b.Desk().Transfer(w.t.Context(), p.id, to, said)
	must(w.t, err)
	w.m.supersede(p)
	for _, n := range w.m.names {
		if n.peer == p {
			n.principal = to
		}
	}
	p.principal, p.sess, p.until = to, "", 0
	p.epoch++
	w.m.endLeases(p)
	same(w.t, "epoch", got.Epoch, p.epoch)
}

func (w *world) retire() {
	p, ok := w.peer()
	if !ok {
		return
	}
	w.logf("retire %s", p.name)
	got, err := w.b.Desk().Retire(w.t.Context(), p.id, said)
	must(w.t, err)
	same(w.t, "expired with it", got.Pending, w.m.release(p))
}

func (w *world) end() {
	o := w.owner()
	w.logf("end %s", o.Session)
	must(w.t, w.b.End(w.t.Context(), []string{o.Session}))
	if p := w.m.owned(o); p != nil {
		p.until = 0
	}
}

func (w *world) status() {
	o := w.owner()
	x, ok := w.message()
	if !ok {
		return
	}
	if mine := w.m.owned(o); mine != nil && x.from != mine && w.r.IntN(3) > 0 {
		for _, y := range w.m.messages {
			if y.from == mine {
				x = y
			}
		}
	}
	w.logf("status %s %s", o.Session, x.id)
	got, err := w.b.Status(w.t.Context(), o, x.id)
	p, want := w.m.me(o)
	kept := slices.ContainsFunc(x.to, func(d *mDelivery) bool { return !d.released })
	if want == "" && (x.from != p || !kept) {
		want = mail.UnknownMessage
	}
	if w.refused(err, want) {
		return
	}
	for _, d := range got {
		if !slices.ContainsFunc(x.to, func(m *mDelivery) bool { return m.state == d.State && m.attempts == d.Attempts && m.note == d.Note }) {
			w.t.Fatalf("status %+v is not in the model", d)
		}
	}
}

func (w *world) look() {
	o := w.owner()
	w.logf("look %s", o.Session)
	_, c, pointers, err := w.b.Look(w.t.Context(), o)
	p, want := w.m.me(o)
	if w.refused(err, want) {
		return
	}
	w.counts(p, c)
	same(w.t, "pointers", int64(len(pointers)), p.counts[mail.Queued])
	w.receipts[p] = append(w.receipts[p], mReceipt{c.Receipt, w.m.newest(p), nil})
}
