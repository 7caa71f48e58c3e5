//go:build linux

package main

import (
	"fmt"
	"io"
)

// maxFetch bounds the 95th percentile of a fetch, in milliseconds. maxLook bounds the time of a
// call with an argument of 4 KiB, relative to the same call without instructions.
const (
	maxFetch = 50
	maxLook  = 1.10
)

func (res *results) printInstructions(w io.Writer) {
	if res.Instructions == nil {
		return
	}
	table(w, "Instructions", fmt.Sprintf("A set of %d documents, in a directory; one request at a time over the Unix socket. Quantiles of all requests; CPU is seconds of the daemon per 1,000 requests. In brackets: the median of the turns' ratios of p50 to health, of `initialize` to the one without a session.", allDocs),
		"path", "requests", "p50 µs", "p95 µs", "p99 µs", "longest µs", "CPU of the daemon", "not whole")
	res.Instructions.printPaths(w, res.Instructions.Fetches)
	table(w, "Calls while marks are looked for", fmt.Sprintf("`tools/call` with an argument of %d bytes, that never repeats, at one HTTP server behind two daemons. In brackets: the median of the turns' ratios to the daemon without instructions.", argumentBytes),
		"path", "requests", "p50 µs", "p95 µs", "p99 µs", "longest µs", "CPU of the daemon", "not whole")
	res.Instructions.printPaths(w, res.Instructions.Calls)
}

func (c *instructCost) printPaths(w io.Writer, costs []fetchCost) {
	for i := range costs {
		f := &costs[i]
		all := f.all()
		if len(all) == 0 {
			continue
		}
		base := c.find(f.Base)
		us := func(q float64) float64 { return quantile(all, q).Seconds() * 1e6 }
		fmt.Fprintf(w, "| %s | %d | %s | %.0f | %.0f | %.0f | %s | %d |\n", f.Path, len(all),
			f.cell("%.0f", us(0.5), base, turnP50), us(0.95), us(0.99), us(1), f.cell("%.3f", f.spent(), base, turnCPU), f.Degraded)
	}
}

// cell formats a figure, and its ratio to the base if there is one.
func (c *fetchCost) cell(format string, value float64, base *fetchCost, figure func(fetchTurn) float64) string {
	text := fmt.Sprintf(format, value)
	if base == nil {
		return text
	}
	return fmt.Sprintf("%s (%.2f)", text, c.ratio(base, figure))
}

// spent returns the processor time of the daemon in seconds per 1,000 requests: the median of the
// turns.
func (c *fetchCost) spent() float64 {
	var all []float64
	for _, t := range c.Turns {
		all = append(all, t.CPU)
	}
	return median(all)
}

// find returns the path with that name, or nil if it was not measured.
func (c *instructCost) find(name string) *fetchCost {
	if c == nil {
		return nil
	}
	for _, list := range [][]fetchCost{c.Fetches, c.Calls} {
		for i := range list {
			if list[i].Path == name && len(list[i].Turns) > 0 {
				return &list[i]
			}
		}
	}
	return nil
}

// judgeInstructions judges delivery: the time of a fetch, the number of degraded fetches, and the
// cost of the search in arguments for calls.
func (res *results) judgeInstructions() []verdict {
	var all []verdict
	asked, degraded, every := 0, 0, true
	for _, name := range fetchPaths {
		late := verdict{Target: "instructions, " + name + ", p95", Bound: maxFetch, Unit: "ms"}
		n := 0
		if f := res.Instructions.find(name); f != nil {
			n = len(f.all())
			asked, degraded = asked+n, degraded+f.Degraded
			late.Measured = f.quantile(0.95).Seconds() * 1e3
		}
		late.Known = n >= judgedFetches
		every = every && late.Known
		all = append(all, late)
	}
	all = append(all, verdict{Target: fmt.Sprintf("instructions, degraded answers of %d fetches", asked), Measured: float64(degraded), Known: every})
	for _, name := range []string{pathLooked, pathShown} {
		price := 0.0
		if f := res.Instructions.find(name); f != nil {
			price = f.ratio(res.Instructions.find(pathUnused), turnP50)
		}
		all = append(all, res.atMost("instructions, "+name+", p50, of the same call without", maxLook, price))
	}
	return all
}
