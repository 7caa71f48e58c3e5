package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/trust/audit"
)

// auditReaders are the commands that find the audit log by the configuration and only read it;
// auditWriters change it or what belongs to it. All of them run without a daemon.
var (
	auditReaders = [][]string{{"audit", "tail"}, {"audit", "show", "1"}, {"audit", "export"}, {"log"}}
	auditWriters = [][]string{{"audit", "verify", "--accept"},
		{"audit", "prune", "--yes"}, {"audit", "prune", "--keep-bytes", "0", "--yes"}, {"audit", "prune", "--before", "1s", "--yes"}}
)

// TestAnUnreadableConfigurationIsNotReplacedByDefaults shows that no command changes a log while
// the configuration has a fatal problem, and that none reads the log of the default place if
// the problem can concern audit.dir. Each prints the problem.
func TestAnUnreadableConfigurationIsNotReplacedByDefaults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text, says string // an empty text: there is no file
		read       bool   // the place of the log is certain
	}{
		"a misspelt key":   {"audit: {retain: {days: 0}}\nlgo: {}\n", "doorward.yaml:2: lgo", true},
		"a wrong value":    {"audit: {dir: DIR, retain: {days: -1}}\n", "doorward.yaml:1: audit.retain.days", true},
		"a variable":       {"audit: {dir: DIR}\nstore: {postgres: '${NO_SUCH_VARIABLE}'}\n", "NO_SUCH_VARIABLE", true},
		"its own variable": {"audit: {dir: '${NO_SUCH_VARIABLE}'}\n", "NO_SUCH_VARIABLE", false},
		"a wrong place":    {"audit: {dir: [DIR]}\n", "doorward.yaml:1: audit.dir", false},
		"a misspelt place": {"audit: {dri: DIR}\n", "doorward.yaml:1: audit.dri", false},
		"another case":     {"Audit: {dir: DIR}\n", "doorward.yaml:1: Audit", false},
		"two sections":     {"audit: {sync: always}\naudit: {dir: DIR}\n", "doorward.yaml:2: audit", false},
		"two places":       {"audit: {dir: DIR, dir: /tmp}\n", "doorward.yaml:1: audit.dir", false},
		"a list":           {"audit: [DIR]\n", "doorward.yaml:1: audit", false},
		"a syntax error":   {"audit: {dir: DIR\n", "doorward.yaml:", false},
		"no file":          {"", "no such file", false},
		"a readable file ": {"audit: {dir: DIR, retain: {days: 0}}\n", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := stateWithRecords(t)
			file := filepath.Join(t.TempDir(), "doorward.yaml")
			if text := strings.ReplaceAll(tc.text, "DIR", filepath.Join(state, "audit")); text != "" {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			before := listing(t, state)
			for _, args := range slices.Concat(auditReaders, auditWriters) {
				cmd := exec.Command("doorward", append(args, "--config", file)...)
				cmd.Env = []string{"HOME=" + t.TempDir(), "GORACE=atexit_sleep_ms=0", "DOORWARD_STATE_DIR=" + state}
				var errs strings.Builder
				cmd.Stderr = &errs
				out, err := cmd.Output()
				if tc.says == "" {
					if text := errs.String(); strings.Contains(text, "the configuration has problems") {
						t.Errorf("%v: %s", args, text)
					}
					continue
				}
				reads := slices.ContainsFunc(auditReaders, func(r []string) bool { return slices.Equal(r, args) })
				if tc.read && reads {
					if err != nil || len(out) == 0 || !strings.Contains(errs.String(), tc.says) {
						t.Errorf("%v: %v, %s%s", args, err, out, errs.String())
					}
					continue
				}
				var status *exec.ExitError
				if !errors.As(err, &status) || status.ExitCode() != exitFailed || len(out) > 0 || !strings.Contains(errs.String(), tc.says) {
					t.Errorf("%v: %v, %s%s", args, err, out, errs.String())
				}
				if after := listing(t, state); after != before {
					t.Errorf("%v changed the state:\n%s\nto\n%s", args, before, after)
				}
			}
		})
	}
}

// stateWithRecords returns a state directory with a log in its default place.
func stateWithRecords(t *testing.T) string {
	t.Helper()
	state := t.TempDir()
	log, err := audit.Open(filepath.Join(state, "audit"), audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	write(t, log, fourActs(log.State().Seq+1))
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return state
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("find", dir, "-printf", "%P %s %T@\n").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
