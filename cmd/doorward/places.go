package main

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/upstream/process"
)

// problemAt returns a problem of the configuration, with the line of its key.
func (o *options) problemAt(key, text string) config.Problem {
	file := o.configFile()
	return config.Problem{File: file, Line: config.LineOf(file, key), Key: key, Problem: text}
}

// placeProblems returns the problems of files, directories, addresses and the database that
// the configuration names. The daemon finds these problems only when it uses them.
func placeProblems(o *options, c *config.Config) []config.Problem {
	out := append(certificateProblems(o, c), sharedAddresses(o, c)...)
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		s := c.Servers[name]
		if s.Usable() && s.Cwd != "" && !isDirectory(s.Cwd) {
			p := o.problemAt("mcpServers."+name+".cwd", s.Cwd+" is not a directory; make it, or name another one")
			p.Server = name
			out = append(out, p)
		}
	}
	if i := c.Instructions; i.Given && i.URL == "" && !isDirectory(i.Dir) {
		out = append(out, o.problemAt("instructions.dir", i.Dir+" is not a directory; make it, or leave the key out"))
	}
	if dsn := c.Store.Postgres; !dsn.Empty() {
		if err := store.CheckPostgres(dsn.Reveal()); err != nil {
			out = append(out, o.problemAt("store.postgres", err.Error()))
		}
		for _, file := range regexp.MustCompile(`\b(?:passfile|sslkey)=([^\s&]+)`).FindAllStringSubmatch(dsn.Reveal(), -1) {
			out = append(out, exposedFile(o, "store.postgres", strings.Trim(file[1], "'"))...)
		}
	}
	return append(out, noticeProblems(o, c)...)
}

// noticeProblems returns the problem of a program of approvals.notify that cannot be started.
// The daemon finds it when it has to tell the operator of the first held call.
func noticeProblems(o *options, c *config.Config) []config.Problem {
	command := c.Approvals.Notify.Command
	if len(command) == 0 {
		return nil
	}
	if _, err := process.Resolve(command[0], os.Getenv("PATH")); err != nil {
		return []config.Problem{o.problemAt("approvals.notify.command", fmt.Sprintf("the operator would not be told of held calls: %v; correct the program, and give its arguments as further items", err))}
	}
	return nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// exposedFile returns a warning if every user of the machine can use a file that has to be private.
func exposedFile(o *options, key, path string) []config.Problem {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o007 == 0 {
		return nil
	}
	p := o.problemAt(key, fmt.Sprintf("every user of the machine can use %s (mode %#o); run chmod o= on it", path, info.Mode().Perm()))
	p.Warning = true
	return []config.Problem{p}
}

// certificateProblems returns the problems of the listeners' certificates and keys.
func certificateProblems(o *options, c *config.Config) (out []config.Problem) {
	for i, l := range c.Listen.HTTP {
		if l.TLS == nil {
			continue
		}
		key := fmt.Sprintf("listen.http[%d].tls", i)
		if _, err := tls.LoadX509KeyPair(l.TLS.Cert, l.TLS.Key); err != nil {
			out = append(out, o.problemAt(key, fmt.Sprintf("the certificate cannot be used: %v; cert must be a chain and key its private key, both PEM", err)))
		}
		out = append(out, exposedFile(o, key+".key", l.TLS.Key)...)
	}
	return out
}

// sharedAddresses returns a problem for each listener with the address of an earlier one.
func sharedAddresses(o *options, c *config.Config) (out []config.Problem) {
	for i, l := range c.Listen.HTTP {
		for j, before := range c.Listen.HTTP[:i] {
			if sameAddress(l.Addr, before.Addr) {
				out = append(out, o.problemAt(fmt.Sprintf("listen.http[%d].addr", i), fmt.Sprintf("listen.http[%d] has the same address; give this one another port", j)))
				break
			}
		}
	}
	return out
}

func sameAddress(a, b string) bool {
	host, port, err := net.SplitHostPort(a)
	otherHost, otherPort, otherErr := net.SplitHostPort(b)
	return err == nil && otherErr == nil && host == otherHost && port == otherPort && port != "0"
}
