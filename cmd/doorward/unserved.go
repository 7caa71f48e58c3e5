package main

import (
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream/process"
)

// unserved refuses what a configuration may say and this version does not do.
// A rule that is read and not kept is worse than one that stops the start.
func unserved(file string, c *config.Config) []config.Problem {
	var out []config.Problem
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
	case s.Doorward.Sandbox == process.Strict && !process.CanContain:
		return "sandbox", "sandbox: strict on this system"
	}
	return "", ""
}
