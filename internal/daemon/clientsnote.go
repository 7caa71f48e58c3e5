package daemon

import (
	"net/http"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// note remembers the process of a request and all processes above it. It is called once for a
// connection.
func (c *clients) note(r *http.Request) {
	if c.again(r) {
		return
	}
	of, chain, whole := c.processes(r)
	if len(of.Processes) == 0 {
		return
	}
	added := c.add(of)
	changed, login, done := c.orphans.note(chain[len(of.Processes)-1:])
	if changed || added {
		c.keep()
	}
	if whole && done {
		c.mark(chain[0], login)
	}
}

// isMCP reports whether a request is to an MCP route.
func isMCP(uri string) bool {
	return slices.ContainsFunc([]string{"/mcp", "/sse", "/messages"}, func(face string) bool { return strings.HasPrefix(uri, face) })
}

// again reports whether note would add nothing for a request over TCP: its process was
// noted in this run with all processes above it, is still known, and has the same login. A
// process that loses its parent is adopted by one that was above it before, so no other comes
// above it. A shim is noted each time, because the one that started it is noted too.
func (c *clients) again(r *http.Request) bool {
	o := listen.From(r.Context())
	if o == nil || o.Peer != nil {
		return false
	}
	h, err := o.Holder()
	return err == nil && c.marked(h.Process, h.PID) && !c.isShim(h.PID)
}

// mark remembers a client that was noted with all processes above it.
func (c *clients) mark(process string, login uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.whole == nil || len(c.whole) >= mostClients {
		c.whole = make(map[string]uint32)
	}
	c.whole[process] = login
}

// marked reports whether a client was marked, is still known and has the same login.
func (c *clients) marked(process string, pid int32) bool {
	c.mu.Lock()
	login, marked := c.whole[process]
	known := len(c.known[process].Processes) == 1
	c.mu.Unlock()
	return marked && known && login == peer.LoginOf(pid)
}
