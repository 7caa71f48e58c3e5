//go:build chaos

package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// order is the input of the program of the agents.
type order struct {
	Sockets []string // of the daemons; agent i belongs to daemon i modulo their number
	Agents  int
	Drain   time.Duration // how long the mail may take to arrive once sending ends
}

// result is the output of the program of the agents.
type result struct {
	Sent, Received, Again int           // messages acknowledged, received, received again
	Lost                  []string      // acknowledged and never received
	Reordered             []string      // received after a later one of the same sender
	Doubled               []string      // received again without the mark
	Wedged                []string      // agents whose calls did not come back
	Registered            time.Duration // until all agents had their names
	WorstGap              time.Duration // longest time of one agent without an answer
	Refused               map[string]int
}

// field is the agents of one run. They share one process, as sessions of one
// client program, and are not told when a daemon is killed.
type field struct {
	order   order
	names   []string
	sending atomic.Bool
	over    atomic.Bool

	mu       sync.Mutex
	sent     map[string]bool // "from>to n", acknowledged
	received map[string]bool
	latest   map[string]int // by "from>to", the highest number received
	result   result
}

// agents runs until the standard input ends, then drains, and prints the result.
func agents(in io.Reader, out io.Writer) error {
	dec := json.NewDecoder(in)
	f := &field{sent: map[string]bool{}, received: map[string]bool{}, latest: map[string]int{}}
	f.result.Refused = map[string]int{}
	if err := dec.Decode(&f.order); err != nil {
		return fmt.Errorf("reading the order: %w", err)
	}
	began := time.Now()
	all := make([]*agent, f.order.Agents)
	for i := range all {
		f.names = append(f.names, fmt.Sprintf("agent-%d", i))
		all[i] = &agent{field: f, name: f.names[i], client: newClient(f.order.Sockets[i%len(f.order.Sockets)]), lost: true, numbers: map[string]int{}}
	}
	each(all, func(a *agent) { a.again(func() error { return nil }) })
	f.result.Registered = time.Since(began)
	fmt.Fprintln(out, "registered")
	f.sending.Store(true)
	done := make(chan struct{})
	go func() { each(all, (*agent).run); close(done) }()
	_, _ = io.Copy(io.Discard, io.MultiReader(dec.Buffered(), in))
	f.sending.Store(false)
	f.drain(all, done)
	return json.NewEncoder(out).Encode(f.judge(all))
}

func each(all []*agent, do func(*agent)) {
	var group sync.WaitGroup
	for _, a := range all {
		group.Go(func() { do(a) })
	}
	group.Wait()
}

// drain waits until all acknowledged messages have arrived and the agents are done.
func (f *field) drain(all []*agent, done chan struct{}) {
	doortest.Becomes(f.order.Drain, f.arrived)
	f.over.Store(true)
	select {
	case <-done:
	case <-time.After(patience + 5*time.Second):
		for _, a := range all {
			if !a.ended.Load() {
				f.result.Wedged = append(f.result.Wedged, a.name)
			}
		}
	}
}

func (f *field) arrived() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.sent {
		if !f.received[key] {
			return false
		}
	}
	return true
}

func (f *field) judge(all []*agent) *result {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.sent {
		if !f.received[key] {
			f.result.Lost = append(f.result.Lost, key)
		}
	}
	for _, a := range all {
		f.result.WorstGap = max(f.result.WorstGap, a.worst)
	}
	f.result.Sent, f.result.Received = len(f.sent), len(f.received)
	return &f.result
}

// agent sends one message at a time, repeats it until it is answered, and reads
// its mail in between.
type agent struct {
	field   *field
	name    string
	client  *client
	lost    bool           // the session, or the name
	numbers map[string]int // by recipient, of the last message
	last    time.Time      // of an answer
	worst   time.Duration
	ended   atomic.Bool
}

func (a *agent) run() {
	defer a.ended.Store(true)
	for a.last = time.Now(); !a.field.over.Load(); {
		if a.field.sending.Load() {
			a.send()
		}
		a.again(a.read)
	}
}

// again repeats do until the daemon has answered it.
func (a *agent) again(do func() error) {
	for !a.field.over.Load() {
		var err error
		if a.lost {
			err = a.begin()
		}
		if err == nil {
			err = do()
		}
		if err == nil {
			if !a.last.IsZero() {
				a.worst = max(a.worst, time.Since(a.last))
			}
			a.last = time.Now()
			return
		}
		a.recover(err)
	}
}

// recover waits before another try. An agent that lost its connection goes on in
// its session or, as often, in a new one.
func (a *agent) recover(err error) {
	var refused *toolError
	switch {
	case errors.Is(err, errGone):
		a.lost = a.lost || rand.IntN(2) == 0
	case errors.As(err, &refused):
		a.field.note(refused.Code)
		a.lost = a.lost || refused.Code == "NOT_REGISTERED" || refused.Code == "FENCED"
	default:
		a.field.note(first(err.Error()))
		a.lost = true
	}
	time.Sleep(time.Duration(10+rand.IntN(40)) * time.Millisecond)
}

func first(text string) string { return text[:min(len(text), 120)] }

func (f *field) note(code string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.result.Refused[code]++
}

// begin registers the name in a new session.
func (a *agent) begin() error {
	if err := a.client.hello(); err != nil {
		return err
	}
	err := a.client.call("register", map[string]any{"name": a.name}, &struct{}{})
	a.lost = err != nil
	return err
}

// send sends one message to some other agent. A repeated call has the same key, so
// it stores nothing twice.
func (a *agent) send() {
	to := a.field.names[rand.IntN(len(a.field.names))]
	a.numbers[to]++
	key := fmt.Sprintf("%s>%s %d", a.name, to, a.numbers[to])
	args := map[string]any{"to": to, "body": key, "idempotency_key": strings.NewReplacer(">", ".", " ", ".").Replace(key)}
	var answer struct {
		MessageID string `json:"message_id"`
	}
	a.again(func() error {
		err := a.client.call("send", args, &answer)
		if err == nil && answer.MessageID == "" {
			err = fmt.Errorf("send: no message_id")
		}
		return err
	})
	if answer.MessageID != "" {
		a.field.mu.Lock()
		a.field.sent[key] = true
		a.field.mu.Unlock()
	}
}

// read fetches messages, which acknowledges those of the last call.
func (a *agent) read() error {
	var box struct {
		Messages []struct {
			Body        string
			Redelivered bool
		}
	}
	err := a.client.call("inbox", map[string]any{"max": 50, "wait_ms": 200, "format": "json"}, &box)
	for _, m := range box.Messages {
		a.field.take(m.Body, m.Redelivered)
	}
	return err
}

// take records a received message, and whether it is a repetition or out of order.
func (f *field) take(key string, redelivered bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var pair string
	var n int
	if at := strings.LastIndexByte(key, ' '); at > 0 {
		pair = key[:at]
		_, _ = fmt.Sscan(key[at+1:], &n)
	}
	switch {
	case f.received[key] && !redelivered:
		f.result.Doubled = append(f.result.Doubled, key)
	case f.received[key]:
		f.result.Again++
	case n <= f.latest[pair]:
		f.result.Reordered = append(f.result.Reordered, key)
	}
	f.received[key], f.latest[pair] = true, max(n, f.latest[pair])
}

func (r *result) String() string {
	return fmt.Sprintf("%d sent, %d received, %d of them again; lost %d, reordered %d, doubled %d, wedged %d; registered in %s, worst gap %s; refused %v",
		r.Sent, r.Received, r.Again, len(r.Lost), len(r.Reordered), len(r.Doubled), len(r.Wedged),
		r.Registered.Round(time.Millisecond), r.WorstGap.Round(time.Millisecond), sorted(r.Refused))
}

func sorted(counts map[string]int) (all []string) {
	for _, code := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s x%d", code, counts[code]))
	}
	return all
}

// agentsMode makes the test binary the program of the agents. They need a process of
// their own: the commands of the operator are refused below a process that is an agent.
const agentsMode = "CHAOS_AGENTS"

func agentsProgram() int {
	if err := agents(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "agents:", err)
		return 1
	}
	return 0
}
