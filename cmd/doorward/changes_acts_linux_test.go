//go:build linux && changes

package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// changeAct is one act: what is done, and numbers that say to whom.
type changeAct struct {
	what, a, b, c int
	pause         time.Duration // after it
}

// changeRun is one run of the test.
type changeRun struct {
	w       *changeWorld
	ctx     context.Context
	clients []*changeClient
	did     []string
	falls   int
	starts  int
}

// do does an act, and says which. These are left out, because docs/sessions.md excepts them:
// sessions that are subscribed to resources of Doorward's own servers do not continue after a
// restart, and a resource that changes while policy denies it is not reported later, so a client
// ends its subscription when policy denies the server. A program that ends without an error is
// started at the next request only; these here fail.
func (x *changeRun) do(a changeAct) string {
	server := x.w.names[a.a%len(x.w.names)]
	s, c := x.w.servers[server], x.clients[a.b%len(x.clients)]
	what := []string{"tools", "prompts", "resources", "text", "text"}[a.c%5]
	switch n := a.what; {
	case n < 5:
		list := []string{"tools", "prompts"}[a.b%2]
		s.describe(list)
		return "the description of one of the " + list + " of " + server + " changes"
	case n < 9:
		if x.w.configured(server) == 0 {
			return "nothing"
		}
		x.trust(server)
		return server + " is trusted"
	case n < 30:
		s.change(what, a.b, true)
		return what + " of " + server + " changes"
	case n < 38:
		c.mu.Lock()
		open := !c.open
		c.mu.Unlock()
		if x.open(c, open) {
			return fmt.Sprint(c.name, " has its stream open: ", open)
		}
		return "nothing"
	case n < 52:
		if c.route != "" {
			server = c.route
		}
		if !x.w.visible(c, server) {
			return "nothing"
		}
		c.mu.Lock()
		on := !c.wants[server]
		c.mu.Unlock()
		c.subscribe(x.ctx, server, on)
		return fmt.Sprint(c.name, " subscribes to ", server, ": ", on)
	case n < 55:
		c.look([]string{"tools", "prompts", "resources"}[a.c%3])
		return c.name + " lists"
	case n < 62:
		was := x.w.configured(server)
		now := map[bool]int{true: 121 + a.c, false: 0}[was == 0 || a.c%2 == 0]
		x.w.configure(server, now)
		return fmt.Sprintf("%s is configured: %d", server, now)
	case n < 70:
		return x.decide(changeCallers[a.b%3], server)
	case n < 77:
		if x.falls++; x.falls > 3 {
			return "nothing"
		}
		s.change(what, a.b, false)
		s.crash()
		return server + " crashes, and " + what + " is another"
	case n < 83:
		out, status := x.w.d.human("doorward", "restart", server)
		if status != 0 && x.w.configured(server) > 0 {
			x.w.t.Errorf("restart: %d %s", status, out)
		}
		s.change(what, a.b, true)
		return "restart of " + server + ", and then " + what + " changes"
	case n >= 95:
		for _, kind := range changeCallers {
			x.silent(kind)
		}
		return "changes that some may not hear"
	case n >= 88:
		x.quiet("between the acts")
		return "quiet"
	default:
		if x.starts++; x.starts > 2 {
			return "nothing"
		}
		x.w.restart(a.b%2 == 0, func() { s.change(what, a.c, true) })
		return fmt.Sprint("the daemon starts again, killed: ", a.b%2 == 0, ", and ", what, " of ", server, " has changed")
	}
}

// decide changes whether policy denies a server to a kind of principal.
func (x *changeRun) decide(kind, server string) string {
	if x.w.denied(kind, server) {
		x.w.allow(kind, server)
		return server + " is allowed to " + kind
	}
	for _, c := range x.clients {
		c.mu.Lock()
		wants := c.wants[server]
		c.mu.Unlock()
		if c.kind == kind && wants {
			c.subscribe(x.ctx, server, false)
		}
	}
	x.w.deny(kind, server)
	return server + " is denied to " + kind
}

// open opens or closes the stream of a client. false: a legacy client of doorward connect
// cannot close it.
func (x *changeRun) open(c *changeClient, on bool) bool {
	if c.kind == "uid" && !c.modern {
		return false
	}
	c.mu.Lock()
	c.open = on
	c.mu.Unlock()
	if !on {
		c.wire.hangUp()
	}
	return true
}

// all changes all that there is.
func (x *changeRun) all() {
	for _, server := range x.w.names {
		for _, what := range []string{"tools", "prompts", "resources", "text"} {
			x.w.servers[server].change(what, 2, true)
		}
	}
}

// quiet waits until no client knows anything that is not so.
func (x *changeRun) quiet(when string) {
	x.w.t.Helper()
	begun := time.Now()
	for _, c := range x.clients {
		if !poll(time.Until(begun.Add(changeSoon+late())), func() bool { return c.wrong() == "" }) {
			x.w.t.Errorf("%s, %s:\n%s", when, c.name, c.wrong())
		}
	}
	x.did = append(x.did, time.Now().Format("05.000 ")+"quiet "+when+" after "+time.Since(begun).Round(time.Millisecond).String())
	if fault := x.w.fault(); fault != "" {
		x.w.t.Errorf("%s: %s", when, fault)
	}
	if x.w.t.Failed() {
		x.tell()
		x.w.t.FailNow()
	}
}

// tell prints what was done and what the clients with a fault saw.
func (x *changeRun) tell() {
	x.w.t.Logf("acts:\n%s", strings.Join(x.did, "\n"))
	for _, c := range x.clients {
		if c.wrong() != "" {
			c.mu.Lock()
			x.w.t.Logf("%s:\n%s", c.name, strings.Join(c.trace[max(0, len(c.trace)-150):], "\n"))
			c.mu.Unlock()
		}
	}
}

// forget notes that a subscription could not be made again.
func (c *changeClient) forget(server string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("not subscribed to %s any more: %.200s", server, err)
	delete(c.wants, server)
	delete(c.cache, server)
}
