//go:build linux && changes

package main

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// changeCallers are the kinds of principal of the clients: on the Unix socket through doorward
// connect, and over HTTP without and with a token.
var changeCallers = []string{"uid", "loopback", "token"}

// changeWorld is a daemon with its servers, and what policy and configuration let clients see.
type changeWorld struct {
	t       *testing.T
	d       *mailDaemon
	names   []string // of all servers
	servers map[string]*changeServer
	port    int
	http    *http.Client      // of the operator
	tokens  map[string]string // changes: of the clients of kind token; admin: of the operator

	mu      sync.Mutex
	entries map[string]int       // configured servers, with a number that is part of their entries
	since   map[string]time.Time // by "kind server": since when policy denies it
	faults  []string
}

func newChangeWorld(t *testing.T, kinds []string) *changeWorld {
	w := &changeWorld{t: t, servers: make(map[string]*changeServer), entries: make(map[string]int), since: make(map[string]time.Time), tokens: make(map[string]string), http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, port: doortest.FreePort(t)}
	w.d = newMailDir(t, "changes", "")
	for _, kind := range kinds {
		s := newChangeServer(t, kind, w.d.dir)
		w.names, w.servers[s.name], w.entries[s.name] = append(w.names, s.name), s, 120
	}
	w.write()
	for name, scope := range map[string]string{"changes": "", "admin": "admin"} {
		out, status := w.d.human("doorward", "token", "new", name, "--scope", scope)
		if w.tokens[name] = regexp.MustCompile(`dw_\S+`).FindString(out); status != 0 || w.tokens[name] == "" {
			t.Fatalf("token: %d %s", status, out)
		}
	}
	w.d.start()
	return w
}

// write writes configuration and policy.
func (w *changeWorld) write() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var config, policy strings.Builder
	fmt.Fprintf(&config, "listen: {http: [{addr: \"127.0.0.1:%d\"}]}\npolicy: policy.cedar\nmcpServers:\n", w.port)
	for _, name := range w.names {
		if n, ok := w.entries[name]; ok {
			fmt.Fprintf(&config, "  %s: {%s, timeout: %ds}}\n", name, w.servers[name].entry, n)
		}
		for _, kind := range changeCallers {
			if _, denied := w.since[kind+" "+name]; denied && w.entries[name] > 0 {
				fmt.Fprintf(&policy, "forbid (principal in Kind::%q, action, resource in Server::%q);\n", kind, name)
			}
		}
	}
	w.d.write("policy.cedar", "// rules\n"+policy.String())
	w.d.write("doorward.yaml", config.String())
}

// reload makes the daemon read its files again, and returns when it has.
func (w *changeWorld) reload() {
	w.t.Helper()
	count := func() int { return strings.Count(w.d.stderr(), `msg="configuration reloaded"`) }
	before := count()
	w.write()
	if err := w.d.proc.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		w.t.Fatal(err)
	}
	if !poll(mailSoon, func() bool { return count() > before }) {
		w.t.Fatal("the configuration was not reloaded")
	}
}

// deny makes policy deny a server to a kind of principal.
func (w *changeWorld) deny(kind, server string) {
	key := kind + " " + server
	w.mu.Lock()
	w.since[key] = time.Now().Add(time.Hour) // until it is in force
	w.mu.Unlock()
	w.reload()
	w.mu.Lock()
	w.since[key] = time.Now()
	w.mu.Unlock()
}

// allow is the contrary of deny.
func (w *changeWorld) allow(kind, server string) {
	w.mu.Lock()
	delete(w.since, kind+" "+server)
	w.mu.Unlock()
	w.reload()
}

// denied reports whether policy denies a server to a kind of principal.
func (w *changeWorld) denied(kind, server string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, denied := w.since[kind+" "+server]
	return denied
}

// configure adds a server, replaces it, or removes it (0).
func (w *changeWorld) configure(server string, n int) {
	w.mu.Lock()
	if w.entries[server] = n; n == 0 {
		delete(w.entries, server)
	}
	w.mu.Unlock()
	w.reload()
}

func (w *changeWorld) configured(server string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.entries[server]
}

// visible reports whether a client may see a server.
func (w *changeWorld) visible(c *changeClient, server string) bool {
	return w.configured(server) > 0 && !w.denied(c.kind, server)
}

// expected returns what a list of a client contains.
func (w *changeWorld) expected(c *changeClient, list string) string {
	var all []string
	for _, server := range w.names {
		if w.visible(c, server) && (c.route == "" || c.route == server) {
			for _, name := range w.servers[server].names(list) {
				all = append(all, server+"/"+name)
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// mayHear notes a fault if policy has denied a server to a client ever since from.
func (w *changeWorld) mayHear(c *changeClient, server string, from time.Time, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if since, denied := w.since[c.kind+" "+server]; denied && since.Before(from) {
		w.faults = append(w.faults, fmt.Sprintf("%s got %s, denied since %s", c.name, what, since.Format("05.000")))
	}
}

// approve makes the daemon approve all that the servers offer.
func (w *changeWorld) approve() {
	w.t.Helper()
	for _, server := range w.names {
		c := w.client("approver "+server, "loopback", server, true)
		for list := range changeLists {
			if !poll(mailSoon, func() bool {
				err := c.fetch(w.t.Context(), list)
				return err == nil && c.cache[list] == w.expected(c, list)
			}) {
				w.t.Fatalf("%s of %s: %s", list, server, c.cache[list])
			}
		}
		c.wire.close()
	}
}

// restart ends the daemon and starts it again; between is done while it is down.
func (w *changeWorld) restart(kill bool, between func()) {
	if kill {
		w.d.kill()
	} else {
		w.d.stop()
	}
	between()
	w.d.start()
}

func (w *changeWorld) fault() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.faults, "\n")
}
