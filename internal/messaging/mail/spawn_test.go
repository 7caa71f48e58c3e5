package mail_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/messaging/mail"
)

func (a *agent) spawn(d mail.SpawnDraft) (*mail.Spawn, error) {
	if d.Launcher == "" {
		d.Launcher = "claude"
	}
	if d.MaxSeconds == 0 {
		d.MaxSeconds = 600
	}
	return a.b.BeginSpawn(a.b.t.Context(), a.Owner, d, said)
}

// start spawns an agent and lets it register.
func (a *agent) start(d mail.SpawnDraft) (*mail.Spawn, *agent) {
	a.b.t.Helper()
	s, err := a.spawn(d)
	must(a.b.t, err)
	must(a.b.t, a.b.SpawnRuns(a.b.t.Context(), s.ID, said))
	o := owner("spawn:"+s.ID, "s-"+s.ID)
	o.Spawn, o.Grade = s.ID, "verified"
	return s, a.b.joinAs(o, mail.Registration{})
}

func (b *bed) ends(id, state string) *mail.Spawn {
	b.t.Helper()
	code := 3
	got, err := b.EndSpawn(b.t.Context(), id, mail.SpawnEnd{State: state, ExitCode: &code, Output: "what it said"}, said)
	must(b.t, err)
	return got
}

func TestASpawnedAgentFromStartToEnd(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner := b.join("planner")
		s, child := planner.start(mail.SpawnDraft{Name: "tester", WantResult: true, MaxMessages: 5, Rights: []string{"tool:a/b"}})
		equal(t, "names", []string{s.Name, child.Name, child.Peer.Principal, s.State}, "planner/tester", "planner/tester", mail.Qualify("here", "spawn:"+s.ID), mail.Starting)
		same(t, "parent", strings.Join(child.Ancestors, " "), planner.Peer.ID)
		got := planner.inbox(mail.Fetch{})
		same(t, "events", len(got.Messages), 1)
		m := got.Messages[0]
		equal(t, "event", []string{m.Kind, m.From.Name, m.From.Lineage, m.Thread, m.Authority}, "event", "broker", mail.LineageBroker, s.ID, mail.AuthorityNone)

		planner.send(draft("do it", child))
		same(t, "lineage", child.inbox(mail.Fetch{}).Messages[0].From.Lineage, mail.LineageParent)
		child.send(draft("doing it", planner))
		got = planner.read(got)
		same(t, "lineage", got.Messages[0].From.Lineage, mail.LineageChild)

		now, err := b.SpawnOf(t.Context(), planner.Owner, s.ID)
		must(t, err)
		equal(t, "state", []string{now.State, fmt.Sprint(now.Messages), now.Rights[0]}, mail.Running, "1", "tool:a/b")
		open, err := b.OpenSpawns(t.Context())
		must(t, err)
		same(t, "open", len(open), 1)

		ended := b.ends(s.ID, mail.Exited)
		same(t, "exit code", *ended.ExitCode, 3)
		again := b.ends(s.ID, mail.Killed)
		same(t, "state after a second end", again.State, mail.Exited)
		got = planner.read(got)
		same(t, "event and result", len(got.Messages), 2)
		same(t, "result", got.Messages[1].ID, ended.ResultMessage)
		equal(t, "result", []string{got.Messages[1].Kind, got.Messages[1].Body}, "result", "what it said")
		_, err = child.try(draft("from the grave", planner))
		refused(t, err, mail.NotRegistered)
		_, err = planner.try(draft("into the grave", child))
		refused(t, err, mail.UnknownRecipient)
		open, err = b.OpenSpawns(t.Context())
		must(t, err)
		same(t, "open", len(open), 0)
		b.sound()
	})
}

func TestTheNameOfAChildIsForItsSpawnAlone(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner := b.join("planner")
		s, err := planner.spawn(mail.SpawnDraft{Name: "tester"})
		must(t, err)
		for _, spawn := range []string{"", "01ARZ3NDEKTSV4RRFFQ69G5FAV", s.ID} {
			o := owner("uid:1000", "thief")
			o.Spawn = spawn
			_, err := b.Register(t.Context(), o, mail.Registration{Name: "planner/tester"}, nil, said)
			refused(t, err, mail.NameInvalid)
			if spawn != "" {
				_, err = b.Register(t.Context(), o, mail.Registration{Name: "tester"}, nil, said)
				refused(t, err, mail.NameOwned)
			}
		}
		_, err = planner.spawn(mail.SpawnDraft{Name: "tester"})
		refused(t, err, mail.NameOwned)
		_, err = b.Desk().Transfer(t.Context(), s.Peer, mail.Qualify("here", "uid:1"), said)
		refused(t, err, mail.InvalidArgument)
		b.ends(s.ID, mail.Failed)

		// The same parent may use the name again; another peer under the
		// parent's name may not.
		s, err = planner.spawn(mail.SpawnDraft{Name: "tester"})
		must(t, err)
		b.ends(s.ID, mail.Failed)
		_, err = b.Unregister(t.Context(), planner.Owner, said)
		must(t, err)
		planner = b.join("planner")
		_, err = planner.spawn(mail.SpawnDraft{Name: "tester"})
		refused(t, err, mail.NameOwned)
		b.sound()
	})
}

func TestTheParentInheritsUnreadMessagesOfItsChild(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, other := b.join("planner"), b.join("other")
		s, child := planner.start(mail.SpawnDraft{Name: "tester"})
		after := planner.inbox(mail.Fetch{})
		mine := planner.send(draft("from the parent", child))
		leased := other.send(draft("given and not acknowledged", child))
		child.inbox(mail.Fetch{})
		queued := other.send(draft("queued", child))
		both := other.send(draft("to both", child, planner))
		hold := draft("held", child)
		hold.To[0].Hold = true
		held := other.send(hold)
		b.ends(s.ID, mail.Killed)
		equal(t, "the parent reads", bodies(planner.read(after)), "to both", "given and not acknowledged", "queued", "planner/tester has ended: killed, status 3. Spawn "+s.ID+".")
		same(t, "the parent's own", planner.state(mine.MessageID), mail.Expired)
		same(t, "the held one", other.state(held.MessageID), mail.Expired)
		for _, id := range []string{leased.MessageID, queued.MessageID} {
			all := other.status(id)
			same(t, "deliveries", len(all), 2)
			for _, d := range all {
				if d.State != mail.Leased && (d.State != mail.Expired || d.Reason != "inherited") {
					t.Errorf("delivery %+v", d)
				}
				same(t, "address", d.To, "planner/tester")
			}
		}
		same(t, "deliveries to both", len(other.status(both.MessageID)), 2)
		same(t, "notices", len(other.inbox(mail.Fetch{}).Counts.Notices), 4)
		b.sound()
	})
}

// Messages that a parent inherits obey its inbound wish and the room in its mailbox. Messages
// of the operator or with authority for the child are not inherited.
func TestInheritedMessagesObeyTheParent(t *testing.T) {
	onBoth(t, mail.Options{Limits: mail.Limits{MailboxMessages: 4}}, func(t *testing.T, b *bed) {
		other := b.join("other")
		for _, c := range []struct {
			inbound string
			want    []string
			held    int
		}{{mail.InboundPolicy, []string{"one", "two"}, 0}, {mail.InboundRefuse, nil, 0}, {mail.InboundHold, nil, 2}} {
			planner := b.joinAs(owner("uid:1000", c.inbound), mail.Registration{Name: "p-" + c.inbound, SetInbound: true, Inbound: c.inbound})
			s, child := planner.start(mail.SpawnDraft{})
			planner.read(planner.inbox(mail.Fetch{}))
			_, err := b.Desk().Send(t.Context(), draft("for the child alone", child), said)
			must(t, err)
			other.send(draft("one", child))
			other.send(draft("two", child))
			d := draft("delegated", child)
			d.To[0].Authority = mail.AuthorityDelegated
			other.send(d)
			b.ends(s.ID, mail.Exited)
			got := planner.inbox(mail.Fetch{})
			equal(t, c.inbound, bodies(got)[:len(got.Messages)-1], c.want...)
			same(t, "held", got.Counts.Held, c.held)
		}
		planner := b.join("full")
		s, child := planner.start(mail.SpawnDraft{})
		for i := range 2 {
			other.send(draft(fmt.Sprint("own", i), planner))
		}
		for i := range 3 {
			other.send(draft(fmt.Sprint("child", i), child))
		}
		b.ends(s.ID, mail.Exited)
		same(t, "in a mailbox with room for one, and the broker", planner.inbox(mail.Fetch{}).Counts.Pending, 5)
		b.sound()
	})
}

func TestSpawnsAreBounded(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		a, c := b.join("a"), b.join("c")
		var open []string
		for range 8 {
			s, err := a.spawn(mail.SpawnDraft{})
			must(t, err)
			open = append(open, s.ID)
		}
		_, err := a.spawn(mail.SpawnDraft{})
		refused(t, err, mail.ChildLimit)
		var won atomic.Int64
		var wg sync.WaitGroup
		for i := range 12 {
			p := c
			if i%2 == 0 {
				p = b.join(fmt.Sprint("d", i))
			}
			wg.Go(func() {
				if _, err := p.spawn(mail.SpawnDraft{}); err == nil {
					won.Add(1)
				} else if code(err) != mail.ChildLimit {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		same(t, "spawns beside the first eight", won.Load(), 8)
		b.ends(open[0], mail.Failed)
		_, err = a.spawn(mail.SpawnDraft{})
		must(t, err)
		_, err = a.spawn(mail.SpawnDraft{MaxSeconds: -1})
		refused(t, err, mail.InvalidArgument)
		b.sound()
	})
}

func TestAChildGetsNoMoreThanItsParentHasLeft(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		root := b.join("top")
		s1, one := root.start(mail.SpawnDraft{MaxSeconds: 100, MaxChildren: 2, MaxMessages: 3})
		s2, two := one.start(mail.SpawnDraft{MaxSeconds: 1000, MaxChildren: 4, MaxMessages: -1})
		if s2.ExpiresAt > s1.ExpiresAt || s2.MaxMessages != 3 || s2.MaxChildren != 1 || s2.Depth != 2 {
			t.Errorf("the grandchild got %+v", s2)
		}
		s3, three := two.start(mail.SpawnDraft{MaxChildren: 1, MaxMessages: 2})
		same(t, "depth", s3.Depth, 3)
		_, err := three.spawn(mail.SpawnDraft{})
		refused(t, err, mail.DepthLimit)
		_, err = one.spawn(mail.SpawnDraft{})
		refused(t, err, mail.Budget) // the grandchild's child counts as well
		lineage := func(of, to *agent) string {
			_, got, err := b.Resolve(t.Context(), to.Owner, []string{of.Peer.ID})
			must(t, err)
			return got[0].Lineage
		}
		equal(t, "lineage", []string{lineage(root, three), lineage(three, root), lineage(two, three), lineage(three, two), lineage(one, two)},
			mail.LineageAncestor, mail.LineageDescendant, mail.LineageParent, mail.LineageChild, mail.LineageParent)
		_, sister := root.start(mail.SpawnDraft{MaxMessages: 1})
		equal(t, "lineage", []string{lineage(sister, one), lineage(sister, two), lineage(root, sister)}, mail.LineageSibling, mail.LineageUnrelated, mail.LineageParent)

		three.send(draft("1", root))
		three.send(draft("2", root))
		_, err = three.try(draft("3", root))
		refused(t, err, mail.Budget)
		one.send(draft("3", root))
		_, err = two.try(draft("4", root))
		refused(t, err, mail.Budget) // the budget of its parent is spent
		b.sound()
	})
}

func TestASpawnIsBegunOnce(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner := b.join("planner")
		var wg sync.WaitGroup
		ids := make([]string, 10)
		for i := range ids {
			wg.Go(func() {
				s, err := planner.spawn(mail.SpawnDraft{Key: "k", Fingerprint: []byte("x")})
				if err != nil {
					t.Error(err)
					return
				}
				ids[i] = s.ID
			})
		}
		wg.Wait()
		for _, id := range ids {
			same(t, "spawn", id, ids[0])
		}
		b.ends(ids[0], mail.Exited)
		s, err := planner.spawn(mail.SpawnDraft{Key: "k", Fingerprint: []byte("x")})
		must(t, err)
		equal(t, "replay", []string{s.ID, s.State, fmt.Sprint(s.Replay)}, ids[0], mail.Exited, "true")
		_, err = planner.spawn(mail.SpawnDraft{Key: "k", Fingerprint: []byte("y")})
		refused(t, err, mail.IdempotencyConflict)
		b.sound()
	})
}

func TestTheBrokerIsHeardInAFullMailbox(t *testing.T) {
	onBoth(t, mail.Options{Limits: mail.Limits{MailboxMessages: 2, SenderMessages: 2}}, func(t *testing.T, b *bed) {
		planner := b.joinAs(owner("uid:1000", "p"), mail.Registration{Name: "planner", SetInbound: true, Inbound: mail.InboundAccept})
		s, err := planner.spawn(mail.SpawnDraft{WantResult: true})
		must(t, err)
		for i := range 2 {
			planner.send(draft(fmt.Sprint("full", i), planner))
		}
		b.joinAs(planner.Owner, mail.Registration{SetInbound: true, Inbound: mail.InboundRefuse})
		must(t, b.SpawnRuns(t.Context(), s.ID, said))
		b.ends(s.ID, mail.TimedOut)
		same(t, "pending", planner.inbox(mail.Fetch{}).Counts.Pending, 5)
		_, err = planner.spawn(mail.SpawnDraft{})
		refused(t, err, mail.ChildLimit) // the events of further spawns would not be bounded
		planner.read(planner.inbox(mail.Fetch{}))
		_, err = planner.spawn(mail.SpawnDraft{})
		must(t, err)
		b.sound()
	})
}

func TestAParentThatIsGoneIsToldNothing(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner := b.join("planner")
		s, _ := planner.start(mail.SpawnDraft{WantResult: true})
		_, err := b.Unregister(t.Context(), planner.Owner, said)
		must(t, err)
		got := b.ends(s.ID, mail.Killed)
		same(t, "result message", got.ResultMessage, "")
		must(t, b.SpawnRuns(t.Context(), s.ID, said))
		refused(t, b.SpawnRuns(t.Context(), "01ARZ3NDEKTSV4RRFFQ69G5FAV", said), mail.UnknownSpawn)
		b.sound()
	})
}

// The end of a spawn while its agent and another one send leaves a sound book. Each send is
// stored or refused.
func TestASpawnEndsWhileItsAgentWrites(t *testing.T) {
	onBoth(t, mail.Options{Limits: mail.Limits{MailboxMessages: 10000, SenderMessages: 10000}}, func(t *testing.T, b *bed) {
		planner, other := b.join("planner"), b.join("other")
		for round := range 5 {
			s, child := planner.start(mail.SpawnDraft{Name: "tester", MaxMessages: -1})
			var wg sync.WaitGroup
			for _, from := range []*agent{child, other} {
				wg.Go(func() {
					to := planner
					if from == other {
						to = child
					}
					for n := 0; ; n++ {
						if _, err := from.try(draft(fmt.Sprint(round, n), to)); err != nil {
							if c := code(err); c != mail.NotRegistered && c != mail.UnknownRecipient && c != mail.Budget {
								t.Error(err)
							}
							return
						}
					}
				})
			}
			b.ends(s.ID, mail.Killed)
			wg.Wait()
		}
		b.sound()
	})
}
