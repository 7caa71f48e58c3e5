package main

import (
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream/process"
)

// unserved refuses servers whose configuration requires something that this
// version does not support, and returns the problems. Ignoring the key would run a server
// with less protection than configured.
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

// unservedServer returns a key of a server that is not supported; empty: none.
func unservedServer(s *config.Server) (key, what string) {
	switch {
	case s.Doorward.Sandbox == process.Strict && !process.CanContain:
		return "sandbox", "sandbox: strict on this system"
	}
	return "", ""
}
