package daemon

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// clients is the set of processes that have spoken MCP to the daemon and still run,
// registered as agents or not, also in an earlier run. A process below one of them may act for
// an agent.
type clients struct {
	program string // path of the daemon's program, which is also that of the shim `doorward connect`
	path    string // the file; empty: kept in memory only
	log     *slog.Logger
	orphans orphans

	mu    sync.Mutex
	known map[string]client // by its first process
	whole map[string]uint32 // the login of a client whose processes were all noted in this run

	changed atomic.Bool // since the file was written
	saving  sync.Mutex  // held while the file is written
}

// client is one process that speaks MCP.
type client struct {
	Processes []string `json:"processes"` // the process itself, and for a shim the one that started it
	// Command means that the shim is another command than `doorward connect`: it speaks for
	// whoever typed it.
	Command bool `json:"command,omitempty"`
}

// mostClients bounds the number of clients; ended ones are dropped first.
const mostClients = 4096

// processes returns the client that sent a request, and as chain all processes from it to the
// first one that could be read; both are empty if its process is unknown. whole means that the
// chain of a client over TCP is complete.
func (c *clients) processes(r *http.Request) (of client, chain []string, whole bool) {
	o := listen.From(r.Context())
	var pid int32
	switch {
	case o == nil:
		return of, nil, false
	case o.Peer != nil:
		chain, _ = peer.Ancestors(o.Peer) // as far as they can be read
		pid = o.Peer.PID
	default:
		h, err := o.Holder()
		if err != nil {
			return of, nil, false
		}
		h = peer.Eldest(h) // a child that the client is starting may have been found
		if chain, err = peer.AncestorsOf(h); err != nil {
			chain = []string{h.Process}
		}
		pid, whole = h.PID, err == nil
	}
	most := 1
	if c.isShim(pid) {
		most, of.Command = 2, !connects(pid)
	}
	of.Processes = slices.Clone(chain[:min(len(chain), most)])
	return of, chain, whole
}

// isShim reports whether a process runs the daemon's program.
func (c *clients) isShim(pid int32) bool {
	program, err := os.Readlink("/proc/" + strconv.Itoa(int(pid)) + "/exe")
	return err == nil && program == c.program
}

// connects reports whether a process of the program may be `doorward connect`.
func connects(pid int32) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err != nil || slices.Contains(strings.Split(string(b), "\x00"), "connect")
}

// add reports whether the client was not known.
func (c *clients) add(of client) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	process := of.Processes[0]
	if slices.Equal(c.known[process].Processes, of.Processes) {
		return false
	}
	if c.known == nil {
		c.known = make(map[string]client)
	}
	if len(c.known) >= mostClients {
		c.forget()
	}
	for other := range c.known {
		if len(c.known) < mostClients {
			break
		}
		delete(c.known, other)
	}
	c.known[process] = of
	return true
}

// forget drops ended processes. The caller holds mu.
func (c *clients) forget() {
	maps.DeleteFunc(c.known, func(process string, _ client) bool { return peer.Gone(process) })
}

// above reports whether one of the processes is a running client, or started a running shim;
// commands tells whether shims other than `doorward connect` count.
func (c *clients) above(processes []string, commands bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	for _, of := range c.known {
		if (commands || !of.Command) && slices.ContainsFunc(of.Processes, func(p string) bool { return slices.Contains(processes, p) }) {
			return true
		}
	}
	return false
}
