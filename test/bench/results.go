//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// results holds a whole run, in the form that -json writes.
type results struct {
	Machine      machine       `json:"machine"`
	Modern       bool          `json:"modern"`
	Doorward     bool          `json:"doorward"`
	Load         []cell        `json:"load"`
	Big          []cell        `json:"big"`
	Openings     []opening     `json:"openings"`
	Sandboxes    *shutIn       `json:"sandboxes"` // nil when not measured
	Identity     []lookup      `json:"identity"`
	Idle         []idleCost    `json:"idle"`
	Decisions    []decision    `json:"decisions"`
	Mail         *mailCost     `json:"mail"`         // nil when not measured
	Instructions *instructCost `json:"instructions"` // nil when not measured
	Beside       *besides      `json:"beside"`       // nil when not measured
	Verdicts     []verdict     `json:"verdicts"`
	Took         time.Duration `json:"took_ns"`
	Failures     []string      `json:"failures"`
}

// machine describes the machine and the run, without which the figures cannot be interpreted.
type machine struct {
	Cores    int    `json:"cores"`
	CPU      string `json:"cpu"`
	Kernel   string `json:"kernel"`
	Go       string `json:"go"`
	Revision string `json:"revision"`     // of the source, if git knows it
	Load     string `json:"load_average"` // over the minute before; must be near 0 for a valid measurement
	Command  string `json:"command"`
	When     string `json:"when"`
}

func machineFacts() machine {
	return machine{
		Cores: runtime.NumCPU(), CPU: processorName(), Kernel: kernelRelease(), Go: runtime.Version(),
		Revision: revision(), Load: loadAverage(), Command: "bench " + strings.Join(os.Args[1:], " "),
		When: time.Now().UTC().Format(time.RFC3339),
	}
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:]) + " " +
		unix.ByteSliceToString(u.Machine[:])
}

func processorName() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

// revision asks git, because `go run` does not stamp its binary.
func revision() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown revision"
	}
	return "revision " + strings.TrimSpace(string(out))
}

// loadAverage returns the load of the machine over the minute before the run.
func loadAverage() string {
	b, _ := os.ReadFile("/proc/loadavg")
	average, _, _ := strings.Cut(string(b), " ")
	return average
}

func (res *results) save(file string) error {
	b, err := json.MarshalIndent(res, "", "  ")
	if err == nil {
		err = os.WriteFile(file, append(b, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return nil
}

// find returns the cell of a path at a number of sessions, or nil if it was not measured.
func find(cells []cell, name string, sessions int) *cell {
	for i := range cells {
		if cells[i].Path == name && cells[i].Sessions == sessions && len(cells[i].Rounds) > 0 {
			return &cells[i]
		}
	}
	return nil
}

// median returns the median of one figure over the rounds.
func (c *cell) median(figure func(window) float64) float64 {
	values := make([]float64, len(c.Rounds))
	for i, w := range c.Rounds {
		values[i] = figure(w)
	}
	return median(values)
}

// ratio returns the median over the rounds of a figure of c divided by that of base. The two
// windows of a round are adjacent in time, so a slowdown of the machine in a round cancels out.
func (c *cell) ratio(base *cell, figure func(window) float64) float64 {
	if base == nil {
		return 0
	}
	var values []float64
	for i := range min(len(c.Rounds), len(base.Rounds)) {
		values = append(values, figure(c.Rounds[i])/figure(base.Rounds[i]))
	}
	return median(values)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// The figures that are compared.
func perSecond(w window) float64   { return w.PerSecond }
func p50(w window) float64         { return float64(w.P50) }
func p99(w window) float64         { return float64(w.P99) }
func cpuAll(w window) float64      { return w.cpu() }
func cpuProxy(w window) float64    { return w.Proxy }
func cpuUpstream(w window) float64 { return w.Upstream }
