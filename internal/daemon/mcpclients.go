package daemon

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// clients is the set of processes that have spoken MCP to the daemon and still run,
// registered as agents or not. A process below one of them may act for an agent.
type clients struct {
	program string // path of the daemon's program, which is also that of the shim `doorward connect`
	orphans orphans

	mu    sync.Mutex
	known map[string][]string // by process: the process itself, and for a shim the process that started it
}

// mostClients bounds the number of clients; ended ones are dropped first.
const mostClients = 4096

type notedKey struct{}

// noting puts the marker into the context of a connection that makes note run once.
func noting(ctx context.Context) context.Context {
	return context.WithValue(ctx, notedKey{}, new(sync.Once))
}

// note remembers the process of a request to an MCP route.
func (c *clients) note(r *http.Request) {
	once, ok := r.Context().Value(notedKey{}).(*sync.Once)
	if !ok || !isMCP(r.RequestURI) {
		return
	}
	once.Do(func() {
		if near, chain := c.processes(r); len(near) > 0 {
			c.add(near)
			c.orphans.note(chain[len(near)-1:])
		}
	})
}

func isMCP(uri string) bool {
	return slices.ContainsFunc([]string{"/mcp", "/sse", "/messages"}, func(face string) bool { return strings.HasPrefix(uri, face) })
}

// processes returns as near the process of a request and, for a shim, the one above it, and
// as chain all that could be read; both are empty if the process is unknown.
func (c *clients) processes(r *http.Request) (near, chain []string) {
	o := listen.From(r.Context())
	var pid int32
	switch {
	case o == nil:
		return nil, nil
	case o.Peer != nil:
		chain, _ = peer.Ancestors(o.Peer) // as far as they can be read
		pid = o.Peer.PID
	default:
		h, err := o.Holder()
		if err != nil {
			return nil, nil
		}
		if chain, err = peer.AncestorsOf(h); err != nil {
			chain = []string{h.Process}
		}
		pid = h.PID
	}
	most := 1
	if program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && program == c.program {
		most = 2
	}
	return slices.Clone(chain[:min(len(chain), most)]), chain
}

func (c *clients) add(all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = make(map[string][]string)
	}
	if len(c.known) >= mostClients {
		c.forget()
	}
	for process := range c.known {
		if len(c.known) < mostClients {
			break
		}
		delete(c.known, process)
	}
	c.known[all[0]] = all
}

// forget drops ended processes. The caller holds mu.
func (c *clients) forget() {
	maps.DeleteFunc(c.known, func(process string, _ []string) bool { return peer.Gone(process) })
}

// above reports whether one of the processes is a running client, or started a running shim.
func (c *clients) above(processes []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	for _, all := range c.known {
		if slices.ContainsFunc(all, func(p string) bool { return slices.Contains(processes, p) }) {
			return true
		}
	}
	return false
}
