package mail_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// recalledDraft is a draft to the address as far as the book recalls it; it resolves the
// address first.
func (a *agent) recalledDraft(body, address string) mail.Draft {
	a.b.t.Helper()
	_, _, err := a.b.Resolve(a.b.t.Context(), a.Owner, []string{address})
	must(a.b.t, err)
	me, found, ok := a.b.Known.Recall(a.Owner, []string{address})
	if !ok {
		a.b.t.Fatalf("%s is not recalled", address)
	}
	to := mail.Recipient{To: address, PeerID: found[0].ID, Principal: found[0].Principal, As: &found[0]}
	return mail.Draft{Body: body, To: []mail.Recipient{to}, From: &me}
}

// A change of the sender or of the recipient, made by this or another daemon after they were
// recalled, is noticed by the send, which then does nothing.
func TestASendToPeersThatHaveChangedDoesNothing(t *testing.T) {
	changes := map[string]func(t *testing.T, by *mail.Book, b *bed, planner, tester *agent){
		"the recipient has another name": func(t *testing.T, by *mail.Book, b *bed, planner, tester *agent) {
			_, err := by.Register(t.Context(), tester.Owner, mail.Registration{Name: "checker"}, nil, said)
			must(t, err)
		},
		"the recipient is in another namespace": func(t *testing.T, by *mail.Book, b *bed, planner, tester *agent) {
			_, err := by.Register(t.Context(), tester.Owner, mail.Registration{Namespace: "elsewhere"}, nil, said)
			must(t, err)
		},
		"another peer has the recipient's name": func(t *testing.T, by *mail.Book, b *bed, planner, tester *agent) {
			_, err := by.Unregister(t.Context(), tester.Owner, said)
			must(t, err)
			_, err = by.Register(t.Context(), owner("uid:1000", "s-new"), mail.Registration{Name: "tester"}, nil, said)
			must(t, err)
		},
		"another principal has the recipient": func(t *testing.T, by *mail.Book, b *bed, planner, tester *agent) {
			_, err := by.Desk().Transfer(t.Context(), tester.Peer.ID, mail.Qualify("here", "uid:1001"), said)
			must(t, err)
		},
		"the sender has another name": func(t *testing.T, by *mail.Book, b *bed, planner, tester *agent) {
			_, err := by.Register(t.Context(), planner.Owner, mail.Registration{Name: "writer"}, nil, said)
			must(t, err)
		},
		"the sender is in another namespace": func(t *testing.T, by *mail.Book, b *bed, planner, tester *agent) {
			_, err := by.Register(t.Context(), planner.Owner, mail.Registration{Namespace: "elsewhere"}, nil, said)
			must(t, err)
		},
		"the sender has no name": func(t *testing.T, by *mail.Book, b *bed, planner, tester *agent) {
			_, err := by.Unregister(t.Context(), planner.Owner, said)
			must(t, err)
		},
		"another session has the sender's name": func(t *testing.T, by *mail.Book, b *bed, planner, tester *agent) {
			must(t, by.End(t.Context(), []string{planner.Owner.Session}))
			if b.dsn != "" { // only its own node ends a session
				must(t, b.End(t.Context(), []string{planner.Owner.Session}))
			}
			_, err := by.Register(t.Context(), owner("uid:1000", "s-next"), mail.Registration{Name: "planner"}, nil, said)
			must(t, err)
		},
		"the sender has another peer": func(t *testing.T, by *mail.Book, b *bed, planner, tester *agent) {
			_, err := by.Unregister(t.Context(), planner.Owner, said)
			must(t, err)
			_, err = by.Register(t.Context(), planner.Owner, mail.Registration{Name: "planner"}, nil, said)
			must(t, err)
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
				all := books(t, b)
				planner, tester := b.join("planner"), b.join("tester")
				planner.send(planner.recalledDraft("before", "tester"))
				d := planner.recalledDraft("after", "tester")
				change(t, all[len(all)-1], b, planner, tester)
				if _, err := planner.try(d); !errors.Is(err, mail.ErrChanged) && code(err) != mail.UnknownRecipient {
					t.Fatalf("the send ended with %v", err)
				}
				same(t, "messages", b.count(`SELECT count(*) FROM messages`), 1)
				same(t, "deliveries", b.count(`SELECT count(*) FROM deliveries`), 1)
				b.sound()
			})
		})
	}
}

// A change of its mailbox that a recipient or the operator has made since then is applied.
func TestARecalledRecipientTakesMessagesAsItDoesNow(t *testing.T) {
	inbound := func(mode string) func(t *testing.T, by *mail.Book, tester *agent) {
		return func(t *testing.T, by *mail.Book, tester *agent) {
			_, err := by.Register(t.Context(), tester.Owner, mail.Registration{Inbound: mode, SetInbound: true}, nil, said)
			must(t, err)
		}
	}
	for name, c := range map[string]struct {
		change      func(t *testing.T, by *mail.Book, tester *agent)
		code, state string
	}{
		"holds":   {inbound(mail.InboundHold), "", mail.Held},
		"refuses": {inbound(mail.InboundRefuse), mail.RecipientRefuses, ""},
		"accepts": {inbound(mail.InboundAccept), "", mail.Queued},
		"is paused": {func(t *testing.T, by *mail.Book, tester *agent) {
			must(t, by.Desk().Pause(t.Context(), tester.Peer.ID, true, said))
		}, "", mail.Held},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
				all := books(t, b)
				planner, tester := b.join("planner"), b.join("tester")
				d := planner.recalledDraft("hello", "tester")
				c.change(t, all[len(all)-1], tester)
				sent, err := planner.try(d)
				refused(t, err, c.code)
				if c.state != "" {
					same(t, "state", sent.Deliveries[0].State, c.state)
				}
				b.sound()
			})
		})
	}
}

// Only agents are recalled that accept messages at once, by a name that is theirs or by id.
func TestWhatTheBookRecalls(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		me := b.join("me")
		near, far := b.join("near"), b.joinAs(owner("uid:1001", "far"), mail.Registration{Name: "far", Namespace: "elsewhere"})
		b.joinAs(owner("uid:1000", "h"), mail.Registration{Name: "holds", Inbound: mail.InboundHold, SetInbound: true})
		b.joinAs(owner("uid:1000", "r"), mail.Registration{Name: "refuses", Inbound: mail.InboundRefuse, SetInbound: true})
		paused, renamed := b.join("paused"), b.join("before")
		must(t, b.Desk().Pause(t.Context(), paused.Peer.ID, true, said))
		b.joinAs(renamed.Owner, mail.Registration{Name: "behind"})
		for address, want := range map[string]bool{"near": true, "near@default": true, near.Peer.ID: true, "far@elsewhere": true, far.Peer.ID: true,
			"me": true, "behind": true, "before": false, "far": false, "holds": false, "refuses": false, "paused": false, "nobody": false, "operator": false, "broker": false, b.OperatorID(): false} {
			_, resolved, err := b.Resolve(t.Context(), me.Owner, []string{address})
			must(t, err)
			_, found, ok := b.Known.Recall(me.Owner, []string{address})
			if ok != want || ok && (found[0].ID != resolved[0].ID || found[0].Lineage != resolved[0].Lineage) {
				t.Errorf("%s: recalled %v, want %v", address, ok, want)
			}
		}
		if _, _, ok := b.Known.Recall(me.Owner, []string{"n"}); ok {
			t.Error("a name is recalled that was never resolved")
		}
		if _, _, ok := b.Known.Recall(near.Owner, []string{"me"}); ok {
			t.Error("the peer of a session is recalled that never resolved")
		}
		_, err := b.Unregister(t.Context(), me.Owner, said)
		must(t, err)
		_, _, err = b.Resolve(t.Context(), me.Owner, []string{"near"})
		refused(t, err, mail.NotRegistered)
		if _, _, ok := b.Known.Recall(me.Owner, []string{"near"}); ok {
			t.Error("the peer of a session is recalled that has none")
		}
	})
}

// The number of peers that are recalled is bounded.
func TestTheBookRecallsABoundedNumberOfPeers(t *testing.T) {
	onSQLite(t, mail.Options{Limits: mail.Limits{Namespace: 2000}}, func(t *testing.T, b *bed) {
		me := b.join("me")
		addresses := make([]string, 1100)
		for i := range addresses {
			addresses[i] = b.join(fmt.Sprint("n", i)).Name
			_, _, err := b.Resolve(t.Context(), me.Owner, addresses[i:i+1])
			must(t, err)
		}
		n := 0
		for _, a := range addresses {
			if _, _, ok := b.Known.Recall(me.Owner, []string{a}); ok {
				n++
			}
		}
		if n < 1 || n > 1024 {
			t.Errorf("%d peers are recalled", n)
		}
	})
}

// A repeat with the key of an earlier send is decided about the recipients as they are now.
func TestARepeatIsNotAnsweredFromMemory(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner := b.join("planner")
		b.join("tester")
		d := planner.recalledDraft("once", "tester")
		d.Key, d.Fingerprint = "k", []byte("f")
		first := planner.send(d)
		_, err := planner.try(d)
		if !errors.Is(err, mail.ErrChanged) {
			t.Fatalf("the repeat ended with %v", err)
		}
		d.From, d.To[0].As = nil, nil
		again := planner.send(d)
		if !again.Replay || again.MessageID != first.MessageID {
			t.Errorf("%+v", again)
		}
	})
}
