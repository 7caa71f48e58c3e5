//go:build linux && changes

package main

import (
	"fmt"
	"maps"
	"strings"
	"time"
)

// silence checks silent for each kind of principal, and then allows all. If nothing is denied to
// a kind, a server is: the one of a client with a route of its own.
func (x *changeRun) silence() {
	for _, kind := range changeCallers {
		for _, c := range x.clients {
			if c.kind != kind || c.route == "" {
				continue
			}
			if x.w.configured(c.route) == 0 {
				x.w.configure(c.route, 121)
				x.quiet("with " + c.route + " configured") // its clients hear it before it is denied
			}
			if !x.w.denied(kind, c.route) {
				x.subscribe(kind, c.route, true)
				x.quiet("with subscriptions to " + c.route)
				x.w.deny(kind, c.route)
				x.did = append(x.did, c.route+" is denied to "+kind+", which is subscribed to it")
			}
		}
		x.silent(kind)
	}
	for _, kind := range changeCallers {
		for _, server := range x.w.names {
			if x.w.denied(kind, server) {
				x.subscribe(kind, server, false) // what changed meanwhile is not reported later
				x.did = append(x.did, x.decide(kind, server))
			}
		}
	}
	x.quiet("with all allowed")
}

// subscribe makes the clients of a kind subscribe to the resource of a server, or no more.
func (x *changeRun) subscribe(kind, server string, on bool) {
	for _, c := range x.clients {
		if c.kind == kind && (c.route == "" || c.route == server) {
			c.subscribe(x.ctx, server, on)
		}
	}
}

// silent changes what policy denies to a kind of principal, and its clients hear nothing of it.
// A notification of an earlier act may come late: doorward connect makes a listen again a second
// or more after the daemon has ended it, and then tells its client to look again; a server that
// is down is tried again after pauses. So the changes begin when the clients have heard nothing
// for a while, and a client fails only when it hears something in each of three rounds.
func (x *changeRun) silent(kind string) {
	if len(x.denied(kind)) == 0 {
		return
	}
	var heard []string
	for range 3 {
		x.quiet("before changes that " + kind + " may not hear")
		x.calm(kind)
		if heard = x.hears(kind); len(heard) == 0 {
			return
		}
		x.did = append(x.did, time.Now().Format("05.000 ")+strings.Join(heard, ", "))
	}
	x.w.t.Errorf("of changes that %s may not hear: %s", kind, strings.Join(heard, ", "))
}

// calm waits until the clients of a kind have heard nothing for a while.
func (x *changeRun) calm(kind string) {
	poll(changeSoon, func() bool {
		before := x.heard(kind)
		time.Sleep(1500 * time.Millisecond)
		return maps.Equal(before, x.heard(kind))
	})
}

// denied returns the servers that policy denies to a kind of principal.
func (x *changeRun) denied(kind string) (all []string) {
	for _, server := range x.w.names {
		if x.w.denied(kind, server) && x.w.configured(server) > 0 {
			all = append(all, server)
		}
	}
	return all
}

// hears changes what policy denies to a kind of principal, and returns its clients that hear
// something meanwhile.
func (x *changeRun) hears(kind string) (all []string) {
	before := x.heard(kind)
	for _, server := range x.denied(kind) {
		for _, what := range []string{"tools", "prompts", "resources", "text"} {
			x.w.servers[server].change(what, 1, true)
		}
	}
	x.quiet("after changes that " + kind + " may not hear")
	time.Sleep(300 * time.Millisecond) // what must not arrive has no condition to wait for
	for name, n := range x.heard(kind) {
		if n -= before[name]; n > 0 {
			all = append(all, fmt.Sprint(name, " heard ", n))
		}
	}
	return all
}

// heard returns how many notifications of changes each client of a kind has heard.
func (x *changeRun) heard(kind string) map[string]int {
	all := make(map[string]int)
	for _, c := range x.clients {
		if c.kind == kind {
			c.mu.Lock()
			all[c.name] = c.heard
			c.mu.Unlock()
		}
	}
	return all
}
