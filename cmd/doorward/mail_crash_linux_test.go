package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

const (
	crashRounds  = 12 // at least; more where the daemon is not slowed by the race detector
	crashSenders = 4
	crashLoadMin = 8 // messages that were answered between two kills
)

// crashLoad is what its senders and its reader saw while the daemon was killed
// under them.
type crashLoad struct {
	t       *testing.T
	d       *mailDaemon
	stop    chan struct{}
	outages bool // the store is killed, not the daemon

	mu       sync.Mutex
	accepted map[string]string // the id that a sender was answered, by text
	odd      []string

	got       map[string][]mailMessage // by id, in the order in which they were given
	given     []string                 // by the last answer; the next call confirms it
	c         *mailClient              // the reader
	confirmed map[string]bool          // by id: the answer to the confirmation came
}

func (l *crashLoad) over() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

func (l *crashLoad) strange(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.odd = append(l.odd, fmt.Sprintf(format, args...))
}

// retries reports whether a sender repeats a message without an answer, under its
// idempotency key. The others go on with the next message.
func retries(sender int) bool { return sender%2 == 0 }

// send sends one message after the other until the end. The sender is a process
// that lives on while the daemon dies: it registers once.
func (l *crashLoad) send(c *mailClient, sender int) {
	for n := 0; !l.over(); n++ {
		body := fmt.Sprintf("s%d n%d", sender, n)
		args := obj{"to": "reader", "body": body}
		if retries(sender) {
			args["idempotency_key"] = body
		}
		for done := false; !done; {
			r := c.call("send", args)
			switch {
			case r.what() == "ok":
				done = true
				l.answered(r, body)
			case l.down(r):
				done = !retries(sender) || l.over()
				time.Sleep(10 * time.Millisecond)
			default:
				l.strange("a send: %s", r)
				return
			}
		}
	}
}

// down reports that a call has failed as it does while the daemon, or its store,
// is down.
func (l *crashLoad) down(r *mailReply) bool {
	if l.outages {
		return r.what() == "STORE_UNAVAILABLE"
	}
	return r.what() == "cut"
}

func (l *crashLoad) answered(r *mailReply, body string) {
	var out mailSent
	r.into(l.t, &out)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted[body] = out.MessageID
}

// read reads and confirms, in a new session after every kill.
func (l *crashLoad) read() {
	fresh := func() obj { return obj{"max": 20, "wait_ms": 200} }
	args := fresh()
	for !l.over() {
		if l.c == nil {
			if l.c = l.reader(); l.c == nil {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			args = fresh()
		}
		r := l.c.call("inbox", args)
		if l.down(r) {
			l.given = nil // whether that was confirmed is unknown
			if args = fresh(); !l.outages {
				l.c = nil
			}
			continue
		}
		if !l.batch(r, args) {
			return
		}
	}
}

// reader opens a session and takes the name over; nil while the daemon is down.
func (l *crashLoad) reader() *mailClient {
	c, err := l.d.client("unix").open()
	if err != nil {
		return nil
	}
	switch r := c.call("register", obj{"name": "reader"}); r.what() {
	case "ok":
		return c
	case "cut":
	default:
		l.strange("the reader's name: %s", r)
	}
	return nil
}

// batch notes the messages of one answer, and that those before the cursor are confirmed.
// It reports whether to go on.
func (l *crashLoad) batch(r *mailReply, args obj) bool {
	if r.what() != "ok" {
		l.strange("an inbox: %s", r)
		return false
	}
	var b mailBatch
	r.into(l.t, &b)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range l.given {
		l.confirmed[id] = true
	}
	l.given = nil
	for _, m := range b.Messages {
		if l.confirmed[m.MessageID] {
			l.odd = append(l.odd, fmt.Sprintf("given again after its confirmation: %+v", m))
		}
		l.got[m.MessageID] = append(l.got[m.MessageID], m)
		l.given = append(l.given, m.MessageID)
	}
	args["after"] = b.Cursor
	return true
}

// check checks everything that was seen.
func (l *crashLoad) check() {
	t := l.t
	for _, what := range l.odd {
		t.Error(what)
	}
	for body, id := range l.accepted {
		if len(l.got[id]) == 0 || l.got[id][0].Body != body {
			t.Errorf("%s was accepted as %s and is not there: %+v", body, id, l.got[id])
		}
	}
	l.checkGiven()
	sent, undone := make(map[string]int), make(map[string]string)
	for _, r := range l.d.records() {
		switch {
		case r.Action != "agent.send" || r.Detail["replay"] != "":
		case r.Result != "":
			undone[r.Detail["message"]] = r.Result
		case r.Decision == "allow":
			sent[r.Detail["message"]]++
		}
	}
	for id := range l.got {
		if sent[id] != 1 || undone[id] == "uncommitted" {
			t.Errorf("%s has %d records, and is %s", id, sent[id], undone[id])
		}
	}
	for id := range sent {
		// A daemon that is killed cannot record any more that it has not done what it
		// recorded. One that lives does.
		if l.outages && len(l.got[id]) == 0 && undone[id] == "" {
			t.Errorf("%s is on record and is not there", id)
		}
	}
	l.d.sound()
}

// checkGiven: each message was given once, apart from redeliveries, which are marked. The
// sequence has no gap, and has the messages of each sender in the order in which they were
// sent.
func (l *crashLoad) checkGiven() {
	t := l.t
	var first []mailMessage
	bodies, again := make(map[string]int), 0
	for id, all := range l.got {
		first = append(first, all[0])
		if bodies[all[0].Body]++; bodies[all[0].Body] > 1 {
			t.Errorf("%q is there twice", all[0].Body)
		}
		for i, m := range all {
			if m.Attempt > 1 && !m.Redelivered || i > 0 && (!m.Redelivered || m.Attempt < all[i-1].Attempt || m.Seq != all[0].Seq || m.Body != all[0].Body) {
				t.Errorf("%s was given as %+v", id, all)
			}
			again += min(i, 1)
		}
	}
	slices.SortFunc(first, func(a, b mailMessage) int { return int(a.Seq - b.Seq) })
	last := make(map[int]int)
	for i, m := range first {
		var sender, n int
		if _, err := fmt.Sscanf(m.Body, "s%d n%d", &sender, &n); err != nil || m.From.Name != fmt.Sprintf("sender-%d", sender) {
			t.Errorf("not a message of ours: %+v", m)
		}
		if m.Seq != int64(i+1) {
			t.Fatalf("number %d of the sequence is %+v", i+1, m)
		}
		if before, ok := last[sender]; ok && n <= before {
			t.Errorf("%q came after number %d", m.Body, before)
		}
		last[sender] = n
	}
	t.Logf("%d answered, %d stored, %d given again", len(l.accepted), len(first), again)
}

// end ends the load, once.
func (l *crashLoad) end(all *sync.WaitGroup) func() {
	return func() {
		if !l.over() {
			close(l.stop)
		}
		all.Wait()
	}
}

// more waits until that many more messages were answered.
func (l *crashLoad) more(n int) {
	l.t.Helper()
	answered := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.accepted)
	}
	want := answered() + n
	if !poll(mailSoon, func() bool { return answered() >= want }) {
		l.t.Fatalf("%d messages were answered, want %d: %v", answered(), want, l.odd)
	}
}

// last opens the session that reads the rest, after it has ended the reader's.
func (l *crashLoad) last() *mailClient {
	if l.c != nil {
		if err := l.c.end(); err != nil {
			l.t.Fatal(err)
		}
	}
	c := l.d.client("unix").mustOpen()
	c.register("reader")
	return c
}

// loaded starts four senders and a reader.
func loaded(t *testing.T, d *mailDaemon, outages bool) (l *crashLoad, end func()) {
	t.Helper()
	l = &crashLoad{t: t, d: d, outages: outages, stop: make(chan struct{}), accepted: make(map[string]string),
		got: make(map[string][]mailMessage), confirmed: make(map[string]bool)}
	l.c = d.client("unix").mustOpen()
	l.c.register("reader")
	var all sync.WaitGroup
	end = l.end(&all)
	t.Cleanup(end) // whatever becomes of the test, before its daemon ends
	for i := range crashSenders {
		c := d.client(d.proxy(fmt.Sprintf("sender-%d", i)))
		c.register(fmt.Sprintf("sender-%d", i))
		all.Go(func() { l.send(c, i) })
	}
	all.Go(l.read)
	return l, end
}

// rest reads what is left, and checks everything.
func (l *crashLoad) rest() {
	c := l.last()
	for _, m := range c.drain() {
		l.got[m.MessageID] = append(l.got[m.MessageID], m)
	}
	l.check()
}

// kill -9 of the daemon, again and again, under four senders and a reader that
// confirms: what was answered is there, once, in order and on record.
func TestMailKillsUnderLoad(t *testing.T) {
	t.Parallel()
	for engine, postgres := range mailEngines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := startMail(t, "one", mailConfig("one", postgres(t), roomy+"  attempts: 100\n"))
			l, end := loaded(t, d, false)
			rounds := crashRounds
			if slack < time.Second {
				rounds *= 3
			}
			for range rounds {
				l.more(crashLoadMin)
				time.Sleep(rand.N(150 * time.Millisecond))
				d.kill()
				d.start()
			}
			l.more(crashLoadMin)
			end()
			l.rest()
		})
	}
}

// The same for kill -9 of PostgreSQL while the daemon lives: a refused sender may repeat
// the message under its key, and has sent it once.
func TestMailKillsOfPostgreSQLUnderLoad(t *testing.T) {
	t.Parallel()
	server := doortest.PostgresServer(t)
	d := startMail(t, "one", mailConfig("one", server.DSN(), roomy+"  attempts: 100\n"))
	l, end := loaded(t, d, true)
	for range 4 {
		l.more(crashLoadMin)
		time.Sleep(rand.N(150 * time.Millisecond))
		server.Kill(t)
		time.Sleep(rand.N(300 * time.Millisecond))
		server.Start(t)
	}
	l.more(crashLoadMin)
	end()
	l.rest()
}

// The invariant of the store holds at every moment: under load fsck finds nothing, and the
// metric is 0.
func TestMailStoreIsConsistentUnderLoad(t *testing.T) {
	t.Parallel()
	for engine, postgres := range mailEngines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := startMail(t, "one", mailConfig("one", postgres(t), roomy+"  attempts: 100\n"))
			l, end := loaded(t, d, false)
			for range 6 {
				l.more(crashLoadMin)
				d.sound()
				for range 10 {
					if text := d.metrics(); !strings.Contains(text, "\ndoorward_agent_invariant_difference 0\n") {
						t.Errorf("the metric:\n%s", text)
					}
				}
			}
			end()
			l.rest()
		})
	}
}
