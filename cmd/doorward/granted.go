package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream/process"
)

// grantProblems returns a warning for each path in read and write that does not exist. A
// server starts without it.
func grantProblems(o *options, c *config.Config) (out []config.Problem) {
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		if s := c.Servers[name]; s.Usable() && s.Doorward.Sandbox != process.Off {
			for _, p := range absentGrants(o, "mcpServers."+name+".doorward", s.Doorward.Read, s.Doorward.Write) {
				p.Server = name
				out = append(out, p)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Agent.Launchers)) {
		if l := c.Agent.Launchers[name]; l.Refused == "" && l.Sandbox != process.Off {
			out = append(out, absentGrants(o, "agent.launchers."+name, l.Read, l.Write)...)
		}
	}
	return out
}

// absentGrants returns the warnings for the paths of one program, whose lists are below key.
func absentGrants(o *options, key string, read, write []string) (out []config.Problem) {
	for _, list := range []struct {
		key   string
		paths []string
	}{{"read", read}, {"write", write}} {
		for i, path := range list.paths {
			if _, err := os.Lstat(path); !filepath.IsAbs(path) || !errors.Is(err, fs.ErrNotExist) { // a name is that of a profile
				continue
			}
			p := o.problemAt(fmt.Sprintf("%s.%s[%d]", key, list.key, i), path+" does not exist, and is not granted until the program is started again after it was made; correct the path")
			p.Warning = true
			out = append(out, p)
		}
	}
	return out
}

// unsaid returns the problems of keys about which nothing was said before.
func unsaid(before, more []config.Problem) []config.Problem {
	return slices.DeleteFunc(more, func(p config.Problem) bool {
		return slices.ContainsFunc(before, func(b config.Problem) bool { return b.Key == p.Key })
	})
}
