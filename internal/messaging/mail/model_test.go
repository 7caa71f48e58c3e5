package mail_test

import (
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// The model is a simple book in memory with the expected outcome of each act. It follows the
// rules and shares no statement with the book under test.

// small are the limits of the model: everything fills up soon.
var small = mail.Limits{MailboxMessages: 6, MailboxBytes: 400, SenderMessages: 3, Attempts: 3}

const (
	leaseTime     = 120_000
	holdTime      = 3_600_000
	sessionTime   = 90_000
	day           = 24 * 3_600_000
	keyTime       = 7 * day
	aliasTime     = day
	tombTime      = 30 * day
	rowTime       = 7 * day
	bodyTime      = day
	confirmedTime = 7 * day
	repeatTime    = 30_000
)

type mPeer struct {
	id, name        string
	principal, sess string
	epoch           int64
	until, seen     int64
	gone, forgotten bool
	inbound         string
	paused          bool
	last            int64
	box             []*mDelivery // rows that are kept, in any state
	counts          map[string]int64
	accepted        int64
	covered         int64 // a mark: the model's own number of a notice
}

func (p *mPeer) live(now int64) bool { return p.until > now }

type mDelivery struct {
	msg             *mMessage
	to              *mPeer
	state           string
	seq             int64
	attempts        int
	expires, lease  int64 // lease: end of a lease or of a hold
	changed         int64
	epoch           int64 // in which it was given; 0: never
	cut, given      bool
	reason, note    string
	mark            int64 // of its notice; 0: none
	noticed         string
	again, released bool
}

func (d *mDelivery) open() bool {
	return d.state == mail.Held || d.state == mail.Queued || d.state == mail.Leased
}

// textTime is how long the text is kept after the end of a delivery.
func (d *mDelivery) textTime() int64 {
	if d.state == mail.Acked {
		return confirmedTime
	}
	return bodyTime
}

type mMessage struct {
	id, body, thread string
	from             *mPeer
	sent, ttl        int64
	to               []*mDelivery
	bodyGone         bool
}

type mName struct {
	kind, principal string
	peer            *mPeer
	until           int64
}

type mSession struct {
	peer       *mPeer
	superseded bool
	changed    int64
}

type mKey struct {
	print string
	sent  *mail.Sent
	until int64
}

type model struct {
	now      int64
	evict    bool
	limits   mail.Limits
	peers    []*mPeer
	names    map[string]*mName
	sessions map[string]*mSession // principal, session
	messages []*mMessage
	keys     map[string]*mKey
	total    int64 // accepted by all
	mark     int64
	tidied   int64
}

func newModel(l mail.Limits, evict bool) *model {
	return &model{now: 1, tidied: -day, limits: l, evict: evict, names: make(map[string]*mName), sessions: make(map[string]*mSession), keys: make(map[string]*mKey)}
}

func (m *model) owned(o mail.Owner) *mPeer {
	for _, p := range m.peers {
		if !p.gone && p.sess == o.Session && p.principal == o.Principal {
			return p
		}
	}
	return nil
}

// me is the peer of o, without the effects of a fence.
func (m *model) me(o mail.Owner) (*mPeer, string) {
	if p := m.owned(o); p != nil {
		return p, ""
	}
	if s := m.sessions[o.Principal+o.Session]; s != nil && s.superseded {
		return nil, mail.Fenced
	}
	return nil, mail.NotRegistered
}

func (m *model) fence(o mail.Owner) (*mPeer, string) {
	p, code := m.me(o)
	if p != nil {
		p.seen = m.now
		if p.until != 0 {
			p.until = max(p.until, m.now+sessionTime)
		}
	}
	return p, code
}

func (m *model) free(n *mName, principal string, me *mPeer) bool {
	return n == nil || (n.kind != "peer" && n.until <= m.now) || (n.kind == "tombstone" && n.principal == principal) ||
		(me != nil && n.kind == "alias" && n.peer == me)
}

// register returns the peer and whether it was created or taken over, or the code of the
// refusal.
func (m *model) register(o mail.Owner, name string) (p *mPeer, created, takeover bool, code string) {
	key := o.Principal + o.Session
	session := m.sessions[key]
	p = m.owned(o)
	n := m.names[name]
	taken := mail.NameInUse
	if n != nil && n.principal != o.Principal {
		taken = mail.NameOwned
	}
	switch {
	case p != nil && name != p.name && !m.free(n, o.Principal, p):
		return nil, false, false, taken
	case p != nil:
		if name != p.name {
			m.names[p.name] = &mName{"alias", p.principal, p, m.now + aliasTime}
			m.names[name] = &mName{"peer", p.principal, p, 0}
			p.name = name
		}
	case m.free(n, o.Principal, nil):
		p = &mPeer{name: name, principal: o.Principal, sess: o.Session, epoch: 1, inbound: mail.InboundPolicy, counts: make(map[string]int64)}
		m.peers = append(m.peers, p)
		m.names[name] = &mName{"peer", o.Principal, p, 0}
		created = true
	case n.kind == "peer" && n.principal == o.Principal && !n.peer.live(m.now):
		p, takeover = n.peer, true
		m.supersede(p)
		p.sess = o.Session
		p.epoch++
		m.endLeases(p)
	default:
		return nil, false, false, taken
	}
	if session == nil {
		session = &mSession{}
		m.sessions[key] = session
	}
	session.peer, session.superseded, session.changed = p, false, m.now
	p.until, p.seen = m.now+sessionTime, m.now
	return p, created, takeover, ""
}

// registers is register, also for the peer of a former session of o's principal.
func (m *model) registers(o mail.Owner, r mail.Registration) (p *mPeer, created, takeover bool, code string) {
	if r.Former == "" {
		return m.register(o, r.Name)
	}
	p = m.owned(o)
	if p == nil {
		p = m.owned(mail.Owner{Principal: o.Principal, Session: r.Former})
	}
	if p != nil {
		return m.register(o, p.name)
	}
	if s := m.sessions[o.Principal+r.Former]; s != nil && s.superseded {
		return nil, false, false, mail.Fenced
	}
	return nil, false, false, mail.NotRegistered
}

func (m *model) supersede(p *mPeer) {
	if s := m.sessions[p.principal+p.sess]; s != nil && p.sess != "" {
		s.superseded, s.changed = true, m.now
	}
}

func (m *model) endLeases(p *mPeer) {
	for _, d := range p.box {
		if d.state == mail.Leased {
			m.endLease(d)
		}
	}
}

func (m *model) endLease(d *mDelivery) {
	if d.attempts >= m.limits.Attempts {
		m.end(d, mail.Dead, "attempts", "")
		return
	}
	m.move(d, mail.Queued)
}

func (m *model) move(d *mDelivery, state string) {
	d.to.counts[d.state]--
	d.to.counts[state]++
	d.state, d.changed = state, m.now
}

// end brings a delivery to a final state, and makes a notice for its sender.
func (m *model) end(d *mDelivery, state, reason, note string) {
	m.move(d, state)
	d.reason, d.note = reason, note
	if state != mail.Acked || note != "" {
		m.notice(d, state)
	}
}

func (m *model) notice(d *mDelivery, state string) {
	m.mark++
	d.mark, d.noticed = m.mark, state
}

func (m *model) release(p *mPeer) int {
	n := 0
	for _, d := range p.box {
		if d.open() {
			m.end(d, mail.Expired, "released", "")
			n++
		}
	}
	if s := m.sessions[p.principal+p.sess]; s != nil && s.peer == p && p.sess != "" {
		s.peer, s.changed = nil, m.now
	}
	m.names[p.name] = &mName{"tombstone", p.principal, p, m.now + tombTime}
	p.gone, p.sess, p.until, p.seen = true, "", 0, m.now
	return n
}

func (p *mPeer) opened() (n, bytes int64) {
	for _, d := range p.box {
		if d.open() {
			n++
			bytes += int64(len(d.msg.body))
		}
	}
	return n, bytes
}

// refuses returns the code with which p refuses a message of from. When it is empty, p accepts
// the message after evicting the deliveries in room.
func (m *model) refuses(from, p *mPeer, principal, body string) (code string, room []*mDelivery) {
	if p.gone || p.principal != principal {
		return mail.UnknownRecipient, nil
	}
	if p.inbound == mail.InboundRefuse {
		return mail.RecipientRefuses, nil
	}
	fromHim := 0
	for _, d := range p.box {
		if d.msg.from != from {
			continue
		}
		if d.open() {
			fromHim++
		}
		if d.msg.body == body && !d.msg.bodyGone && d.msg.sent > m.now-repeatTime {
			return mail.DuplicateSuppressed, nil
		}
	}
	if fromHim >= m.limits.SenderMessages {
		return mail.SenderQuota, nil
	}
	n, bytes := p.opened()
	fits := func() bool {
		return n < int64(m.limits.MailboxMessages) && bytes+int64(len(body)) <= m.limits.MailboxBytes
	}
	if !fits() && m.evict {
		for _, d := range m.oldest(p, "") {
			if d.state == mail.Queued && !fits() {
				n--
				bytes -= int64(len(d.msg.body))
				room = append(room, d)
			}
		}
	}
	if !fits() {
		return mail.MailboxFull, nil
	}
	return "", room
}

// oldest returns the unacknowledged deliveries of a mailbox in their order.
func (m *model) oldest(p *mPeer, thread string) (out []*mDelivery) {
	for _, d := range p.box {
		if d.open() && d.state != mail.Held && (thread == "" || d.msg.thread == thread) {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b *mDelivery) int { return int(a.seq - b.seq) })
	return out
}

// accept enters a delivery.
func (m *model) accept(msg *mMessage, p *mPeer, hold bool, reason string) *mDelivery {
	d := &mDelivery{msg: msg, to: p, state: mail.Queued, expires: m.now + msg.ttl, changed: m.now}
	switch {
	case hold:
		d.state, d.reason = mail.Held, reason
	case p.paused:
		d.state, d.reason = mail.Held, "paused"
	case p.inbound == mail.InboundHold:
		d.state, d.reason = mail.Held, "inbound"
	}
	if d.state == mail.Held {
		d.lease = m.now + holdTime
	} else {
		p.last++
		d.seq = p.last
	}
	p.counts[d.state]++
	p.accepted++
	m.total++
	p.box = append(p.box, d)
	msg.to = append(msg.to, d)
	return d
}

func (m *model) letIn(d *mDelivery, reason string) {
	m.move(d, mail.Queued)
	d.to.last++
	d.seq, d.reason = d.to.last, reason
	m.notice(d, mail.Queued)
}

// pass advances the time and sweeps.
func (m *model) pass(d time.Duration) {
	m.now += d.Milliseconds()
	for _, p := range m.peers {
		for _, d := range slices.Clone(p.box) {
			switch {
			case d.open() && d.expires <= m.now:
				m.end(d, mail.Expired, "ttl", "")
			case d.state == mail.Held && d.lease <= m.now:
				m.end(d, mail.Expired, "hold", "")
			case d.state == mail.Leased && d.lease <= m.now:
				m.endLease(d)
			case !d.open() && d.changed+rowTime <= m.now:
				p.box = slices.DeleteFunc(p.box, func(x *mDelivery) bool { return x == d })
				d.released = true
			}
		}
	}
	for _, msg := range m.messages {
		gone := !slices.ContainsFunc(msg.to, func(d *mDelivery) bool { return d.open() || d.changed > m.now-d.textTime() })
		msg.bodyGone = msg.bodyGone || gone
	}
	if m.now-m.tidied >= 60_000 {
		m.tidied = m.now
		m.tidy()
	}
	for key, s := range m.sessions {
		if s.changed <= m.now-rowTime && (s.superseded || s.peer == nil) {
			delete(m.sessions, key)
		}
	}
}

func (m *model) tidy() {
	for _, p := range m.peers {
		if n, _ := p.opened(); !p.gone && !p.live(m.now) && p.seen <= m.now-rowTime && n == 0 {
			m.release(p)
		}
	}
	for name, n := range m.names {
		if n.kind != "peer" && n.until <= m.now {
			delete(m.names, name)
		}
	}
	for key, k := range m.keys {
		if k.until <= m.now {
			delete(m.keys, key)
		}
	}
	for _, p := range m.peers {
		if p.gone && p.seen <= m.now-rowTime && len(p.box) == 0 {
			p.forgotten = true
		}
	}
}

// newest is the mark of the latest notice that a sender can see.
func (m *model) newest(p *mPeer) int64 {
	mark := p.covered
	for _, msg := range m.messages {
		for _, d := range msg.to {
			if msg.from == p && !d.released {
				mark = max(mark, d.mark)
			}
		}
	}
	return mark
}

// outstanding returns the notices that a sender has not covered, as texts.
func (m *model) outstanding(p *mPeer) (out []string) {
	for _, msg := range m.messages {
		if msg.from != p {
			continue
		}
		for _, d := range msg.to {
			if d.mark > p.covered && !d.released {
				out = append(out, strings.Join([]string{msg.id, d.noticed, d.note}, " "))
			}
		}
	}
	slices.Sort(out)
	return out
}
