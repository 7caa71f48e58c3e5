package main

import (
	"os"
	"strings"

	"github.com/doorward/doorward/internal/child"
	"github.com/doorward/doorward/internal/config"
)

// unserved refuses what a configuration may say and this version does not do.
// A rule that is read and not kept is worse than one that stops the start.
func unserved(file string, c *config.Config) []config.Problem {
	var out []config.Problem
	for _, s := range []struct {
		set       bool
		key, what string
	}{
		{c.Instructions.URL != "", "instructions", "a remote instruction store"},
	} {
		if s.set {
			out = append(out, config.Problem{File: file, Line: lineOf(file, s.key), Key: s.key,
				Problem: "this version does not support " + s.what + " yet: remove the key"})
		}
	}
	for _, s := range c.Servers {
		if s.Refused != "" || s.Disabled {
			continue
		}
		if key, what := unservedServer(s); key != "" {
			s.Refused = what + " is not supported by this version yet: remove doorward." + key
			out = append(out, config.Problem{File: file, Line: s.Line, Key: "mcpServers." + s.Name + ".doorward." + key,
				Problem: s.Refused, Server: s.Name})
		}
	}
	return out
}

// unservedServer names what of a server's handling is not built: the server
// is refused then, since it would run with less than was asked for.
func unservedServer(s *config.Server) (key, what string) {
	switch {
	case s.Doorward.Sandbox == child.Strict && !child.CanContain:
		return "sandbox", "sandbox: strict on this system"
	}
	return "", ""
}

// lineOf finds a top-level key; 0 when it does not stand at the start of a
// line, as in JSON on one line.
func lineOf(file, key string) int {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for i, line := range strings.Split(string(b), "\n") {
		line = strings.TrimLeft(line, " \t")
		if strings.HasPrefix(line, key+":") || strings.HasPrefix(line, `"`+key+`"`) {
			return i + 1
		}
	}
	return 0
}
