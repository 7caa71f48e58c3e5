package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/auditkey"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/daemon/health"
	"github.com/doorward/doorward/internal/downstream/listen"
)

// diagnosis is what `doctor --json` prints.
type diagnosis struct {
	OK     bool           `json:"ok"`
	Checks []health.Check `json:"checks"`
}

// newDoctor returns the command that checks everything that a start and a call need.
func newDoctor() *cobra.Command {
	o := newInvocation()
	o.takesHere, o.unvetted = true, true
	tokenFile := o.set.String("token-file", "", "file with a bearer token for TCP listeners, as for serve")
	return o.command("doctor [--token-file F] [--json]", "diagnose problems and suggest what to do", "doorward doctor", 0, 0,
		func(ctx context.Context, _ []string) error {
			if o.noTokenFile() {
				return errNoTokenFile
			}
			return doctor(ctx, o, *tokenFile)
		})
}

func doctor(ctx context.Context, o *invocation, tokenFile string) error {
	all := configurationChecks(o, tokenFile)
	all = append(all, directoryChecks(o)...)
	all = append(all, unsaidChecks(all, daemonChecks(ctx, o))...)
	all = append(all, recordCheck(ctx, o))
	d := diagnosis{OK: !slices.ContainsFunc(all, func(c health.Check) bool { return c.State == health.Fail }), Checks: all}
	if err := printDiagnosis(o, d); err != nil || d.OK {
		return err
	}
	return &failure{status: exitFailed, err: errors.New("problems were found"), quiet: true}
}

// unsaidChecks leaves out of checks what a check before them has found: a server is refused because of a problem
// of the configuration.
func unsaidChecks(before, checks []health.Check) []health.Check {
	return slices.DeleteFunc(checks, func(k health.Check) bool {
		why, refused := strings.CutPrefix(k.Found, "refused: ")
		return refused && slices.ContainsFunc(before, func(b health.Check) bool { return b.State == k.State && strings.HasSuffix(b.Found, why) })
	})
}

func printDiagnosis(o *invocation, d diagnosis) error {
	if o.json {
		return printJSON(d)
	}
	for _, c := range d.Checks {
		text := fmt.Sprintf("%-4s  %s: %s", c.State, plaintext.Line(c.Name), plaintext.Line(c.Found))
		if c.Todo != "" {
			text += "\n      " + plaintext.Line(c.Todo)
		}
		for i, line := range wrapped(text, columns()) {
			if i > 0 {
				line = "      " + strings.TrimSpace(line)
			}
			if err := printLine(line, map[string]colour{health.Warn: yellow, health.Fail: red}[c.State]); err != nil {
				return err
			}
		}
	}
	return nil
}

// wrapped breaks a text at spaces into lines of at most width-6 characters. A longer word
// is not broken.
func wrapped(text string, width int) (lines []string) {
	for part := range strings.SplitSeq(text, "\n") {
		line := ""
		for word := range strings.SplitSeq(part, " ") {
			if line != "" && len([]rune(line))+1+len([]rune(word)) > width-6 && strings.TrimSpace(line) != "" {
				lines, line = append(lines, line), word
				continue
			}
			if line == "" {
				line = word
			} else {
				line += " " + word
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// configurationChecks returns a check for each problem that `doorward check` reports.
func configurationChecks(o *invocation, tokenFile string) []health.Check {
	name, file := "configuration", o.configFile()
	if file == "" {
		file = "none: the built-in defaults apply"
	}
	var out []health.Check
	for _, p := range o.allProblems(tokenFile) {
		k := health.Check{Name: name, State: health.Fail, Found: p.String(), Todo: "Correct it; doorward check shows all problems."}
		if p.Warning {
			k.State, k.Todo = health.Warn, ""
		}
		out = append(out, k)
	}
	if len(out) == 0 {
		out = append(out, health.Check{Name: name, State: health.OK, Found: file})
	}
	return out
}

// directoryChecks checks that only their owner can use the directories of the daemon.
func directoryChecks(o *invocation) []health.Check {
	var out []health.Check
	for _, d := range []struct {
		name string
		find func() (string, error)
	}{{"state directory", o.stateDir}, {"runtime directory", o.runtimeDir}} {
		path, err := d.find()
		if err != nil {
			out = append(out, health.Check{Name: d.name, State: health.Fail, Found: err.Error(), Todo: "Name one with --state-dir or --runtime-dir."})
			continue
		}
		out = append(out, directoryCheck(d.name, path))
	}
	return out
}

func directoryCheck(name, path string) health.Check {
	k := health.Check{Name: name, State: health.OK, Found: path}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if above := existing(path); !mayWrite(above) {
			k.State, k.Found, k.Todo = health.Fail, path+" cannot be made: you may not write in "+above, "Make it yourself, or name another one with --state-dir or --runtime-dir."
			break
		}
		k.Found += " (made at the first start)"
	case err != nil:
		k.State, k.Found, k.Todo = health.Fail, err.Error(), "Make yourself the owner of the directory."
	case !info.IsDir():
		k.State, k.Found, k.Todo = health.Fail, path+" is not a directory", "Remove it, or name another one."
	case info.Mode().Perm()&0o077 != 0:
		k.State, k.Found, k.Todo = health.Fail, fmt.Sprintf("%s is accessible to others (mode %#o)", path, info.Mode().Perm()), "Run chmod 700 "+path+"."
	}
	return k
}

// builtinDefaults stands for a configuration without a file.
const builtinDefaults = "the built-in defaults"

// ofFile makes the check of the configuration in force, the first one, a warning if the daemon uses another file
// than the one that is checked here.
func ofFile(checks []health.Check, here, there string) []health.Check {
	if sameFile(here, there) {
		return checks
	}
	k := &checks[0]
	if k.State == health.OK {
		k.State = health.Warn
	}
	k.Found += "; this command checks " + cmp.Or(here, builtinDefaults)
	if there != "" {
		k.Todo = strings.TrimSpace(k.Todo + " Run doorward doctor --config " + there + " to check the one in force.")
	}
	if path, err := filepath.Abs(here); err == nil && here != "" && here != config.Here { // that one needs doorward allow
		k.Todo = strings.TrimSpace(k.Todo + " To use the other one, start the daemon with --config " + path + ".")
	}
	return checks
}

// sameFile reports whether two paths name one file; empty: none.
func sameFile(a, b string) bool {
	if a == b || a == "" || b == "" {
		return a == b
	}
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// existing returns a path if it exists, otherwise the nearest directory above it that does.
func existing(path string) string {
	for path != filepath.Dir(path) && !exists(path) {
		path = filepath.Dir(path)
	}
	return path
}

// daemonChecks checks the running daemon, and without one the addresses that it would bind.
func daemonChecks(ctx context.Context, o *invocation) []health.Check {
	var s admin.Status
	err := o.daemon.ask(ctx, "/admin/v1/status", &s)
	switch {
	case errors.Is(err, client.ErrNoDaemon):
		none := health.Check{Name: "daemon", State: health.Warn, Found: "none is running", Todo: "Run doorward serve."}
		return append([]health.Check{none}, portChecks(o)...)
	case err != nil:
		return []health.Check{{Name: "daemon", State: health.Fail, Found: err.Error(), Todo: "Run doorward whoami to see what the daemon knows of this program."}}
	}
	k := health.Check{Name: "daemon", State: health.OK, Found: "version " + s.Version}
	if s.Version != version {
		k.State, k.Found, k.Todo = health.Warn, fmt.Sprintf("the daemon has version %s, this program %s", s.Version, version), "Restart the daemon."
	}
	return append([]health.Check{k}, ofFile(health.OfStatus(s), o.configFile(), s.Configuration.File)...)
}

// portChecks checks whether another program uses the addresses of the configuration.
func portChecks(o *invocation) (out []health.Check) {
	c, _ := o.load()
	if c == nil {
		return nil
	}
	for _, l := range c.Listen.HTTP {
		k := health.Check{Name: "address " + l.Addr, State: health.OK, Found: "free"}
		if err := listen.Free(l.Addr); err != nil {
			k.State, k.Found, k.Todo = health.Fail, err.Error(), "Stop the other program, or set another address under listen.http."
		}
		out = append(out, k)
	}
	return out
}

// mostVerified is the size in bytes up to which doctor verifies the audit log.
const mostVerified = 64 << 20

// recordCheck verifies the audit log, if it is small enough to do so quickly.
func recordCheck(ctx context.Context, o *invocation) health.Check {
	k := health.Check{Name: "chain of the record", State: health.OK}
	state, err := o.stateDir()
	if err != nil {
		return health.Check{Name: k.Name, State: health.Fail, Found: err.Error()}
	}
	dir, err := auditDirAlone(o.configFile(), state)
	if c, _ := o.load(); c != nil {
		dir, err = daemon.AuditDir(state, c), nil
	}
	if err != nil {
		return health.Check{Name: k.Name, State: health.Warn, Found: "not verified: the configuration, which can name its directory, has problems"}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.jsonl")) // the pattern is valid
	size := int64(0)
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			size += info.Size()
		}
	}
	switch {
	case len(files) == 0:
		k.Found = "there is none yet"
		return k
	case size > mostVerified:
		k.Found, k.Todo = fmt.Sprintf("%s, not verified here", sizeOf(size)), "Run doorward audit verify."
		return k
	}
	return verifiedRecord(ctx, o, k, dir, state)
}

func verifiedRecord(ctx context.Context, o *invocation, k health.Check, dir, state string) health.Check {
	v, err := auditkey.LoadVerifier(filepath.Join(state, auditkey.PublicName))
	if err == nil {
		var report auditlog.Report
		kept, _ := keptMarks(ctx, o, state)
		if report, err = auditlog.Verify(dir, v, kept...); err == nil && !report.OK {
			err = fmt.Errorf("record %d: %s", report.FirstBad, report.Reason)
		}
		k.Found = fmt.Sprintf("%d records, %d checkpoints, the last one at %s", report.Records, report.Checkpoints, lastCheckpoint(report))
	}
	if err != nil {
		k.State, k.Found, k.Todo = health.Fail, err.Error(), "Keep a copy of "+dir+" and find out who changed it."
	}
	return k
}

func lastCheckpoint(r auditlog.Report) string {
	if r.Kept == nil {
		return "an unknown time"
	}
	t, err := time.Parse(time.RFC3339Nano, r.Kept.Time)
	if err != nil {
		return r.Kept.Time
	}
	return t.Local().Format(time.DateTime)
}
