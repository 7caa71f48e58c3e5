// Package health assesses the state of a daemon for a person: each check has a subject, a
// finding, and a remedy.
//
// Invariant: it reads the status that the daemon reports and changes nothing.
package health

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/doorward/doorward/internal/daemon/admin"
)

// Check is the result of one check.
type Check struct {
	Name  string `json:"name"`
	State string `json:"state"` // OK, Warn or Fail
	Found string `json:"found"`
	Todo  string `json:"todo"` // empty: nothing
}

// The states of a check.
const (
	OK   = "ok"
	Warn = "warn"
	Fail = "fail"
)

// OfStatus checks the configuration in force, listeners, servers and the record.
func OfStatus(s admin.Status) []Check {
	out := []Check{ofConfiguration(s.Configuration)}
	for _, l := range s.Listeners {
		k := Check{Name: "listener " + l.Addr, State: OK, Found: l.State}
		switch {
		case l.State != "listening":
			k.State, k.Found, k.Todo = Fail, l.Reason, "Correct listen in the configuration and start the daemon again."
		case l.Reason != "":
			k.State, k.Found = Warn, l.Reason
		}
		out = append(out, k)
	}
	if why := s.Authentication.Issuer; why != "" {
		out = append(out, Check{Name: "access tokens", State: Fail, Found: why, Todo: "Make the issuer reachable from here, or correct oauth.issuer; the next token tries again."})
	}
	for _, v := range s.Servers {
		out = append(out, ofServer(v))
	}
	record := Check{Name: "record", State: OK, Found: fmt.Sprintf("%d records", s.Audit.Seq)}
	if s.Audit.State != "ok" {
		record.State, record.Found, record.Todo = Fail, s.Audit.State+": "+s.Audit.Reason, "Run doorward audit verify, then restart the daemon."
		if s.Audit.State == "full" {
			record.Todo = "Make room on the disk."
		}
	}
	return append(out, record)
}

func ofConfiguration(c admin.Configuration) Check {
	k := Check{Name: "configuration in force", State: OK, Found: cmp.Or(c.File, "the built-in defaults")}
	switch {
	case c.NotReloaded != "":
		k.State, k.Found, k.Todo = Fail, "the last change is not in force: "+c.NotReloaded, "Correct it; doorward check shows all problems."
	case len(c.Restart) > 0:
		k.State, k.Found, k.Todo = Warn, "changes of these sections are not in force: "+strings.Join(c.Restart, ", "), "Restart the daemon."
	}
	return k
}

// builtin is the kind of the servers inside the daemon, which print nothing.
const builtin = "builtin"

func ofServer(v admin.Server) Check {
	k := Check{Name: "server " + v.Name, State: OK, Found: v.State}
	switch {
	case v.State != "connected" && v.State != "idle" && v.State != "starting":
		k.State, k.Found, k.Todo = Fail, v.State+": "+v.Reason, "Run doorward status for what it printed."
		switch {
		case v.State == "withheld":
			k.Todo = "Look at Decisions, or run doorward trust " + v.Name + "."
		case v.Kind == builtin:
			k.Todo = "Correct what the reason names, such as the database of store; the daemon tries again by itself."
		}
	case v.State == "starting" && v.Reason != "":
		k.State, k.Found, k.Todo = Warn, "starting: "+v.Reason, "Run doorward status for what it prints; a program that prints other text than MCP messages may never answer."
	case v.Ended:
		k.State, k.Found, k.Todo = Warn, v.State+": "+v.Reason, "Run doorward status for what it printed. The first call that a process started later answers ends this warning."
	case len(v.Withheld) > 0:
		k.State, k.Found, k.Todo = Warn, fmt.Sprintf("%d definitions are withheld", len(v.Withheld)), "Look at Decisions, or run doorward trust "+v.Name+"."
	case len(v.Problems) > 0:
		k.State, k.Found, k.Todo = Warn, "some of its documents have problems", "Run doorward status for them, or doorward check for all."
	case len(v.Unseen) > 0:
		k.State, k.Found, k.Todo = Warn, "it asked for paths that it is not granted", "Run doorward status for the keys that grant them."
	case len(v.Unmatched) > 0:
		k.State, k.Found, k.Todo = Warn, "a deny pattern matches no tool", "Correct tools.deny of the server."
	}
	return k
}
