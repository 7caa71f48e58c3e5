package mail_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// books returns the book of a bed and, on PostgreSQL, one of a second daemon on the same
// database.
func books(t *testing.T, b *bed) []*mail.Book {
	t.Helper()
	if b.dsn == "" {
		return []*mail.Book{b.Book}
	}
	return []*mail.Book{b.Book, openBed(t, mail.Options{Node: "there", Limits: b.limits}, &bed{dsn: b.dsn}).Book}
}

func TestOneOfSixtyFourSessionsWinsANameInARace(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		all := books(t, b)
		for round := range 4 {
			var won, lost, owned atomic.Int64
			var wg sync.WaitGroup
			start := make(chan struct{})
			for i := range 64 {
				wg.Go(func() {
					<-start
					o := owner(fmt.Sprint("uid:", i%2), fmt.Sprint("s", round, "-", i))
					_, err := all[i%len(all)].Register(t.Context(), o, mail.Registration{Name: fmt.Sprint("planner", round)}, nil, said)
					switch code(err) {
					case "":
						won.Add(1)
					case mail.NameInUse:
						lost.Add(1)
					case mail.NameOwned:
						owned.Add(1)
					default:
						t.Error(err)
					}
				})
			}
			close(start)
			wg.Wait()
			if won.Load() != 1 || lost.Load() != 31 || owned.Load() != 32 {
				t.Errorf("%d won, %d found the name in use and %d owned by another principal", won.Load(), lost.Load(), owned.Load())
			}
		}
		b.sound()
	})
}

// Simultaneous registrations of one session under sixteen names make one peer.
func TestOneSessionThatRegistersAtOnceHasOnePeer(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		all := books(t, b)
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				_, err := all[i%len(all)].Register(t.Context(), owner("uid:1000", "one"), mail.Registration{Name: fmt.Sprint("n", i)}, nil, said)
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		same(t, "peers", b.count(`SELECT count(*) FROM peers WHERE kind = 'agent'`), 1)
		b.sound()
	})
}

func TestANameIsTakenOverOnlyByItsPrincipal(t *testing.T) {
	t.Parallel()
	live := func(*bed) {}
	ended := func(b *bed) { must(b.t, b.End(b.t.Context(), []string{"s-planner"})) }
	stopped := func(b *bed) { b.exec(`UPDATE peers SET lease_until = 2 WHERE name = 'planner'`) }
	for _, c := range []struct {
		name      string
		before    func(*bed)
		principal string
		session   string
		dead      []string
		want      string
		epoch     int64
	}{
		{"the same session again", live, "uid:1000", "s-planner", nil, "", 1},
		{"the same session after its end", ended, "uid:1000", "s-planner", nil, "", 1},
		{"another session of the owner that lives", live, "uid:1000", "new", nil, mail.NameInUse, 0},
		{"another session of the owner that has ended", ended, "uid:1000", "new", nil, "", 2},
		{"another session of the owner with an ended lease", stopped, "uid:1000", "new", nil, "", 2},
		{"another session that knows the owner's to be dead", live, "uid:1000", "new", []string{"s-planner"}, "", 2},
		{"another principal, the owner lives", live, "uid:1001", "new", nil, mail.NameOwned, 0},
		{"another principal, the owner has ended", ended, "uid:1001", "new", nil, mail.NameOwned, 0},
		{"another principal with the owner's session", live, "uid:1001", "s-planner", nil, mail.NameOwned, 0},
		{"the same uid of another node", ended, "there", "new", nil, mail.NameOwned, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
				planner, tester := b.join("planner"), b.join("tester")
				tester.send(draft("one", planner))
				planner.inbox(mail.Fetch{Max: 1})
				tester.send(draft("two", planner))
				c.before(b)
				o := owner(c.principal, c.session)
				if c.principal == "there" {
					o.Principal = mail.Qualify("there", "uid:1000")
				}
				got, err := b.Register(t.Context(), o, mail.Registration{Name: "planner"}, c.dead, said)
				refused(t, err, c.want)
				if c.want == mail.NameInUse {
					var e *mail.Error
					if errors.As(err, &e); e.Retry <= 0 || e.Retry > 90*time.Second {
						t.Errorf("retry after %s", e.Retry)
					}
				}
				if c.want != "" {
					return
				}
				same(t, "peer", got.Peer.ID, planner.Peer.ID)
				same(t, "epoch", got.Peer.Epoch, c.epoch)
				same(t, "pending", got.Counts.Pending, 2)
				if c.epoch == 1 {
					return
				}
				same(t, "takeover", *got.Takeover, mail.Takeover{PrevEpoch: 1, Inherited: 2})
				_, err = planner.try(draft("late", tester))
				refused(t, err, mail.Fenced)
				_, err = b.Inbox(t.Context(), planner.Owner, mail.Fetch{}, said)
				refused(t, err, mail.Fenced)
				heir := &agent{o, got.Peer, b}
				equal(t, "what the heir reads", bodies(heir.inbox(mail.Fetch{})), "one", "two")
				b.sound()
			})
		})
	}
}

func TestRegisterChecksTheName(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		for name, want := range map[string]string{
			"a": "", "a.b_c-9": "", strings.Repeat("a", 63): "", strings.Repeat("a", 64): mail.NameInvalid,
			"Planner": mail.NameInvalid, "-a": mail.NameInvalid, ".": mail.NameInvalid, "a b": mail.NameInvalid, "a/b": mail.NameInvalid,
			"a@b": mail.NameInvalid, "plаnner": mail.NameInvalid, "a\u200b": mail.NameInvalid, "a\n": mail.NameInvalid,
			"operator": mail.NameReserved, "broker": mail.NameReserved, "doorward": mail.NameReserved, "system": mail.NameReserved,
			"human": mail.NameReserved, "user": mail.NameReserved, "admin": mail.NameReserved, "root": mail.NameReserved, "all": mail.NameReserved,
		} {
			_, err := b.Register(t.Context(), owner("uid:1000", "s"+name), mail.Registration{Name: name}, nil, said)
			if code(err) != want {
				t.Errorf("%q: got %q, want %q", name, code(err), want)
			}
		}
		_, err := b.Register(t.Context(), owner("uid:1000", "x"), mail.Registration{Name: "x", Namespace: "A"}, nil, said)
		refused(t, err, mail.NameInvalid)
		b.sound()
	})
}

func TestASessionWithoutANameGetsOne(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		one := b.joinAs(owner("uid:1000", "one"), mail.Registration{})
		two := b.joinAs(owner("uid:1000", "two"), mail.Registration{})
		if one.Name == two.Name || !strings.HasPrefix(one.Name, "agent-") || one.Namespace != mail.DefaultNamespace {
			t.Errorf("names %q and %q in %q", one.Name, two.Name, one.Namespace)
		}
		again := b.joinAs(owner("uid:1000", "one"), mail.Registration{SetSummary: true, Summary: "plans"})
		if again.Name != one.Name || again.Summary != "plans" || again.Peer.ID != one.Peer.ID {
			t.Errorf("the second registration gave %+v", again.Peer)
		}
	})
}

func TestAFormerNameStaysAnAlias(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		tester := b.join("tester")
		planner := b.join("planner")
		got, err := b.Register(t.Context(), planner.Owner, mail.Registration{Name: "boss"}, nil, said)
		must(t, err)
		same(t, "renamed", got.Renamed, "planner")
		same(t, "peer", got.Peer.ID, planner.Peer.ID)
		found := func(name string) mail.Peer {
			_, all, err := b.Resolve(t.Context(), tester.Owner, []string{name})
			must(t, err)
			return all[0]
		}
		same(t, "alias", found("planner").Name, "boss")
		_, err = b.Register(t.Context(), owner("uid:1000", "x"), mail.Registration{Name: "planner"}, nil, said)
		refused(t, err, mail.NameInUse)
		_, err = b.Register(t.Context(), owner("uid:1001", "y"), mail.Registration{Name: "planner"}, nil, said)
		refused(t, err, mail.NameOwned)
		must(t, b.End(t.Context(), []string{planner.Owner.Session}))
		_, err = b.Register(t.Context(), owner("uid:1000", "x"), mail.Registration{Name: "planner"}, nil, said)
		refused(t, err, mail.NameInUse) // an alias cannot be claimed, even if the session of its peer has ended
		b.sound()
		b.pass(24*time.Hour + time.Second)
		same(t, "alias a day later", found("planner").Name, "")
		b.joinAs(owner("uid:1001", "y"), mail.Registration{Name: "planner"})
		b.sound()
	})
}

func TestAnAgentMayGoBackToItsFormerName(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		o := b.join("one").Owner
		for _, name := range []string{"two", "one", "two", "three", "one"} {
			same(t, "name", b.joinAs(o, mail.Registration{Name: name}).Name, name)
		}
		b.sound()
	})
}

func TestRenamingIsNoWayToHoardNames(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		o := b.join("n").Owner
		for i := range 16 {
			b.joinAs(o, mail.Registration{Name: fmt.Sprint("n", i)})
		}
		_, err := b.Register(t.Context(), o, mail.Registration{Name: "one-more"}, nil, said)
		refused(t, err, mail.PeerLimit)
	})
}

func TestAReleasedNameIsForItsPrincipalAlone(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		sent := tester.send(draft("you never read this", planner))
		got, err := b.Unregister(t.Context(), planner.Owner, said)
		must(t, err)
		same(t, "released", got.Released, true)
		same(t, "expired with it", got.Pending, 1)
		same(t, "state", tester.state(sent.MessageID), mail.Expired)
		same(t, "notices", len(tester.inbox(mail.Fetch{}).Counts.Notices), 1)
		_, err = tester.try(draft("to a stale id", planner))
		refused(t, err, mail.UnknownRecipient)
		_, err = planner.try(draft("from nobody", tester))
		refused(t, err, mail.NotRegistered)
		_, err = b.Register(t.Context(), owner("uid:1001", "x"), mail.Registration{Name: "planner"}, nil, said)
		refused(t, err, mail.NameOwned)
		again := b.join("planner")
		if again.Peer.ID == planner.Peer.ID || again.Epoch != 1 {
			t.Errorf("the tombstone gave %+v", again.Peer)
		}
		same(t, "pending", again.inbox(mail.Fetch{}).Counts.Pending, 0)
		_, err = b.Unregister(t.Context(), again.Owner, said)
		must(t, err)
		got, err = b.Unregister(t.Context(), again.Owner, said)
		must(t, err)
		same(t, "released twice", got.Released, false)
		b.pass(30*24*time.Hour + time.Second)
		b.joinAs(owner("uid:1001", "x"), mail.Registration{Name: "planner"})
		b.sound()
	})
}

func TestThePeersOfANamespaceAreBounded(t *testing.T) {
	onBoth(t, mail.Options{Limits: mail.Limits{Namespace: 3}}, func(t *testing.T, b *bed) {
		first := b.join("a")
		b.join("b")
		b.join("c")
		_, err := b.Register(t.Context(), owner("uid:1000", "s-d"), mail.Registration{Name: "d"}, nil, said)
		refused(t, err, mail.PeerLimit)
		b.joinAs(owner("uid:1000", "s-e"), mail.Registration{Name: "e", Namespace: "elsewhere"})
		b.joinAs(first.Owner, mail.Registration{Name: "a", Namespace: "elsewhere"})
		b.join("d")
		b.sound()
	})
}

func TestASessionOfAnEarlierRunIsDead(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		b.join("planner")
		other := b.join("tester")
		again, err := mail.Open(t.Context(), b.db, mail.Options{Node: "here", Upkeep: said[mail.Upkeep]})
		must(t, err)
		got, err := again.Register(t.Context(), owner("uid:1000", "new"), mail.Registration{Name: "planner"}, nil, said)
		must(t, err)
		same(t, "epoch", got.Peer.Epoch, 2)
		// A session that still exists is alive again with its next act.
		_, err = again.Send(t.Context(), other.Owner, mail.Draft{Body: "I am here", To: []mail.Recipient{other.to()}}, said)
		must(t, err)
		_, err = again.Register(t.Context(), owner("uid:1000", "newer"), mail.Registration{Name: "tester"}, nil, said)
		refused(t, err, mail.NameInUse)
		_, err = mail.Open(t.Context(), b.db, mail.Options{Node: "there", Upkeep: said[mail.Upkeep]})
		must(t, err)
		_, err = again.Register(t.Context(), owner("uid:1000", "newer"), mail.Registration{Name: "tester"}, nil, said)
		refused(t, err, mail.NameInUse) // the start of another node does not end sessions of this one
	})
}

func TestAnEndedSessionIsNotRevivedByALaterCall(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner := b.join("planner")
		must(t, b.End(t.Context(), []string{planner.Owner.Session}))
		planner.send(draft("on my way out", planner))
		must(t, b.Touch(t.Context(), []string{planner.Owner.Session}))
		same(t, "epoch", b.joinAs(owner("uid:1000", "new"), mail.Registration{Name: "planner"}).Epoch, 2)
	})
}

func TestASignOfLifeKeepsAName(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner := b.join("planner")
		for range 5 {
			b.pass(60 * time.Second)
			must(t, b.Touch(t.Context(), []string{"unknown", planner.Owner.Session}))
		}
		_, err := b.Register(t.Context(), owner("uid:1000", "new"), mail.Registration{Name: "planner"}, nil, said)
		refused(t, err, mail.NameInUse)
		b.pass(91 * time.Second)
		b.joinAs(owner("uid:1000", "new"), mail.Registration{Name: "planner"})
	})
}

func TestATransferredNameTakesItsMailAlong(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner, tester := b.join("planner"), b.join("tester")
		tester.send(draft("for whoever plans", planner))
		planner.inbox(mail.Fetch{})
		got, err := b.Desk().Transfer(t.Context(), planner.Peer.ID, mail.Qualify("here", "uid:1001"), said)
		must(t, err)
		same(t, "epoch", got.Epoch, 2)
		_, err = planner.try(draft("it was mine", tester))
		refused(t, err, mail.Fenced)
		_, err = tester.try(draft("to whom I knew", planner))
		refused(t, err, mail.UnknownRecipient)
		_, err = b.Register(t.Context(), owner("uid:1000", "x"), mail.Registration{Name: "planner"}, nil, said)
		refused(t, err, mail.NameOwned)
		heir := b.joinAs(owner("uid:1001", "y"), mail.Registration{Name: "planner"})
		same(t, "peer", heir.Peer.ID, planner.Peer.ID)
		read := heir.inbox(mail.Fetch{})
		equal(t, "mail", bodies(read), "for whoever plans")
		same(t, "attempt", read.Messages[0].Attempt, 2)
		_, err = b.Desk().Transfer(t.Context(), "01ARZ3NDEKTSV4RRFFQ69G5FAV", "x", said)
		refused(t, err, mail.UnknownRecipient)
		b.sound()
	})
}

func TestProcessesOfAgentsAreKnownAfterUnregister(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner := b.join("planner")
		b.join("tester")
		sibling := planner.Owner
		sibling.Processes = []string{"boot/2@sibling"}
		b.joinAs(sibling, mail.Registration{})
		_, err := b.Unregister(t.Context(), planner.Owner, said)
		must(t, err)
		got, err := b.Agents(t.Context())
		must(t, err)
		slices.Sort(got)
		equal(t, "processes", got, "boot/1@s-planner", "boot/1@s-tester", "boot/2@sibling")
		other, err := mail.Open(t.Context(), b.db, mail.Options{Node: "there", Upkeep: said[mail.Upkeep]})
		must(t, err)
		if got, err = other.Agents(t.Context()); err != nil || len(got) != 0 {
			t.Errorf("on another node: %v, %v", got, err)
		}
	})
}

func TestAddresses(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		me := b.join("me")
		near := b.join("near")
		far := b.joinAs(owner("uid:1001", "far"), mail.Registration{Name: "far", Namespace: "elsewhere"})
		_, got, err := b.Resolve(t.Context(), me.Owner, []string{"near", "far", "far@elsewhere", far.Peer.ID, "operator", "broker", "nobody", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "near@default", "me"})
		must(t, err)
		var names []string
		for _, p := range got {
			names = append(names, p.Name+" "+p.Lineage)
		}
		equal(t, "found", names, "near unrelated", " ", "far unrelated", "far unrelated", "operator operator", " ", " ", " ", "near unrelated", "me self")
		list, err := b.Peers(t.Context(), me.Peer, "", "", 10)
		must(t, err)
		same(t, "peers", len(list), 3)
		list, err = b.Peers(t.Context(), me.Peer, "default", near.Peer.ID, 10)
		must(t, err)
		same(t, "peers behind the last", len(list), 0)
		list, err = b.Peers(t.Context(), mail.Peer{}, "", "", 10)
		must(t, err)
		same(t, "peers for the operator", len(list), 4)
		for _, address := range []string{"near", "far", "far@elsewhere", "operator", far.Peer.ID} {
			if p, err := b.Desk().Find(t.Context(), address); err != nil || p.Name == "" {
				t.Errorf("finding %s: %v", address, err)
			}
		}
	})
}

// The released names of a principal are reserved up to a bound. Beyond it any principal may
// take the oldest ones. The names of other principals do not count.
func TestReleasedNamesOfAPrincipalAreBounded(t *testing.T) {
	onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
		squat := func(who, name string) {
			o := owner(who, "s-"+who)
			_, err := b.Register(t.Context(), o, mail.Registration{Name: name}, nil, said)
			must(t, err)
			_, err = b.Unregister(t.Context(), o, said)
			must(t, err)
			b.pass(time.Second)
		}
		squat("uid:2000", "theirs")
		for i := range 258 {
			squat("uid:1000", fmt.Sprint("n", i))
		}
		same(t, "tombstones", b.count(`SELECT count(*) FROM peer_names WHERE kind = 'tombstone' AND principal LIKE '%uid:1000'`), int64(256))
		for name, want := range map[string]string{"n0": "", "n1": "", "n2": mail.NameOwned, "n257": mail.NameOwned, "theirs": ""} {
			_, err := b.Register(t.Context(), owner("uid:2000", "taker-"+name), mail.Registration{Name: name}, nil, said)
			if code(err) != want {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
		_, err := b.Register(t.Context(), owner("uid:1000", "x"), mail.Registration{Name: "theirs"}, nil, said)
		refused(t, err, mail.NameOwned)
		b.sound()
	})
}
