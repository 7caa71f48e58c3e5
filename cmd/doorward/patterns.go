package main

import (
	"errors"
	"fmt"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream/scan"
)

// patternProblems checks the pattern files of servers that are scanned. Loading
// does not check them: when a file becomes invalid, a running daemon keeps its
// earlier rules.
func patternProblems(c *config.Config) []config.Problem {
	var out []config.Problem
	seen := make(map[string]bool)
	for _, s := range c.Servers {
		path := daemon.PatternFile(c, s)
		if s.Disabled || s.Doorward.Scan == string(scan.Off) || path == "" || seen[path] {
			continue
		}
		seen[path] = true
		for _, err := range split(scan.CheckFile(path)) {
			p := config.Problem{File: path, Problem: err.Error()}
			var line *scan.LineError
			if errors.As(err, &line) {
				p.Line, p.Problem = line.Line, fmt.Sprint(line.Err)
			}
			out = append(out, p)
		}
	}
	return out
}

// split takes joined errors apart.
func split(err error) []error {
	if err == nil {
		return nil
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	return []error{err}
}
