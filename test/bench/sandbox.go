//go:build linux

package main

import (
	"fmt"
	"io"
)

// shutIn holds what each sandbox adds to the start of a server and to a call.
type shutIn struct {
	Openings []opening `json:"openings"`
	Load     []cell    `json:"load"`
}

// sandboxes are the values of `sandbox`. The first one is the base of the comparison.
var sandboxes = []string{"off", "contain", "strict"}

// sandboxSessions is the number of concurrent sessions, each with its own server.
const sandboxSessions = 8

// shut compares the sandboxes in turns, with the same server and the same calls.
func (r *run) shut(t *tools) *shutIn {
	var paths []*path
	defer func() {
		for _, p := range paths {
			p.stop()
		}
	}()
	for _, name := range sandboxes {
		p, err := t.startDoorwardStdio("sandbox "+name, t.fixture, t.fixtureArgs(), name)
		if !r.failed(&path{name: "sandbox " + name}, err) {
			paths = append(paths, p)
		}
	}
	return &shutIn{Openings: r.opens(paths, r.opensEach), Load: r.compare(paths, sandboxSessions, "echo", r.rounds, r.window)}
}

func (res *results) printSandboxes(w io.Writer) {
	if res.Sandboxes == nil {
		return
	}
	table(w, "Sandbox", fmt.Sprintf("One stdio server for each session: the time to open one, which starts a server, and small calls in %d at once. In brackets: the ratio to sandbox: off.", sandboxSessions),
		"sandbox", "open p50 ms", "open worst ms", "calls/s", "p50 µs", "CPU both")
	base := find(res.Sandboxes.Load, "sandbox off", sandboxSessions)
	for _, o := range res.Sandboxes.Openings {
		c := find(res.Sandboxes.Load, o.Path, sandboxSessions)
		n := len(o.Samples)
		if c == nil || n == 0 {
			continue
		}
		fmt.Fprintf(w, "| %s | %.2f | %.2f | %s | %s | %s |\n", o.Path[len("sandbox "):], quantile(o.Samples, 0.5).Seconds()*1e3,
			o.Samples[n-1].Seconds()*1e3, c.cell("%.0f", 1, base, perSecond), c.cell("%.0f", 1e-3, base, p50), c.cell("%.3f", 1, base, cpuAll))
	}
}
