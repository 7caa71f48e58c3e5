package mail_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/test/doortest"
)

// The ways in which an act can lack its record.
const (
	fails = "the recorder fails"
	none  = "there is no recorder"
	empty = "the recorder makes nothing"
)

func noteOf[T any](way string) mail.Note[T] {
	switch way {
	case none:
		return nil
	case empty:
		return func(*T) any { return nil }
	}
	return said
}

// scene is a book in which each method of acts has something to change.
type scene struct {
	*bed
	planner, tester *agent
	waiting         *mail.Sent // given to tester
	held, dead      *mail.Sent
	starting        *mail.Spawn
	way             string
}

func newScene(t *testing.T) *scene {
	s := &scene{bed: sqliteBed(t, mail.Options{Limits: mail.Limits{Hold: 48 * time.Hour, TTL: 48 * time.Hour, FormerSessions: 1}})}
	for _, name := range []string{"passing", "passed"} {
		_, err := s.Unregister(t.Context(), s.join(name).Owner, said)
		must(t, err)
	}
	s.planner, s.tester = s.join("planner"), s.join("tester")
	d := draft("let me through", s.tester)
	d.To[0].Hold = true
	s.held = s.planner.send(d)
	d = draft("too late", s.tester)
	d.TTL = 1
	s.dead = s.planner.send(d)
	s.pass(2 * time.Second)
	s.sweep()
	s.waiting = s.planner.send(draft("read me", s.tester))
	s.tester.inbox(mail.Fetch{})
	_, err := s.Desk().Send(t.Context(), draft("from the human", s.planner), said)
	must(t, err)
	operator, err := s.Desk().Find(t.Context(), mail.Operator)
	must(t, err)
	s.planner.send(mail.Draft{Body: "to the human", To: []mail.Recipient{{To: mail.Operator, PeerID: operator.ID, Principal: operator.Principal}}})
	s.starting, err = s.planner.spawn(mail.SpawnDraft{Name: "child", Launcher: "l", MaxSeconds: 60})
	must(t, err)
	return s
}

// acts are the methods that change the book, each with a call that changes the scene.
var acts = map[string]func(s *scene) error{
	"Ack": func(s *scene) error {
		_, err := s.Ack(s.t.Context(), s.tester.Owner, []string{s.waiting.MessageID}, false, "", noteOf[mail.Confirmed](s.way))
		return err
	},
	"Desk.Approve": func(s *scene) error {
		_, err := s.Desk().Approve(s.t.Context(), s.held.MessageID, "", nil, noteOf[mail.Settled](s.way))
		return err
	},
	"BeginSpawn": func(s *scene) error {
		_, err := s.BeginSpawn(s.t.Context(), s.planner.Owner, mail.SpawnDraft{Launcher: "l", MaxSeconds: 60}, noteOf[mail.Spawn](s.way))
		return err
	},
	"End": func(s *scene) error { return s.End(s.t.Context(), []string{s.planner.Owner.Session}) },
	"EndSpawn": func(s *scene) error {
		_, err := s.EndSpawn(s.t.Context(), s.starting.ID, mail.SpawnEnd{State: mail.Killed}, noteOf[mail.Spawn](s.way))
		return err
	},
	"ForgetSessions": func(s *scene) error {
		return s.ForgetSessions(s.t.Context(), func(string) bool { return true })
	},
	"Desk.Fsck": func(s *scene) error {
		_, err := s.Desk().Fsck(s.t.Context(), true, noteOf[mail.Check](s.way))
		return err
	},
	"Inbox": func(s *scene) error {
		_, err := s.Inbox(s.t.Context(), s.planner.Owner, mail.Fetch{Quiet: true}, noteOf[mail.Batch](s.way))
		return err
	},
	"Desk.Inbox": func(s *scene) error {
		_, err := s.Desk().Inbox(s.t.Context(), true, noteOf[mail.Batch](s.way))
		return err
	},
	"Desk.Pause": func(s *scene) error {
		return s.Desk().Pause(s.t.Context(), s.tester.Peer.ID, true, noteOf[mail.Peer](s.way))
	},
	"Desk.Purge": func(s *scene) error {
		_, err := s.Desk().Purge(s.t.Context(), s.waiting.MessageID, noteOf[mail.Settled](s.way))
		return err
	},
	"Register": func(s *scene) error {
		_, err := s.Register(s.t.Context(), owner("uid:1000", "s-new"), mail.Registration{Name: "new"}, []string{s.planner.Owner.Session}, noteOf[mail.Registered](s.way))
		return err
	},
	"Desk.Reject": func(s *scene) error {
		_, err := s.Desk().Reject(s.t.Context(), s.held.MessageID, "", noteOf[mail.Settled](s.way))
		return err
	},
	"Desk.Requeue": func(s *scene) error {
		_, err := s.Desk().Requeue(s.t.Context(), s.dead.MessageID, noteOf[mail.Settled](s.way))
		return err
	},
	"Desk.Retire": func(s *scene) error {
		_, err := s.Desk().Retire(s.t.Context(), s.tester.Peer.ID, noteOf[mail.Released](s.way))
		return err
	},
	"Send": func(s *scene) error {
		_, err := s.Send(s.t.Context(), s.planner.Owner, draft("one more", s.tester), noteOf[mail.Sent](s.way))
		return err
	},
	"Desk.Send": func(s *scene) error {
		_, err := s.Desk().Send(s.t.Context(), draft("one more", s.tester), noteOf[mail.Sent](s.way))
		return err
	},
	"SpawnRuns": func(s *scene) error {
		return s.SpawnRuns(s.t.Context(), s.starting.ID, noteOf[mail.Spawn](s.way))
	},
	"Sweep": func(s *scene) error {
		s.pass(49 * time.Hour) // a lease is over, and messages have expired
		_, err := s.Sweep(s.t.Context())
		return err
	},
	"Desk.Transfer": func(s *scene) error {
		_, err := s.Desk().Transfer(s.t.Context(), s.tester.Peer.ID, mail.Qualify("here", "uid:1001"), noteOf[mail.Peer](s.way))
		return err
	},
	"Unregister": func(s *scene) error {
		_, err := s.Unregister(s.t.Context(), s.tester.Owner, noteOf[mail.Released](s.way))
		return err
	},
}

// readers are the methods that change nothing.
var readers = map[string]func(s *scene) error{
	"Agents":       func(s *scene) error { _, err := s.Agents(s.t.Context()); return err },
	"Desk.Changes": func(s *scene) error { _, _, err := s.Desk().Changes(s.t.Context(), "", 0, 10); return err },
	"Desk.Find":    func(s *scene) error { _, err := s.Desk().Find(s.t.Context(), "tester"); return err },
	"Desk.Holds":   func(s *scene) error { _, err := s.Desk().Holds(s.t.Context()); return err },
	"Look":         func(s *scene) error { _, _, _, err := s.Look(s.t.Context(), s.tester.Owner); return err },
	"Desk.Mailbox": func(s *scene) error { _, err := s.Desk().Mailbox(s.t.Context(), s.tester.Peer.ID, true); return err },
	"Me":           func(s *scene) error { _, err := s.Me(s.t.Context(), s.tester.Owner); return err },
	"OpenSpawns":   func(s *scene) error { _, err := s.OpenSpawns(s.t.Context()); return err },
	"OperatorID":   func(s *scene) error { _ = s.OperatorID(); return nil },
	"Peers":        func(s *scene) error { _, err := s.Peers(s.t.Context(), s.tester.Peer, "", "", 10); return err },
	"Read":         func(s *scene) error { _, _, _, err := s.Read(s.t.Context(), s.planner.Owner, mail.Query{}); return err },
	"Resolve": func(s *scene) error {
		_, _, err := s.Resolve(s.t.Context(), s.tester.Owner, []string{"planner"})
		return err
	},
	"SpawnOf":     func(s *scene) error { _, err := s.SpawnOf(s.t.Context(), s.planner.Owner, s.starting.ID); return err },
	"Status":      func(s *scene) error { _, err := s.Status(s.t.Context(), s.planner.Owner, s.held.MessageID); return err },
	"Desk.Totals": func(s *scene) error { _, err := s.Desk().Totals(s.t.Context()); return err },
	"Desk.Trace":  func(s *scene) error { _, _, err := s.Desk().Trace(s.t.Context(), s.held.MessageID); return err },
}

// signs are the methods that report a sign of life, which is not an act: they change only the
// times of peers.
var signs = map[string]func(s *scene) error{
	"Touch": func(s *scene) error { return s.Touch(s.t.Context(), []string{s.tester.Owner.Session}) },
}

// methods returns the methods of the book and of its desk.
func methods() map[string]reflect.Method {
	all := make(map[string]reflect.Method)
	book, desk := reflect.TypeFor[*mail.Book](), reflect.TypeFor[mail.Desk]()
	for i := range book.NumMethod() {
		all[book.Method(i).Name] = book.Method(i)
	}
	delete(all, "Desk") // returns the desk
	for i := range desk.NumMethod() {
		all["Desk."+desk.Method(i).Name] = desk.Method(i)
	}
	return all
}

// Every method of the book and of its desk is in exactly one of the tables acts, readers and
// signs.
func TestEveryMethodOfTheBookIsKnownToActOrToRead(t *testing.T) {
	t.Parallel()
	for name := range methods() {
		n := 0
		for _, table := range []map[string]func(*scene) error{acts, readers, signs} {
			if table[name] != nil {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s is in %d tables of this file, want one", name, n)
		}
	}
}

// A method of the book fails and leaves every row unchanged when its record cannot be made.
// With the record the same call succeeds and changes rows, so the test can fail.
func TestWithoutARecordNoMethodChangesTheBook(t *testing.T) {
	t.Parallel()
	for name, act := range acts {
		method, known := methods()[name]
		if !known {
			t.Fatalf("there is no method %s", name)
		}
		ways := []string{fails}
		if strings.Contains(method.Type.In(method.Type.NumIn()-1).String(), "Note") {
			ways = append(ways, none, empty)
		}
		for _, way := range ways {
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				s := newScene(t)
				if name == "Desk.Fsck" {
					s.exec(`UPDATE mailboxes SET queued = queued + 1`)
				}
				before := s.rows()
				s.way = way
				s.broken.Store(way == fails)
				refused(t, act(s), mail.AuditUnavailable)
				if after := s.rows(); after != before {
					t.Fatalf("the book has changed:\n%s", doortest.FirstDifference(before, after))
				}
				s.way = ""
				s.broken.Store(false)
				must(t, act(s))
				if s.rows() == before {
					t.Fatal("with a record nothing is done either: the call tests nothing")
				}
			})
		}
	}
}

func TestReadersChangeNothing(t *testing.T) {
	t.Parallel()
	for name, read := range readers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.broken.Store(true)
			before := s.rows()
			must(t, read(s))
			if after := s.rows(); after != before {
				t.Fatalf("the book has changed:\n%s", doortest.FirstDifference(before, after))
			}
		})
	}
}

func TestASignOfLifeMovesTimesAlone(t *testing.T) {
	t.Parallel()
	for name, sign := range signs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.pass(time.Minute)
			before, times := s.rows("lease_until", "last_seen"), s.rows()
			must(t, sign(s))
			if after := s.rows("lease_until", "last_seen"); after != before {
				t.Fatalf("more has changed:\n%s", doortest.FirstDifference(before, after))
			}
			if s.rows() == times {
				t.Fatal("nothing has changed: the call tests nothing")
			}
		})
	}
}

func TestABookNeedsARecorderOfItsUpkeep(t *testing.T) {
	t.Parallel()
	b := sqliteBed(t, mail.Options{})
	if _, err := mail.Open(t.Context(), b.db, mail.Options{Node: "here"}); err == nil || !strings.Contains(err.Error(), "recorder") {
		t.Errorf("without one: %v", err)
	}
}

// rows returns the contents of the database without the named columns.
func (b *bed) rows(but ...string) (all string) {
	b.t.Helper()
	must(b.t, b.db.Read(b.t.Context(), func(tx *store.Tx) error {
		all = doortest.Rows(func(query string) []string { return texts(b.t, tx, query) }, but...)
		return nil
	}))
	return all
}

func texts(t *testing.T, tx *store.Tx, query string) (out []string) {
	t.Helper()
	must(t, tx.Each(func(scan func(...any) error) error {
		var s string
		err := scan(&s)
		out = append(out, s)
		return err
	}, query))
	return out
}
