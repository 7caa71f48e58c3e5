package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// Problem is one thing wrong with a configuration, and what to do about it. Problem's text never holds a secret.
type Problem struct {
	File    string `json:"file"`              // the path as it was given to Load, empty for the built-in defaults
	Line    int    `json:"line"`              // from 1; 0: the file as a whole
	Key     string `json:"key"`               // such as mcpServers.docs.url or listen.http[0].addr; empty: the file
	Problem string `json:"problem"`           // what is wrong and what to do, one line
	Server  string `json:"server,omitempty"`  // not empty: only that server, or launcher:NAME, is refused, the rest runs
	Warning bool   `json:"warning,omitempty"` // worth saying, stops nothing
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

// Fatal tells whether the configuration as a whole is unusable: some problem is neither a warning nor confined to one
// server. Load returns a nil Config exactly then.
func Fatal(ps []Problem) bool {
	for _, p := range ps {
		if !p.Warning && p.Server == "" {
			return true
		}
	}
	return false
}

// OK tells whether there is nothing but warnings: what `doorward check` exits 0 for.
func OK(ps []Problem) bool {
	for _, p := range ps {
		if !p.Warning {
			return false
		}
	}
	return true
}
