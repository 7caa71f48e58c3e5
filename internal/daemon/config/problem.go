package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// Problem is one problem of a configuration, with its remedy. Its text never contains a secret.
type Problem struct {
	File    string `json:"file"`              // the path as given to Load, empty for the built-in defaults
	Line    int    `json:"line"`              // from 1; 0: the file as a whole
	Key     string `json:"key"`               // such as mcpServers.docs.url or listen.http[0].addr; empty: the file
	Problem string `json:"problem"`           // the problem and its remedy, one line
	Server  string `json:"server,omitempty"`  // not empty: only that server, or launcher:NAME, is refused
	Warning bool   `json:"warning,omitempty"` // it refuses nothing
}

// MarshalJSON adds severity, which is error or warning.
func (p Problem) MarshalJSON() ([]byte, error) {
	type plain Problem
	severity := "error"
	if p.Warning {
		severity = "warning"
	}
	return json.Marshal(struct {
		plain
		Severity string `json:"severity"`
	}{plain(p), severity})
}

// String is the form for a terminal: FILE:LINE: KEY: PROBLEM.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(cmp.Or(p.File, "built-in defaults"))
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	if p.Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(p.Problem)
	return b.String()
}

// Fatal reports whether the configuration as a whole is unusable: some problem is neither a warning nor
// confined to one server. Load returns a nil Config exactly then.
func Fatal(ps []Problem) bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return !p.Warning && p.Server == "" })
}

// OK reports whether all problems are warnings, in which case `doorward check` exits with 0.
func OK(ps []Problem) bool {
	return !slices.ContainsFunc(ps, func(p Problem) bool { return !p.Warning })
}

// report collects the problems of one file, and the lines of its keys.
type report struct {
	name     string
	lines    map[string]int // line of every key that lint has seen
	problems []Problem
	failed   map[string]bool // keys with a problem that is not a warning
	server   string          // not empty: inside this server, whose problems refuse only itself
	muted    bool            // inside a disabled server, whose problems are ignored
	entered  int             // number of problems when that server began
}

func newReport(name string) *report {
	return &report{name: name, lines: map[string]int{}, failed: map[string]bool{}}
}

// fail reports a problem that makes the whole file unusable.
func (r *report) fail(key, text string) { r.failAt(r.line(key), key, text) }

// failAt is fail on a given line.
func (r *report) failAt(line int, key, text string) {
	r.note(Problem{Line: line, Key: key, Problem: text})
}

// note adds a problem and replaces control characters in its text, because a path in an error may contain
// any.
func (r *report) note(p Problem) {
	p.File, p.Problem = r.name, plaintext.Line(p.Problem)
	r.failed[p.Key] = r.failed[p.Key] || !p.Warning
	r.problems = append(r.problems, p)
}

// also is fail for a key that has no problem yet, because a consequence of another problem is not worth a
// line.
func (r *report) also(key, text string) {
	if !r.failed[key] {
		r.fail(key, text)
	}
}

// refuse reports a problem of a value: inside a server it refuses that server, elsewhere the file.
func (r *report) refuse(key, text string) {
	if !r.muted {
		r.note(Problem{Line: r.line(key), Key: key, Problem: text, Server: r.server})
	}
}

// warn reports a warning.
func (r *report) warn(key, text string) {
	if !r.muted {
		r.note(Problem{Line: r.line(key), Key: key, Problem: text, Server: r.server, Warning: true})
	}
}

// line returns the line of a key, or of the nearest key around it.
func (r *report) line(key string) int {
	for {
		if line := r.lines[key]; line > 0 {
			return line
		}
		i := strings.LastIndexAny(key, ".[")
		if i < 0 {
			return 1
		}
		key = key[:i]
	}
}
