package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/messaging/agent"
)

// hintUnconfigured prints a hint for each of the servers that the configuration does not have.
// It prints none if the configuration cannot be used.
func hintUnconfigured(o *options, servers ...string) {
	c, _ := o.load()
	if c == nil {
		return
	}
	slices.Sort(servers)
	for _, name := range slices.Compact(servers) {
		if _, known := c.Servers[name]; known || name == agent.ServerName || name == deliver.ServerName {
			continue
		}
		fmt.Fprintf(stderr(), "doorward: hint: there is no server %q in the configuration (%s)\n", name, cmp.Or(o.configFile(), "built-in defaults"))
	}
}

// scopeServers returns the servers that a scope of a token names.
func scopeServers(scope string) (out []string) {
	for item := range strings.SplitSeq(scope, ",") {
		if _, object, named := strings.Cut(item, ":"); named {
			server, _, _ := strings.Cut(object, "/")
			out = append(out, server)
		}
	}
	return out
}
