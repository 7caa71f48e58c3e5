package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/auditkey"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/wire"
)

// newAudit returns the commands that read and check the audit log, with and without a
// running daemon.
func newAudit() *cobra.Command {
	tail, show, verify, export := newInvocation(), newInvocation(), newInvocation(), newInvocation()
	n := amount(20)
	tail.set.VarP(&n, "n", "n", "how many records")
	follow := tail.set.Bool("follow", false, "follow new records as they are written")
	archive := verify.set.String("archive", "", "check the archive in this `directory` instead")
	key := verify.set.String("key", "", "the `file` with the public key (default audit.pub of the state directory)")
	to := export.set.String("archive", "", "copy the record and its checkpoints to this `directory`")
	tail.narrows()
	show.narrows()
	accept := verify.set.Bool("accept", false, "accept the log although it lacks records that are known to the database")
	return group("audit", "read and check the record",
		tail.command("tail [-n N] [--follow] [--json] [-v]", "print the last records", "doorward audit tail -n 100 --json", 0, 0,
			func(ctx context.Context, _ []string) error {
				dir, _, err := tail.auditDir()
				if err != nil {
					return err
				}
				return auditTail(ctx, tail.options, dir, int(n), *follow)
			}),
		show.command("show SEQ [--json] [-v]", "print one record", "doorward audit show 42", 1, 1,
			func(_ context.Context, args []string) error {
				dir, _, err := show.auditDir()
				if err != nil {
					return err
				}
				return auditShow(show, dir, args[0])
			}),
		verify.command("verify [--accept] [--archive DIR] [--key FILE] [--json]", "check that no record was changed or removed", "doorward audit verify", 0, 0,
			func(ctx context.Context, _ []string) error {
				if *archive != "" {
					return verifyArchive(verify, *archive, *key)
				}
				dir, state, err := verify.auditDir()
				if err != nil {
					return err
				}
				return auditVerify(ctx, verify, dir, state, *key, *accept)
			}),
		export.command("export [--archive DIR]", "print all records", "doorward audit export > audit.jsonl", 0, 0,
			func(ctx context.Context, _ []string) error {
				dir, _, err := export.auditDir()
				if err != nil {
					return err
				}
				if *to != "" {
					return exportArchive(export, dir, *to)
				}
				return auditlog.Export(ctx, dir, exactly())
			}), newAuditPrune())
}

// auditDir returns the directory of the audit log and the state directory. It is an error
// if no daemon has begun a log there.
func (o *invocation) auditDir() (dir, state string, err error) {
	if state, err = o.stateDir(); err != nil {
		return "", "", err
	}
	c, problems := o.load()
	if c != nil {
		dir = daemon.AuditDir(state, c)
	} else {
		sayOnce(o.options, problems)
		dir, err = auditDirAlone(o.configFile(), state)
	}
	return dir, state, cmp.Or(err, neverBegun(dir, state))
}

// neverBegun returns an error if there is neither the log nor its key. A log that is
// missing beside its key is lost, which the readers of the log report.
func neverBegun(dir, state string) error {
	for _, path := range []string{dir, filepath.Join(state, auditkey.PublicName)} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	return fail(exitFailed, "there is no record in %s yet: the first `doorward serve` begins it; --config and --state-dir name those of another daemon", plaintext.Line(dir))
}

// auditDirAlone returns the directory of the audit log for a configuration with problems. The
// log can be read if they do not concern audit.dir: a variable of the daemon's environment may
// be unset here.
func auditDirAlone(file, state string) (string, error) {
	dir, ok := config.AuditDir(file, lookup)
	if !ok {
		return "", fail(exitFailed, "the configuration has problems: correct them, or name another file with --config")
	}
	return cmp.Or(dir, daemon.AuditDir(state, nil)), nil
}

// auditTail prints the last records: with --json the lines of the log, otherwise one
// short line each.
func auditTail(ctx context.Context, o *options, dir string, n int, follow bool) error {
	show := func(line []byte) error {
		if o.json {
			_, err := fmt.Fprintln(stdout(), string(line))
			return err
		}
		return printRecord(o, line)
	}
	last, err := lastRecords(dir, n, show)
	if err != nil || !follow {
		return err
	}
	err = auditlog.Follow(ctx, dir, last+1, show)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// lastRecords shows the last n records, and returns the number of the last one of the log.
func lastRecords(dir string, n int, show func(line []byte) error) (last uint64, err error) {
	lines, err := auditlog.Tail(dir, max(n, 1))
	if err != nil {
		return 0, err
	}
	for _, l := range lines {
		last = seqOf(l)
		if n < 1 {
			break
		}
		if err := show(l); err != nil {
			return 0, err
		}
	}
	return last, nil
}

// auditShow prints one record: with --json the line of the log, otherwise a line for each member.
func auditShow(o *invocation, dir, number string) error {
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil || seq == 0 {
		return fail(exitUsage, "%q is not a record number; doorward audit tail shows the last records", number)
	}
	line, err := auditlog.Find(dir, seq)
	switch {
	case err != nil:
		return err
	case line == nil:
		return noRecord(seq)
	case o.json:
		_, err := fmt.Fprintln(stdout(), string(line))
		return err
	}
	return printMembers(o, line)
}

func noRecord(seq uint64) error {
	return fail(exitFailed, "there is no record %d; doorward audit tail shows the last ones", seq)
}

// printMembers prints a record for a person: a line for each member, and for each fact.
func printMembers(o *invocation, line []byte) error {
	var rows [][]string
	for key, value := range rawjson.Members(line) {
		if key == "facts" {
			for fact := range rawjson.Elements(value) {
				rows = append(rows, []string{"fact", plaintext.Line(rawText(rawjson.Get(fact, "name")) + " = " + rawText(rawjson.Get(fact, "value")) + " (" + rawText(rawjson.Get(fact, "grade")) + ")")})
			}
			continue
		}
		rows = append(rows, []string{key, plaintext.Line(rawText(value))})
	}
	return o.print(nil, table(rows...))
}

// rawText returns the text of a JSON string, and any other value unchanged.
func rawText(raw []byte) string {
	if text, ok := wire.Text(raw); ok {
		return text
	}
	return string(raw)
}

// record holds the members of a record that printRecord shows.
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

// printRecord prints a record on one line. At a terminal without -v the line is cut to the width.
func printRecord(o *options, line []byte) error {
	var r record
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("a line of the record is not JSON: run `doorward audit verify`: %w", err)
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
	short := screen() && !o.verbose
	if at, err := time.Parse(time.RFC3339Nano, r.Time); err == nil && short {
		r.Time = at.Local().Format("01-02 15:04:05")
	}
	text := fmt.Sprintf("%d  %s  %s  %s %s  %s", r.Seq, r.Time, plaintext.Line(r.Principal), wordOrNothing(r.Action), wordOrNothing(r.Resource), plaintext.Line(what))
	if short {
		text = fit(text, columns())
	}
	_, err := fmt.Fprintln(stdout(), text)
	return err
}

// auditVerified is what `audit verify --json` prints.
type auditVerified struct {
	auditlog.Report
	Unknown string `json:"unknown,omitempty"` // why there was no stored checkpoint to compare with
}

// auditVerify verifies the log and its checkpoints, and compares them with the
// checkpoints stored in the database.
func auditVerify(ctx context.Context, o *invocation, dir, state, key string, accept bool) error {
	v, err := o.verifier(key)
	if err != nil {
		return err
	}
	if accept {
		if err := acceptAudit(ctx, o, dir, state, v); err != nil {
			return err
		}
	}
	kept, unknown := keptMarks(ctx, o, state)
	report, err := auditlog.Verify(dir, v, kept...)
	if err != nil {
		return err
	}
	if !report.OK && !o.json {
		fmt.Fprintf(stderr(), "doorward: this is the log in %s; if the daemon keeps it elsewhere (audit.dir), name the daemon's configuration with --config\n", plaintext.Line(dir))
	}
	return printVerified(o, auditVerified{report, unknown})
}

func printVerified(o *invocation, a auditVerified) error {
	report, unknown := a.Report, a.Unknown
	text := ""
	if report.OK {
		text = fmt.Sprintf("ok: %d records, %d checkpoints\n", report.Records, report.Checkpoints)
	}
	if report.OK && report.Begins > 1 {
		text += fmt.Sprintf("begins with record %d: older ones were pruned on %s\n", report.Begins, report.BegunAt)
	}
	if err := o.print(a, text); err != nil {
		return err
	}
	if report.OK && report.Kept == nil && !o.json {
		fmt.Fprintf(stderr(), "doorward: not compared with a stored checkpoint (%s): the loss of records at the end, or of all records, would not be detected\n", unknown)
	}
	if !report.OK {
		return &failure{status: exitFailed, err: fmt.Errorf("record %d: %s", report.FirstBad, report.Reason), quiet: o.json}
	}
	return nil
}

// keptMarks returns the checkpoints that the log must have, from the daemon, or without a
// running daemon from the database. If there are none, unknown is the reason.
func keptMarks(ctx context.Context, o *invocation, state string) (kept []audit.Mark, unknown string) {
	var k admin.Kept
	err := o.daemon.ask(ctx, "/admin/v1/audit/kept", &k)
	if err == nil && len(k.Marks) == 0 {
		return nil, cmp.Or(k.Unknown, nothingKept)
	} else if err == nil {
		return k.Marks, ""
	}
	if !errors.Is(err, client.ErrNoDaemon) {
		return nil, err.Error()
	}
	with, err := o.daemonOptions(state)
	if err == nil {
		kept, err = daemon.KeptMarks(ctx, with)
	}
	switch {
	case err != nil:
		return nil, err.Error()
	case len(kept) == 0:
		return nil, nothingKept
	}
	return kept, ""
}

const nothingKept = "the database has no checkpoint"

// acceptAudit accepts the present log, which must be intact, although it lacks checkpoints
// that the database has.
func acceptAudit(ctx context.Context, o *invocation, dir, state string, v note.Verifier) error {
	report, err := auditlog.Verify(dir, v)
	if err == nil && !report.OK {
		err = fail(exitFailed, "the log is damaged and cannot be accepted: record %d: %s", report.FirstBad, report.Reason)
	}
	if err != nil {
		return err
	}
	with, err := o.daemonOptions(state)
	if err != nil {
		return err
	}
	return daemon.AcceptAudit(ctx, with)
}

// daemonOptions returns the options for a command that works without a running daemon.
func (o *invocation) daemonOptions(state string) (daemon.Options, error) {
	c, err := configured(o.options)
	if err != nil {
		return daemon.Options{}, err
	}
	log := slog.New(slog.NewTextHandler(logOutput(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	return daemon.Options{Config: c, StateDir: state, Version: version, Log: log, Say: stderr()}, nil
}

// verifier reads the public key from a file; empty: from that of the state directory.
func (o *invocation) verifier(file string) (note.Verifier, error) {
	if file == "" {
		state, err := o.stateDir()
		if err != nil {
			return nil, err
		}
		file = filepath.Join(state, auditkey.PublicName)
	}
	return auditkey.LoadVerifier(file)
}
