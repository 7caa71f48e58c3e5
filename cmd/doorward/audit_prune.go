package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/retain"
)

// newAuditPrune returns the command that removes old records, with and without a running daemon.
func newAuditPrune() *cobra.Command {
	o := newInvocation()
	p := &pruner{o: o, in: bufio.NewReader(os.Stdin)}
	o.set.StringVar(&p.before, "before", "", "remove records older than this date, or this duration such as 90d")
	o.set.Int64Var(&p.bytes, "keep-bytes", -1, "remove the oldest records until the rest has at most this size")
	o.set.StringVar(&p.archive, "archive", "", "copy the removed records to this `directory` first")
	o.set.BoolVar(&p.yes, "yes", false, "remove without asking")
	return o.command("prune [--before DATE | --keep-bytes N] [--archive DIR] [--yes] [--json]", "remove the oldest records",
		"doorward audit prune --before 90d --archive ~/audit-archive", 0, 0, func(ctx context.Context, _ []string) error { return p.run(ctx) })
}

// pruner is one run of `audit prune`.
type pruner struct {
	o               *invocation
	before, archive string
	bytes           int64
	yes             bool
	in              *bufio.Reader
	dir, state      string
}

// pruned is what `audit prune --json` prints.
type pruned struct {
	Pruned   bool   `json:"pruned"`
	Records  uint64 `json:"records"`  // number of records that are removed, or would be
	Segments int    `json:"segments"` // number of their segments
	Bytes    int64  `json:"bytes"`
	Begins   uint64 `json:"begins,omitempty"` // number of the first remaining record
	Archive  string `json:"archive,omitempty"`
}

func (p *pruner) run(ctx context.Context) (err error) {
	if _, err := configured(p.o.options); err != nil {
		return err // also with bounds of its own: what it removes cannot be brought back
	}
	bounds, err := p.bounds()
	if err != nil {
		return err
	}
	if p.dir, p.state, err = p.o.auditDir(); err != nil {
		return err
	}
	plan, err := bounds.Plan(p.dir, time.Now())
	if err != nil {
		return err
	}
	out := pruned{Records: plan.Records, Segments: plan.Segments, Bytes: plan.Bytes}
	if plan.Through == 0 {
		return p.o.print(out, "nothing to remove: only whole segments are removed, and none is old enough\n")
	}
	if err := p.agreed(plan); err != nil {
		if p.o.json {
			err = errors.Join(printJSON(out), err)
		}
		return err
	}
	return p.remove(ctx, bounds, plan)
}

// bounds returns the bounds of the flags, or without flags those of audit.retain.
func (p *pruner) bounds() (b retain.Bounds, err error) {
	b.Bytes = -1
	byBytes := p.o.set.Changed("keep-bytes")
	switch {
	case p.before != "" && byBytes:
		return b, fail(exitUsage, "--before and --keep-bytes exclude each other")
	case byBytes && p.bytes < 0:
		return b, fail(exitUsage, "--keep-bytes must not be negative")
	case byBytes:
		b.Bytes = p.bytes
		return b, nil
	case p.before != "":
		if b.Before, err = sinceTime(p.before, time.Now()); err != nil {
			return b, fail(exitUsage, "--before %q: %v", p.before, err)
		}
		return b, nil
	}
	c, err := configured(p.o.options)
	if err != nil {
		return b, err
	}
	r := c.Audit.Retain
	if r.Days > 0 {
		b.Before = time.Now().AddDate(0, 0, -r.Days)
	}
	if r.Bytes > 0 {
		b.Bytes = r.Bytes
	}
	return b, nil
}

// agreed shows what is removed and asks for consent; nil: it is given.
func (p *pruner) agreed(plan retain.Plan) error {
	if p.yes {
		return nil
	}
	yes, asked := false, false
	text := fmt.Sprintf("%d records until %s, %s in %d segments", plan.Records, plan.Last.Local().Format(time.DateTime), sizeOf(plan.Bytes), plan.Segments)
	if !p.o.json {
		fmt.Fprintln(stdout(), "to be removed: "+text)
		yes, asked = confirm(p.in, "remove them?")
	}
	switch {
	case yes:
		return nil
	case !asked:
		return fail(exitRefused, "nothing was removed: use --yes, or run this from a terminal")
	}
	return fail(exitRefused, "nothing was removed")
}

// remover changes the log through its writer: the daemon, or this process if none runs.
type remover struct {
	turn    func() error                           // begins a new segment
	through func(n int) (begins uint64, err error) // removes the segments up to n
	end     func()
}

// remove removes the records of the plan, after it has archived them if requested.
func (p *pruner) remove(ctx context.Context, bounds retain.Bounds, plan retain.Plan) error {
	r, err := p.remover(ctx)
	if err != nil {
		return err
	}
	defer r.end()
	if plan.Turn {
		if err := r.turn(); err != nil {
			return err
		}
		bounds.Closed = true // the new segment stays
		if plan, err = bounds.Plan(p.dir, time.Now()); err != nil || plan.Through == 0 {
			return err
		}
	}
	if err := p.archived(plan.Through); err != nil {
		return err
	}
	out := pruned{Pruned: true, Records: plan.Records, Segments: plan.Segments, Bytes: plan.Bytes, Archive: p.archive}
	if out.Begins, err = r.through(plan.Through); err != nil {
		return err
	}
	return p.o.print(out, fmt.Sprintf("removed %d segments, %s: the first remaining record is %d\n", out.Segments, sizeOf(out.Bytes), out.Begins))
}

// archived copies the segments up to through to the archive, if there is one.
func (p *pruner) archived(through int) error {
	if p.archive == "" {
		return nil
	}
	v, err := p.o.verifier("")
	if err != nil {
		return err
	}
	_, err = retain.Archive(p.dir, p.archive, through, v)
	return err
}

func (p *pruner) remover(ctx context.Context) (r remover, err error) {
	err = p.o.daemon.ask(ctx, "/admin/v1/audit/kept", &admin.Kept{})
	if err == nil {
		return remover{
			turn:    func() error { _, err := p.order(ctx, admin.Prune{Turn: true}); return err },
			through: func(n int) (uint64, error) { return p.order(ctx, admin.Prune{Through: n}) },
			end:     func() {},
		}, nil
	}
	if !errors.Is(err, client.ErrNoDaemon) {
		return r, err
	}
	with, err := p.o.daemonOptions(p.state)
	if err != nil {
		return r, err
	}
	offline, end, err := daemon.OpenPruning(ctx, with)
	if err != nil {
		return r, err
	}
	return remover{turn: offline.Turn, through: func(n int) (uint64, error) { return offline.Through(ctx, n) }, end: end}, nil
}

// order makes the daemon do a step of the removal.
func (p *pruner) order(ctx context.Context, ask admin.Prune) (begins uint64, err error) {
	var done admin.Pruned
	if err := p.o.daemon.tell(ctx, "/admin/v1/audit/prune", ask, &done); err != nil {
		return 0, err
	}
	if done.Problem != "" {
		return 0, errors.New(done.Problem)
	}
	return done.Begins, nil
}

// verifyArchive verifies an archive, for which only the public key is needed.
func verifyArchive(o *invocation, dir, key string) error {
	v, err := o.verifier(key)
	if err != nil {
		return err
	}
	report, err := auditlog.Verify(dir, v)
	if err != nil {
		return err
	}
	if report.OK && report.Records == 0 {
		report.OK, report.FirstBad, report.Reason = false, 1, "there is none: the directory holds no archive"
	}
	return printVerified(o, auditVerified{report, "an archive"})
}

// exportArchive copies the whole log to an archive.
func exportArchive(o *invocation, dir, to string) error {
	v, err := o.verifier("")
	if err != nil {
		return err
	}
	r, err := retain.Archive(dir, to, 0, v)
	if err != nil {
		return err
	}
	return o.print(auditVerified{r, "an archive"}, fmt.Sprintf("ok: %d records from %d on in %s\n", r.Records, r.Begins, to))
}
