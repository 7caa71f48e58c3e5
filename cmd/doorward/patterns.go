package main

import (
	"errors"
	"fmt"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream/scan"
)

// patternProblems returns the problems of the pattern files of scanned servers. Loading
// the configuration does not check these files: if one becomes invalid, a running daemon
// keeps its earlier rules.
func patternProblems(o *options, c *config.Config) []config.Problem {
	var out []config.Problem
	seen := make(map[string]bool)
	for _, s := range c.Servers {
		path := daemon.PatternFile(c, s)
		if s.Disabled || s.Doorward.Scan == string(scan.Off) || path == "" || seen[path] {
			continue
		}
		seen[path] = true
		for _, err := range split(scan.CheckFile(path)) {
			p := o.problemAt(patternKey(s), path+": "+err.Error()+"; make it, or leave the key out")
			var line *scan.LineError
			if errors.As(err, &line) {
				p = config.Problem{File: path, Line: line.Line, Problem: fmt.Sprint(line.Err)}
			}
			out = append(out, p)
		}
	}
	return out
}

// patternKey returns the key that sets the pattern file of a server.
func patternKey(s *config.Server) string {
	if s.Doorward.ScanPatterns != "" {
		return "mcpServers." + s.Name + ".doorward.scan_patterns"
	}
	return "scan.patterns"
}

// split returns the errors of a joined error.
func split(err error) []error {
	if err == nil {
		return nil
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	return []error{err}
}
