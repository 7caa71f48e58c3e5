//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// lookup holds the time that the identification of the peer process adds to a new loopback
// connection.
type lookup struct {
	Caller   string          `json:"caller"`
	Children int             `json:"children"`
	With     []time.Duration `json:"with_ns"`    // the caller is identified; sorted
	Without  []time.Duration `json:"without_ns"` // a token is required and the caller is not identified; sorted
}

// The callers: a process that connects repeatedly, and one that has just started.
const (
	callerKnown = "known"
	callerNew   = "new"
)

// identityChildren is the number of running servers during the lookups.
const identityChildren = 64

// cost returns the difference of the medians in milliseconds.
func (l lookup) cost() float64 {
	if len(l.With) == 0 || len(l.Without) == 0 {
		return 0
	}
	return max((quantile(l.With, 0.5)-quantile(l.Without, 0.5)).Seconds()*1e3, 0.001)
}

// identity times /health, which needs no authentication, on new connections to two listeners of one
// daemon. The listeners differ only in the lookup of the caller.
func (r *run) identity(t *tools) ([]lookup, error) {
	enforced, err := freeAddr()
	if err != nil {
		return nil, err
	}
	own := map[string]any{"sandbox": usual, "max_instances": plenty, "max_concurrency": plenty}
	p, err := t.startDoorward(map[string]any{"command": t.idler, "doorward": own}, map[string]any{"addr": enforced, "auth": "required"})
	if err != nil {
		return nil, err
	}
	defer p.stop()
	var all []lookup
	for _, children := range []int{0, identityChildren} {
		sessions, err := openAll(endpoint{p.addr, "/mcp/bench"}, children, false)
		if err != nil {
			return nil, err
		}
		defer closeAll(sessions)
		for _, caller := range []string{callerKnown, callerNew} {
			l, err := t.look(caller, []string{p.addr, enforced}, 10*r.opensEach)
			if err != nil {
				return nil, err
			}
			l.Children = children
			all = append(all, l)
		}
		r.progress("identity: looked with %d children", children)
	}
	return all, nil
}

// look measures both listeners in turn.
func (t *tools) look(caller string, addrs []string, count int) (lookup, error) {
	l := lookup{Caller: caller}
	for range count {
		took, err := t.connectAs(caller, addrs)
		if err != nil {
			return l, err
		}
		l.With, l.Without = append(l.With, took[0]), append(l.Without, took[1])
	}
	slices.Sort(l.With)
	slices.Sort(l.Without)
	return l, nil
}

func (t *tools) connectAs(caller string, addrs []string) ([]time.Duration, error) {
	if caller == callerKnown {
		return connects(addrs)
	}
	out, err := exec.Command(t.self, append([]string{modeConnect}, addrs...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("connecting from a new process: %w", err)
	}
	var all []time.Duration
	for _, word := range strings.Fields(string(out)) {
		took, err := time.ParseDuration(word)
		if err != nil {
			return nil, fmt.Errorf("reading what a new process measured: %w", err)
		}
		all = append(all, took)
	}
	if len(all) != len(addrs) {
		return nil, fmt.Errorf("a new process measured %d of %d connections", len(all), len(addrs))
	}
	return all, nil
}

// printConnects is a caller that has just started. It first makes one uncounted connection to the
// listener without a lookup, so that its own start-up cost is not measured.
func printConnects(addrs []string) error {
	if err := healthy(addrs[len(addrs)-1]); err != nil {
		return err
	}
	all, err := connects(addrs)
	for _, took := range all {
		fmt.Println(took)
	}
	return err
}

// connects opens a connection to each address and waits for its first answer.
func connects(addrs []string) ([]time.Duration, error) {
	var all []time.Duration
	for _, addr := range addrs {
		before := time.Now()
		if err := healthy(addr); err != nil {
			return all, fmt.Errorf("asking %s: %w", addr, err)
		}
		all = append(all, time.Since(before))
	}
	return all, nil
}

// healthy requests /health on a new connection.
func healthy(addr string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(startPatience)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c, "GET /health HTTP/1.1\r\nHost: %s\r\n\r\n", addr); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

func (res *results) printIdentity(w io.Writer) {
	if len(res.Identity) == 0 {
		return
	}
	table(w, "Loopback identity", "A new connection and its first answer, where the process at its other end is looked for and where it is not, by a process that connects again and again and by one that has just started. Cost: the difference of the medians.",
		"caller", "children", "with p50 ms", "with p99 ms", "without p50 ms", "without p99 ms", "cost ms")
	for _, l := range res.Identity {
		ms := func(all []time.Duration, q float64) float64 { return quantile(all, q).Seconds() * 1e3 }
		fmt.Fprintf(w, "| %s | %d | %.2f | %.2f | %.2f | %.2f | %.2f |\n", l.Caller, l.Children,
			ms(l.With, 0.5), ms(l.With, 0.99), ms(l.Without, 0.5), ms(l.Without, 0.99), l.cost())
	}
}

// judgeIdentity judges the more expensive of the two callers.
func (res *results) judgeIdentity() verdict {
	worst := 0.0
	for _, l := range res.Identity {
		if l.Children == identityChildren {
			worst = max(worst, l.cost())
		}
	}
	v := res.atMost(fmt.Sprintf("loopback identity, %d children", identityChildren), 1, worst)
	v.Unit = "ms"
	return v
}
