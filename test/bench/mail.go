//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// The paths of the section mail, by the names in the report.
const (
	pathLoop   = "bare SQLite loop" // one transaction per message, and nothing else
	pathStore  = "store alone"      // the same with group commit
	pathBook   = "book"             // store and messaging rules, called in this process
	pathDaemon = "doorward"         // tools/call at the daemon over the Unix socket
)

const (
	maxSenders = 16
	batchSize  = 50      // messages per fetch
	storedMail = 100_000 // number of messages in the full store of the section
	bodyBytes  = 1024
)

// mailLevels are the numbers of senders. Each sender writes to its own mailbox.
var mailLevels = []int{1, maxSenders}

// mailCost holds the costs of messages.
type mailCost struct {
	Sends  []cell      `json:"sends"`
	Reads  []cell      `json:"reads"` // a call is one message, fetched and acknowledged
	Starts []startCost `json:"starts"`
}

// startCost holds the time of a start with so many stored messages, and the memory.
type startCost struct {
	Path   string          `json:"path"`
	Stored int             `json:"stored"`
	Took   []time.Duration `json:"took_ns"`
	RSS    []float64       `json:"rss_kib"` // after one message was sent and read
}

// post is one path for messages, open for a number of senders.
type post struct {
	name  string
	send  func(worker, box int, n int64) error
	fetch func(box int) (int, error) // nil: there is nothing to fetch
	close func() error
	pid   int // of a separate process; 0: the path runs in this process
	sent  [maxSenders]int64
}

// textOf returns the body of a message. All bodies differ.
func textOf(worker int, n int64) string {
	head := fmt.Sprintf("sender %d writes for the %dth time: ", worker, n)
	return head + strings.Repeat("x", bodyBytes-len(head))
}

// messages compares the paths for messages.
func (r *run) messages(t *tools) *mailCost {
	cost := new(mailCost)
	dir, err := os.MkdirTemp(t.dir, "mail-")
	if r.failed(&path{name: "mail"}, err) {
		return nil
	}
	posts := r.openPosts(t, dir)
	defer func() {
		for _, p := range posts {
			r.failed(&path{name: p.name}, p.close())
		}
	}()
	for _, n := range mailLevels {
		cost.Sends = append(cost.Sends, r.takeTurns(posts, n, "send", (*post).sends)...)
	}
	readable := slices.DeleteFunc(slices.Clone(posts), func(p *post) bool { return p.fetch == nil })
	for _, n := range mailLevels {
		cost.Reads = append(cost.Reads, r.takeTurns(readable, n, "inbox", (*post).reads)...)
	}
	cost.Starts = r.starts(t, dir)
	return cost
}

// openPosts opens all paths for messages.
func (r *run) openPosts(t *tools, dir string) (posts []*post) {
	for _, way := range []struct {
		name string
		open func(*tools, string) (*post, error)
	}{{pathLoop, openLoopPost}, {pathStore, openStorePost}, {pathBook, openBookPost}, {pathDaemon, openDaemonPost}} {
		if way.name == pathDaemon && t.doorward == "" {
			continue
		}
		own := filepath.Join(dir, strings.ReplaceAll(way.name, " ", "-"))
		err := os.Mkdir(own, 0o700)
		var p *post
		if err == nil {
			p, err = way.open(t, own)
		}
		if !r.failed(&path{name: way.name}, err) {
			p.name = way.name
			posts = append(posts, p)
		}
	}
	return posts
}

func openLoopPost(_ *tools, dir string) (*post, error) {
	l, err := openBareLoop(dir)
	if err != nil {
		return nil, err
	}
	return &post{send: l.send, close: l.close}, nil
}

func openStorePost(_ *tools, dir string) (*post, error) {
	l, err := openStoreLoop(dir)
	if err != nil {
		return nil, err
	}
	return &post{send: l.send, close: l.close}, nil
}

func openBookPost(_ *tools, dir string) (*post, error) {
	b, err := openBook(dir, plentyOfMail)
	if err != nil {
		return nil, err
	}
	if err := b.people(maxSenders, 2*maxSenders, "bench"); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return &post{send: b.send, fetch: b.fetch, close: b.close}, nil
}

// takeTurns measures one operation with n workers on every path, round by round.
func (r *run) takeTurns(posts []*post, n int, what string, measure func(*post, int, time.Duration) (window, error)) []cell {
	cells := make([]cell, len(posts))
	for i, p := range posts {
		cells[i] = cell{Path: p.name, Sessions: n, Tool: what}
	}
	for round := range r.rounds + 1 {
		for turn := range posts {
			i := (round + turn) % len(posts)
			p := posts[i]
			if r.broken[p.name] {
				continue
			}
			d := r.window
			if round == 0 {
				d = min(d, warmUp)
			}
			w, err := measure(p, n, d)
			if r.failed(&path{name: p.name}, err) || round == 0 {
				continue
			}
			cells[i].Rounds = append(cells[i].Rounds, w)
			r.progress("%-22s %2d workers, %s, round %d: %6.0f/s, p50 %v, p99 %v", p.name, n, what, round, w.PerSecond,
				w.P50.Round(time.Microsecond), w.P99.Round(time.Microsecond))
		}
	}
	return cells
}

// sends lets n workers send until d has passed, one message at a time each.
func (p *post) sends(n int, d time.Duration) (window, error) {
	before, err := p.cpu()
	if err != nil {
		return window{}, err
	}
	w, err := crew(n, time.Now().Add(d), func(worker int) (int, error) {
		p.sent[worker]++
		return 1, p.send(worker, worker, p.sent[worker])
	})
	if err != nil {
		return w, err
	}
	after, err := p.cpu()
	w.Proxy = (after - before).Seconds() / float64(w.Calls) * 1000
	return w, err
}

// cpu returns the processor time spent so far, or 0 if the path runs in this process, whose time is
// not the path's alone.
func (p *post) cpu() (time.Duration, error) {
	if p.pid == 0 {
		return 0, nil
	}
	return cpuTime(p.pid)
}

// The number of messages read in one window, and the maximum waiting in one mailbox, which is the
// product's limit.
const (
	readTotal = 3200
	readStock = 1000
)

// stockUp sends each messages to every mailbox that is read, uncounted. These mailboxes differ from
// those of the measured sends, where messages accumulate.
func (p *post) stockUp(n, each int) error {
	var left [maxSenders]int
	_, err := crew(n, time.Now().Add(callPatience), func(worker int) (int, error) {
		if left[worker] == each {
			return 0, errDone
		}
		left[worker]++
		p.sent[worker]++
		return 1, p.send(worker, maxSenders+worker, p.sent[worker])
	})
	return err
}

// reads lets n workers fetch and acknowledge until their mailboxes are empty. A time is that of one
// batch.
func (p *post) reads(n int, _ time.Duration) (window, error) {
	return p.drain(n, min(readStock, readTotal/n), readTotal)
}

// drain fills n mailboxes and empties them until total messages were read. It returns the median
// window.
func (p *post) drain(n, each, total int) (window, error) {
	var all []window
	for range total / n / each {
		if err := p.stockUp(n, each); err != nil {
			return window{}, err
		}
		w, err := crew(n, time.Now().Add(callPatience), func(worker int) (int, error) {
			got, err := p.fetch(maxSenders + worker)
			if err == nil && got == 0 {
				return 0, errDone
			}
			return got, err
		})
		if err == nil && w.Calls != n*each {
			err = fmt.Errorf("%d messages were sent and %d fetched", n*each, w.Calls)
		}
		if err != nil {
			return w, err
		}
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b window) int { return cmp.Compare(a.PerSecond, b.PerSecond) })
	return all[len(all)/2], nil
}

// errDone ends a worker before the deadline: nothing is left to do.
var errDone = errors.New("nothing is left to do")

// crew lets n workers repeat a step until the deadline. A step returns the number of messages that
// it handled.
func crew(n int, deadline time.Time, step func(worker int) (int, error)) (window, error) {
	samples, counts, errs := make([][]time.Duration, n), make([]int, n), make([]error, n)
	started := time.Now()
	var wg sync.WaitGroup
	for worker := range n {
		wg.Go(func() {
			for before := time.Now(); before.Before(deadline); {
				done, err := step(worker)
				if err != nil {
					if !errors.Is(err, errDone) {
						errs[worker] = err
					}
					return
				}
				after := time.Now()
				samples[worker] = append(samples[worker], after.Sub(before))
				counts[worker] += done
				before = after
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(started)
	all := slices.Concat(samples...)
	slices.Sort(all)
	calls := 0
	for _, c := range counts {
		calls += c
	}
	w := window{Calls: calls, PerSecond: float64(calls) / elapsed.Seconds(), P50: quantile(all, 0.5), P99: quantile(all, 0.99), Longest: quantile(all, 1)}
	if err := errors.Join(errs...); err != nil {
		return w, firstOf(err)
	}
	return w, nil
}

func (res *results) printMail(w io.Writer) {
	if res.Mail == nil {
		return
	}
	table(w, "Messages", fmt.Sprintf("Sends of %d bytes, each on disk before it is answered; each sender writes to a mailbox of its own. Medians of the rounds; CPU is seconds per 1,000 sends. In brackets: the median of the rounds' ratios to the loop.", bodyBytes),
		"senders", "path", "sends/s", "p50 µs", "p99 µs", "CPU of the daemon")
	for i := range res.Mail.Sends {
		c := &res.Mail.Sends[i]
		if len(c.Rounds) == 0 {
			continue
		}
		base := find(res.Mail.Sends, pathLoop, c.Sessions)
		spent := ""
		if used := c.median(cpuProxy); used > 0 {
			spent = fmt.Sprintf("%.3f", used)
		}
		fmt.Fprintf(w, "| %d | %s | %s | %s | %s | %s |\n", c.Sessions, c.Path, c.cell("%.0f", 1, base, perSecond),
			c.cell("%.0f", 1e-3, base, p50), c.cell("%.0f", 1e-3, base, p99), spent)
	}
	table(w, "Fetch and acknowledge", fmt.Sprintf("Batches of %d: a call takes the next one and acknowledges the one before. Messages a second, and the time of a call.", batchSize),
		"readers", "path", "messages/s", "p50 µs", "p99 µs")
	for i := range res.Mail.Reads {
		c := &res.Mail.Reads[i]
		if len(c.Rounds) > 0 {
			fmt.Fprintf(w, "| %d | %s | %s | %s | %s |\n", c.Sessions, c.Path, c.cell("%.0f", 1, nil, perSecond), c.cell("%.0f", 1e-3, nil, p50), c.cell("%.0f", 1e-3, nil, p99))
		}
	}
	table(w, "Start with stored messages", "From the start of the process until it is ready, and its resident memory once a message was sent and read. Medians.", "path", "stored", "start ms", "resident MB")
	for _, s := range res.Mail.Starts {
		fmt.Fprintf(w, "| %s | %d | %.1f | %.1f |\n", s.Path, s.Stored, s.took()*1e3, s.megabytes())
	}
}

func (s startCost) took() float64 {
	all := make([]float64, len(s.Took))
	for i, d := range s.Took {
		all[i] = d.Seconds()
	}
	return median(all)
}

func (s startCost) megabytes() float64 { return median(s.RSS) * 1024 / 1e6 }

// judgeMail judges the section mail.
func (res *results) judgeMail() []verdict {
	var all []verdict
	for _, name := range []string{pathBook, pathDaemon} {
		share, later, heavier := 0.0, 0.0, 0.0
		if res.Mail != nil {
			if c := find(res.Mail.Sends, name, maxSenders); c != nil {
				share = c.ratio(find(res.Mail.Sends, pathLoop, maxSenders), perSecond)
			}
			later, heavier = res.Mail.growth(name)
		}
		what := "messages, " + name + ", "
		start := res.atMost(what+"start with 100,000 stored, beyond an empty store's", 50, later)
		start.Unit = "ms"
		memory := res.atMost(what+"resident memory for 100,000 stored", 5, heavier)
		memory.Unit = "MB"
		all = append(all, res.atLeast(fmt.Sprintf("%ssends per second, %d senders, of the bare loop's", what, maxSenders), 0.8, share), start, memory)
	}
	return all
}

// growth returns what the stored messages add to the start, in milliseconds, and to the memory, in
// MB. It returns zeros if the full store was not measured.
func (c *mailCost) growth(name string) (later, heavier float64) {
	var none, full *startCost
	for i := range c.Starts {
		switch s := &c.Starts[i]; {
		case s.Path != name || len(s.Took) == 0:
		case s.Stored == 0:
			none = s
		case s.Stored == storedMail:
			full = s
		}
	}
	if none == nil || full == nil {
		return 0, 0
	}
	return 1e3 * (full.took() - none.took()), full.megabytes() - none.megabytes()
}
