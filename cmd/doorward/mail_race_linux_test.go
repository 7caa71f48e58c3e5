package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"

	"github.com/doorward/doorward/test/doortest"
)

// mailRacers is how many sessions race for one name.
const mailRacers = 64

// racers opens that many sessions, on each daemon in turn.
func racers(t *testing.T, via string, daemons ...*mailDaemon) []*mailClient {
	t.Helper()
	all := make([]*mailClient, mailRacers)
	errs := make([]error, mailRacers)
	together(mailRacers, func(i int) { all[i], errs[i] = daemons[i%len(daemons)].client(via).open() })
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// raceFor registers one name in all sessions at once. It returns how each call ended, and
// the session that got the name; -1: none.
func raceFor(t *testing.T, all []*mailClient, name string) (words []string, winner int) {
	t.Helper()
	replies := make([]*mailReply, len(all))
	together(len(all), func(i int) { replies[i] = all[i].call("register", obj{"name": name}) })
	winner = -1
	for i, r := range replies {
		words = append(words, r.what())
		switch r.what() {
		case "ok":
			winner = i
			var out mailRegistered
			if r.into(t, &out); !out.Created || out.Epoch != 1 || out.Takeover != nil {
				t.Errorf("the winner got %s", r.out)
			}
		case "NAME_IN_USE":
			var e mailError
			if err := json.Unmarshal(r.out, &e); err != nil || !e.Error.Retryable || e.Error.RetryMS <= 0 || e.Error.RetryMS > 95_000 {
				t.Errorf("NAME_IN_USE without a time to try again: %s", r.out)
			}
		}
	}
	return words, winner
}

// 64 sessions race for one name of their principal: one gets and keeps it, and 63 are told
// that it is in use.
func TestMailOneOf64SessionsGetsTheName(t *testing.T) {
	t.Parallel()
	for engine, postgres := range mailEngines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := startMail(t, "one", mailConfig("one", postgres(t), ""))
			for _, via := range []string{"tcp", "unix"} {
				all := racers(t, via, d)
				for round := range 3 {
					name := fmt.Sprintf("%s-%d", via, round)
					words, winner := raceFor(t, all, name)
					if got, want := tallyOf(words), map[string]int{"ok": 1, "NAME_IN_USE": mailRacers - 1}; !maps.Equal(got, want) {
						t.Fatalf("%s: %v, want %v", name, got, want)
					}
					all[winner].send(name, "to myself")
					if got := all[winner].drain(); len(got) != 1 || got[0].From.Name != name {
						t.Errorf("%s: its owner has %+v", name, got)
					}
					all[(winner+1)%mailRacers].refused("NOT_REGISTERED", "inbox", obj{})
					all[winner] = d.client(via).mustOpen() // else it renames itself in the next round
				}
			}
			d.sound()
		})
	}
}

// Two daemons on one PostgreSQL: one session of all gets the name. For the sessions of the
// other daemon it belongs to another principal, since the same uid on another node is
// another principal.
func TestMailTwoDaemonsRaceForOneName(t *testing.T) {
	t.Parallel()
	dsn := doortest.Postgres(t)
	daemons := []*mailDaemon{startMail(t, "east", mailConfig("east", dsn, "")), startMail(t, "west", mailConfig("west", dsn, ""))}
	wins := make(map[int]int)
	for _, via := range []string{"tcp", "unix"} {
		all := racers(t, via, daemons...)
		for round := range 4 {
			words, winner := raceFor(t, all, fmt.Sprintf("%s-%d", via, round))
			if winner < 0 {
				t.Fatalf("no session won: %v", tallyOf(words))
			}
			wins[winner%2]++
			for i, w := range words {
				want := "NAME_OWNED"
				switch {
				case i == winner:
					want = "ok"
				case i%2 == winner%2:
					want = "NAME_IN_USE"
				}
				if w != want {
					t.Errorf("session %d of %s: %s, want %s; the winner is of %s", i, daemons[i%2].name, w, want, daemons[winner%2].name)
				}
			}
			all[winner] = daemons[winner%2].client(via).mustOpen()
		}
	}
	t.Logf("won by east and west: %v", wins)
	for _, d := range daemons {
		d.sound()
	}
}

// sendRace records how each send of a session ends while the session loses its name, by the
// text of the message.
type sendRace struct {
	mu    sync.Mutex
	words map[string]string
}

// load sends until stop is closed or the session has lost its name.
func (s *sendRace) load(c *mailClient, round, worker int, stop <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		body := fmt.Sprintf("r%d w%d n%d", round, worker, i)
		r := c.call("send", obj{"to": "sink", "body": body})
		what := r.what()
		if r.status == http.StatusNotFound {
			what = "session over"
		}
		s.mu.Lock()
		s.words[body] = what
		s.mu.Unlock()
		if what != "ok" {
			return
		}
	}
}

// A send that races the loss of its sender's name is either stored, under the epoch before,
// or refused and not stored. The name is taken away in two ways: by a transfer of the
// operator, while the session still tries, and by the end of the session and a takeover.
func TestMailASendThatRacesATakeover(t *testing.T) {
	t.Parallel()
	const rounds, workers = 20, 3
	for engine, postgres := range mailEngines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := startMail(t, "one", mailConfig("one", postgres(t), roomy))
			sink := d.client("tcp").mustOpen()
			sink.register("sink")
			race := &sendRace{words: make(map[string]string)}
			epochs := make(map[int]int64) // of the sender, by round
			old := d.client("tcp").mustOpen()
			now := old.register("racer")
			var principal string
			for round := range rounds {
				epochs[round] = now.Epoch
				stop := make(chan struct{})
				var all sync.WaitGroup
				for w := range workers {
					all.Go(func() { race.load(old, round, w, stop) })
				}
				next := d.client("tcp").mustOpen()
				poll(mailSoon, func() bool {
					race.mu.Lock()
					defer race.mu.Unlock()
					return race.words[fmt.Sprintf("r%d w0 n2", round)] != ""
				})
				if round%2 == 0 {
					if principal == "" {
						principal = d.owner("racer")
					}
					d.transfer("racer@default", principal)
				} else if err := old.end(); err != nil {
					t.Fatal(err)
				}
				now = next.register("racer")
				if now.Takeover == nil && round%2 == 1 || now.Epoch <= epochs[round] {
					t.Fatalf("round %d: %+v", round, now)
				}
				if round%2 == 0 {
					old.refused("FENCED", "send", obj{"to": "sink", "body": "after the takeover"})
					old.refused("FENCED", "inbox", obj{})
				}
				close(stop)
				all.Wait()
				old = next
			}
			race.check(t, sink.drain(), epochs)
			d.sound()
		})
	}
}

// check compares what the senders heard with what the recipient got.
func (s *sendRace) check(t *testing.T, got []mailMessage, epochs map[int]int64) {
	t.Helper()
	there := make(map[string]int)
	for _, m := range got {
		var round int
		if _, err := fmt.Sscanf(m.Body, "r%d ", &round); err != nil {
			t.Errorf("a message that was not sent: %q", m.Body)
		}
		if there[m.Body]++; m.From.Epoch != epochs[round] || m.From.Name != "racer" {
			t.Errorf("%q is from %+v, want epoch %d", m.Body, m.From, epochs[round])
		}
	}
	counts := make(map[string]int)
	for body, what := range s.words {
		var round int
		_, _ = fmt.Sscanf(body, "r%d ", &round) // it was written here
		counts[what]++
		want := 0
		switch {
		case what == "ok":
			want = 1
		case what == "FENCED":
		case round%2 == 1 && what == "http 202": // under way when its session ended: there is no answer
			want = there[body]
		case round%2 == 1 && what == "session over":
		default:
			t.Errorf("%q: %s", body, what)
		}
		if there[body] != want || want > 1 {
			t.Errorf("%q: %s, and it is there %d times", body, what, there[body])
		}
	}
	if counts["FENCED"] == 0 || counts["ok"] == 0 {
		t.Errorf("nothing raced: %v", counts)
	}
	t.Log(counts)
}

// owner returns the principal of a peer.
func (d *mailDaemon) owner(name string) string {
	d.t.Helper()
	out, _ := d.human("doorward", "agent", "peers", "--json")
	var all []struct{ Name, Principal string }
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		d.t.Fatalf("%v in %s", err, out)
	}
	for _, p := range all {
		if p.Name == name {
			return p.Principal
		}
	}
	d.t.Fatalf("no %s among %s", name, out)
	return ""
}

func (d *mailDaemon) transfer(name, to string) {
	d.t.Helper()
	if out, status := d.human("doorward", "agent", "transfer", name, "--to", to); status != 0 {
		d.t.Fatalf("transfer: status %d\n%s", status, out)
	}
}

// together runs n goroutines that begin at once.
func together(n int, f func(i int)) {
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-begin
			f(i)
		})
	}
	close(begin)
	all.Wait()
}

// tallyOf counts words.
func tallyOf(words []string) map[string]int {
	n := make(map[string]int)
	for _, w := range words {
		n[w]++
	}
	return n
}
