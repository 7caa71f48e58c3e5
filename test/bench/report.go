//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// print writes the run as Markdown.
func (res *results) print(w io.Writer) {
	m := res.Machine
	era := legacyVersion
	if res.Modern {
		era = modernVersion
	}
	fmt.Fprintf(w, "# Doorward benchmark\n\n%s, %d cores, load before %s, %s, %s, %s, %s; MCP %s; `%s`; took %v\n",
		m.CPU, m.Cores, m.Load, m.Kernel, m.Go, m.Revision, m.When, era, m.Command, res.Took.Round(time.Second))
	res.printLoad(w)
	res.printBig(w)
	res.printOpenings(w)
	res.printSandboxes(w)
	res.printIdentity(w)
	res.printIdle(w)
	res.printDecisions(w)
	res.printMail(w)
	res.printInstructions(w)
	res.printBeside(w)
	res.Verdicts = res.judge()
	if res.Doorward || res.Mail != nil {
		printVerdicts(w, res.Verdicts)
	}
	printStalls(w, res.Load)
	printStalls(w, res.Big)
	for _, f := range res.Failures {
		fmt.Fprintf(w, "\nFAILED: %s\n", f)
	}
}

func table(w io.Writer, title, note string, columns ...string) {
	fmt.Fprintf(w, "\n## %s\n\n%s\n\n| %s |\n|%s\n", title, note, strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
}

func (res *results) printLoad(w io.Writer) {
	if len(res.Load) == 0 {
		return
	}
	table(w, "Small calls", "Medians of the rounds. CPU is seconds per 1,000 calls, the generator's left out. In brackets: the median of the rounds' ratios to the reverse proxy.",
		"sessions", "path", "calls/s", "p50 µs", "p99 µs", "CPU proxy", "CPU upstream", "CPU both")
	for i := range res.Load {
		c := &res.Load[i]
		if len(c.Rounds) == 0 {
			continue
		}
		base := find(res.Load, pathReverse, c.Sessions)
		fmt.Fprintf(w, "| %d | %s | %s | %s | %s | %s | %.3f | %s |\n", c.Sessions, c.Path,
			c.cell("%.0f", 1, base, perSecond), c.cell("%.0f", 1e-3, base, p50), c.cell("%.0f", 1e-3, base, p99),
			c.cell("%.3f", 1, base, cpuProxy), c.median(cpuUpstream), c.cell("%.3f", 1, base, cpuAll))
	}
}

// printStalls lists rounds with an answer that took longer than stallNote.
func printStalls(w io.Writer, cells []cell) {
	for _, c := range cells {
		for i, round := range c.Rounds {
			if round.Longest > stallNote {
				fmt.Fprintf(w, "\nSTALL: %s, %d sessions, %s, round %d: an answer took %v.\n", c.Path, c.Sessions, c.Tool, i+1, round.Longest.Round(100*time.Millisecond))
			}
		}
	}
}

// cell formats a median, and its ratio to the base if there is one.
func (c *cell) cell(format string, unit float64, base *cell, figure func(window) float64) string {
	text := fmt.Sprintf(format, unit*c.median(figure))
	if base == nil {
		return text
	}
	return fmt.Sprintf("%s (%.2f)", text, c.ratio(base, figure))
}

func (res *results) printBig(w io.Writer) {
	if len(res.Big) == 0 {
		return
	}
	table(w, "A result of 1 MiB", "One session; medians of the rounds.", "path", "p50 ms", "p99 ms", "CPU ms per call, proxy", "CPU ms per call, both")
	base := find(res.Big, pathReverse, 1)
	for i := range res.Big {
		c := &res.Big[i]
		if len(c.Rounds) == 0 {
			continue
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", c.Path, c.cell("%.2f", 1e-6, base, p50), c.cell("%.2f", 1e-6, base, p99),
			c.cell("%.2f", 1, base, cpuProxy), c.cell("%.2f", 1, base, cpuAll))
	}
}

func (res *results) printOpenings(w io.Writer) {
	if len(res.Openings) == 0 {
		return
	}
	table(w, "Opening a session", "Connect, initialize, initialized, one after the other; with a stdio upstream it includes the start of the server.", "path", "p50 ms", "worst ms", "sessions")
	for _, o := range res.Openings {
		if n := len(o.Samples); n > 0 {
			fmt.Fprintf(w, "| %s | %.2f | %.2f | %d |\n", o.Path, quantile(o.Samples, 0.5).Seconds()*1e3, o.Samples[n-1].Seconds()*1e3, n)
		}
	}
}

func (res *results) printIdle(w io.Writer) {
	if len(res.Idle) == 0 {
		return
	}
	table(w, "Memory", "Resident memory of the proxy's process alone, fresh and then with idle sessions, each with an open GET stream and a kept connection. The stdio servers of this section are minimal ones, and not counted.",
		"path", "at rest MiB", "anonymous MiB", "idle sessions", "with them MiB", "KiB a session")
	for _, c := range res.Idle {
		fmt.Fprintf(w, "| %s | %.1f | %.1f | %d | %.1f | %.1f |\n", c.Path, float64(c.Start.RSS)/1024, float64(c.Start.Anon)/1024,
			c.Sessions, float64(c.Open.RSS)/1024, c.perSession())
	}
}

// printVerdicts lists the targets that were measured in this run.
func printVerdicts(w io.Writer, all []verdict) {
	table(w, "Targets", "Ratios are to the reverse proxy in front of the same tools over HTTP; those of messages to the bare loop, of calls beside instructions, rules and a console to a daemon without.", "target", "bound", "measured", "")
	unknown := 0
	for _, v := range all {
		if !v.Known {
			unknown++
			continue
		}
		bound, unit := "at most", ""
		if v.AtLeast {
			bound = "at least"
		}
		if v.Unit != "" {
			unit = " " + v.Unit
		}
		word := "MISS"
		if v.pass() {
			word = "pass"
		}
		fmt.Fprintf(w, "| %s | %s %g%s | %.2f%s | %s |\n", v.Target, bound, v.Bound, unit, v.Measured, unit, word)
	}
	if unknown > 0 {
		fmt.Fprintf(w, "\n%d targets were not measured in this run.\n", unknown)
	}
}
