//go:build linux

// Year makes the record of a year and measures the cost of keeping, reading and pruning it.
//
//	go run ./test/bench/year                       a million calls, about a minute and 1 GB
//	go run ./test/bench/year -calls 10000000       ten million, 9 GB
//	go run ./test/bench/year -dir /big/disk        where the record is made; it is removed at the end
//
// The calls are spread evenly over a year that ends now, each with a decision and an outcome and
// the facts of a caller on the Unix socket. Times are from one run on one machine, in
// milliseconds; a repeatable step is measured three times and the smallest time counts.
package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/daemon/auditkey"
	"github.com/doorward/doorward/internal/daemon/history"
	"github.com/doorward/doorward/internal/daemon/retain"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

func main() {
	calls := flag.Int("calls", 1_000_000, "how many calls the year has")
	dir := flag.String("dir", "", "the `directory` to make it in (default: the system's)")
	program := flag.String("doorward", "bin/doorward", "the program, whose start is measured; without it the rest is")
	flag.Parse()
	if err := run(*dir, *program, *calls); err != nil {
		fmt.Fprintln(os.Stderr, "year: error:", err)
		os.Exit(1)
	}
}

// year is one record and its place.
type year struct {
	state, dir string
	key        *audit.Key
	calls      int
}

func run(parent, program string, calls int) error {
	state, err := os.MkdirTemp(parent, "doorward-year-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(state)
	y := &year{state: state, dir: filepath.Join(state, "audit"), calls: calls}
	if y.key, err = auditkey.LoadOrCreate(filepath.Join(state, "audit.key")); err != nil {
		return err
	}
	begin := time.Now()
	if err := y.write(); err != nil {
		return err
	}
	fmt.Printf("%d calls written in %s\n", calls, time.Since(begin).Round(time.Second))
	if err := y.measure("a year", program); err != nil {
		return err
	}
	if err := y.prune(); err != nil {
		return err
	}
	return y.measure("90 days", program)
}

// open opens the log as the daemon does, with the clock now.
func (y *year) open(now func() time.Time) (*audit.Log, error) {
	return audit.Open(y.dir, audit.Options{Key: y.key, SegmentBytes: 16 << 20, Now: now})
}

func (y *year) write() error {
	now := time.Now().AddDate(-1, 0, 0)
	step := time.Since(now) / time.Duration(2*y.calls+10)
	l, err := y.open(func() time.Time { now = now.Add(step); return now })
	if err != nil {
		return err
	}
	who := caller()
	for i := range y.calls {
		r := audit.Record{Kind: audit.Decision, Source: "gate", Who: who, Session: "5f0c1d9a3b7e2468", Action: "tools/call",
			Resource: fmt.Sprintf("notes/tool_%d", i%50), Decision: audit.Allow, Rule: "default.owner-on-socket", Bytes: 312}
		seq, err := l.Append(&r)
		if err != nil {
			return err
		}
		r.Kind, r.Decision, r.Rule, r.Result, r.Ref, r.Bytes = audit.Outcome, "", "", "ok", seq, 1024
		l.Later(&r)
	}
	return l.Close()
}

// caller returns a principal with about as many facts as one on the Unix socket.
func caller() *principal.Principal {
	return principal.New("uid:1000", principal.Fact{Name: "uid", Value: "1000", Grade: principal.Attested},
		principal.Fact{Name: "gid", Value: "1000", Grade: principal.Attested}, principal.Fact{Name: "pid", Value: "123456", Grade: principal.Attested},
		principal.Fact{Name: "exe", Value: "/usr/local/bin/client", Grade: principal.Observed},
		principal.Fact{Name: "parent_exe", Value: "/usr/bin/bash", Grade: principal.Observed})
}

func (y *year) measure(what, program string) error {
	size, files := y.size()
	fmt.Printf("\n%s: %.0f MB in %d files\n", what, float64(size)/1e6, files)
	ctx := context.Background()
	var report auditlog.Report
	for _, m := range []struct {
		name  string
		times int
		do    func() error
	}{
		{"open and close for writing", 3, func() error {
			l, err := y.open(nil)
			if err != nil {
				return err
			}
			return l.Close()
		}},
		{"the last 100 records", 3, func() error { _, err := auditlog.Tail(y.dir, 100); return err }},
		{"the last 50 acts", 3, func() error { return y.search(ctx, history.Filter{}, 50) }},
		{"50 denied acts (none)", 1, func() error { return y.search(ctx, history.Filter{Outcome: "denied"}, 50) }},
		{"all acts of the last day", 3, func() error {
			return y.search(ctx, history.Filter{From: time.Now().AddDate(0, 0, -1)}, 1<<40)
		}},
		{"verify", 1, func() (err error) { report, err = auditlog.Verify(y.dir, y.key.Verifier); return err }},
	} {
		if err := timed(m.name, m.times, m.do); err != nil {
			return err
		}
	}
	if !report.OK {
		return fmt.Errorf("it does not verify: %+v", report)
	}
	return y.start(program)
}

func (y *year) search(ctx context.Context, f history.Filter, most int) error {
	f.Lines = 1 << 40
	_, err := history.Search(ctx, y.dir, f, 0, most)
	return err
}

// timed prints the smallest time of some rounds.
func timed(name string, times int, do func() error) error {
	least := time.Duration(1 << 62)
	for range times {
		begin := time.Now()
		if err := do(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		least = min(least, time.Since(begin))
	}
	fmt.Printf("  %-28s %9.1f ms\n", name, float64(least.Microseconds())/1000)
	return nil
}

func (y *year) size() (bytes int64, files int) {
	filepath.WalkDir(y.dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if fi, err := d.Info(); err == nil {
				bytes, files = bytes+fi.Size(), files+1
			}
		}
		return nil
	})
	return bytes, files
}

// prune removes the records that are older than 90 days, as the daemon does.
func (y *year) prune() error {
	l, err := y.open(nil)
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Println()
	return timed("prune to 90 days", 1, func() error {
		now := time.Now()
		plan, err := retain.Bounds{Bytes: -1, Before: now.AddDate(0, 0, -90), Closed: true}.Plan(y.dir, now)
		if err == nil && plan.Through > 0 {
			_, err = retain.Pruner{Log: l, Dir: y.dir, Before: func(audit.Beginning) error { return nil }}.Through(context.Background(), plan.Through)
		}
		return err
	})
}

// start measures the time until the daemon is ready, without servers and without a limit of the
// record.
func (y *year) start(program string) error {
	if _, err := os.Stat(program); err != nil {
		return nil
	}
	file := filepath.Join(y.state, "doorward.yaml")
	if err := os.WriteFile(file, []byte("listen: {http: []}\naudit: {retain: {days: 0}}\n"), 0o600); err != nil {
		return err
	}
	return timed("start of the daemon", 3, func() error {
		cmd := exec.Command(program, "serve", "--config", file, "--state-dir", y.state, "--runtime-dir", filepath.Join(y.state, "run"))
		out, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return err
		}
		defer cmd.Wait()
		defer cmd.Process.Kill()
		var line string
		for line != "ready" {
			if _, err := fmt.Fscanln(out, &line); err != nil && line == "" {
				return fmt.Errorf("the daemon did not start: %w", err)
			}
		}
		return nil
	})
}
