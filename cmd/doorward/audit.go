package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/doorward/doorward/internal/audit"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/plaintext"
)

// auditCommand reads the record, with and without a running daemon.
func auditCommand(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	o := newOptions("audit " + args[0])
	n := o.set.Int("n", 20, "how many records")
	follow := o.set.Bool("follow", false, "go on with new records")
	if _, err := o.parse(args[1:]); err != nil {
		return err
	}
	state, err := o.stateDir()
	if err != nil {
		return err
	}
	c, _ := o.load()
	dir := daemon.AuditDir(state, c)
	switch args[0] {
	case "tail":
		return auditTail(ctx, o, dir, *n, *follow)
	case "verify":
		return auditVerify(o, dir, state)
	case "export":
		return audit.Export(ctx, dir, exactly())
	}
	return errUsage
}

// auditTail prints the last records: with --json as they stand, else one
// line each.
func auditTail(ctx context.Context, o *options, dir string, n int, follow bool) error {
	show := func(line []byte) error {
		if o.json {
			_, err := fmt.Fprintln(stdout(), string(line))
			return err
		}
		return printRecord(line)
	}
	lines, err := audit.Tail(dir, n)
	if err != nil {
		return err
	}
	var last uint64
	for _, l := range lines {
		if err := show(l); err != nil {
			return err
		}
		last = seqOf(l)
	}
	if !follow {
		return nil
	}
	err = audit.Follow(ctx, dir, last+1, show)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// record is what a person wants to see of one line.
type record struct {
	Seq                              uint64
	Time, Kind, Principal            string
	Action, Resource, Decision, Rule string
	Result, Reason, Source           string
	Bytes                            int64
	Ref, Count                       uint64
}

func seqOf(line []byte) uint64 {
	var r record
	if json.Unmarshal(line, &r) != nil {
		return 0
	}
	return r.Seq
}

func printRecord(line []byte) error {
	var r record
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("a line of the record is no JSON: run `doorward audit verify`: %w", err)
	}
	what := r.Decision
	switch r.Kind {
	case "outcome":
		what = fmt.Sprintf("%s (of %d)", r.Result, r.Ref)
	case "event":
		what = "event " + r.Decision + " " + r.Reason
	}
	if r.Rule != "" {
		what += " by " + r.Rule
	}
	_, err := fmt.Fprintf(stdout(), "%d  %s  %s  %s %s  %s\n", r.Seq, r.Time, plaintext.Line(r.Principal), plaintext.Line(r.Action), plaintext.Line(r.Resource), plaintext.Line(what))
	return err
}

// auditVerify checks the chain and its checkpoints.
func auditVerify(o *options, dir, state string) error {
	v, err := audit.LoadVerifier(filepath.Join(state, audit.PublicName))
	if err != nil {
		return err
	}
	report, err := audit.Verify(dir, v)
	if err != nil {
		return err
	}
	if o.json {
		if err := printJSON(report); err != nil {
			return err
		}
	} else if report.OK {
		fmt.Fprintf(stdout(), "ok: %d records, %d checkpoints\n", report.Records, report.Checkpoints)
	}
	if !report.OK {
		return &failure{status: exitFailed, err: fmt.Errorf("record %d: %s", report.FirstBad, report.Reason), quiet: o.json}
	}
	return nil
}
