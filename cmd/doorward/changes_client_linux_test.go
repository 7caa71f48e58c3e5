//go:build linux && changes

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// changeClient is a client that keeps what it has listed and read, and asks again only for what
// a notification names, for all in a new session, and, in the modern era, for all when it begins
// to listen. It repeats a request that failed.
type changeClient struct {
	world  *changeWorld
	name   string
	kind   string // of its principal: see changeCallers
	route  string // of one server; empty: the aggregate
	modern bool
	wire   changeWire
	wake   chan struct{}
	done   sync.WaitGroup

	mu      sync.Mutex
	open    bool              // it wants its stream
	live    bool              // its stream is open
	cache   map[string]string // by list; by server of a resource that it is subscribed to
	dirty   map[string]bool   // keys of the cache to ask for again
	wants   map[string]bool   // servers to whose resource it is subscribed
	granted map[string]bool   // the same, of the listen in force
	heard   int               // notifications of changes
	trace   []string
}

// changeWire is how a client reaches the daemon.
type changeWire interface {
	// call sends a request and returns its result.
	call(ctx context.Context, method string, params obj) (json.RawMessage, error)
	// listen holds the stream until ctx ends, it ends by itself, or hangUp is called.
	listen(ctx context.Context)
	hangUp()
	close()
}

var errRefused = errors.New("refused")

func (c *changeClient) begin(ctx context.Context) {
	c.wake, c.open = make(chan struct{}, 1), true
	c.cache, c.dirty, c.wants, c.granted = make(map[string]string), make(map[string]bool), make(map[string]bool), make(map[string]bool)
	c.again("a new client")
	c.done.Go(func() { c.work(ctx) })
	c.done.Go(func() { c.follow(ctx) })
}

func (c *changeClient) note(format string, args ...any) {
	c.trace = append(c.trace, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

// again makes the client ask for all that it knows.
func (c *changeClient) again(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("asks for all: %s", why)
	for list := range changeLists {
		c.dirty[list] = true
	}
	for server := range c.wants {
		c.dirty[server] = true
	}
	c.nudge()
}

func (c *changeClient) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// look makes the client ask for one thing again.
func (c *changeClient) look(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dirty[key] = true
	c.nudge()
}

// take is called for each notification.
func (c *changeClient) take(method string, params raw) {
	var p struct{ URI string }
	_ = json.Unmarshal(params, &p) // on an error the URI is empty
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("hears %s %s", method, p.URI)
	list, isList := strings.CutSuffix(strings.TrimPrefix(method, "notifications/"), "/list_changed")
	switch {
	case isList:
		c.dirty[list] = true
	case method == "notifications/resources/updated":
		server := c.serverOf(p.URI)
		if c.wants[server] {
			c.dirty[server] = true
		}
		c.world.mayHear(c, server, time.Now().Add(-2*time.Second-late()), "a change of "+p.URI)
	default:
		return
	}
	c.heard++
	c.nudge()
}

// serverOf returns the server of a resource by the address that the client knows.
func (c *changeClient) serverOf(uri string) string {
	uri = strings.TrimPrefix(uri, "x://")
	if c.route == "" {
		uri = strings.TrimPrefix(uri, "doorward://")
	}
	server, _, _ := strings.Cut(uri, "/")
	return server
}

func (c *changeClient) uriOf(server string) string {
	uri := "x://" + server + "/resource-0"
	if c.route == "" {
		return "doorward://" + server + "/" + uri
	}
	return uri
}

// uris returns the addresses of the resources that the client is subscribed to.
func (c *changeClient) uris() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := []string{}
	for _, server := range slices.Sorted(maps.Keys(c.wants)) {
		all = append(all, c.uriOf(server))
	}
	return all
}

// work asks for what is dirty.
func (c *changeClient) work(ctx context.Context) {
	for ctx.Err() == nil {
		c.mu.Lock()
		keys := slices.Sorted(maps.Keys(c.dirty))
		clear(c.dirty)
		c.mu.Unlock()
		failed := false
		for _, key := range keys {
			if err := c.fetch(ctx, key); err != nil {
				c.mu.Lock()
				c.note("%s: %.200s", key, err)
				c.mu.Unlock()
				c.look(key)
				failed = true
			}
		}
		if failed {
			time.Sleep(300 * time.Millisecond)
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
		}
	}
}

// fetch lists or reads, and keeps the answer.
func (c *changeClient) fetch(ctx context.Context, key string) error {
	begun := time.Now()
	value := ""
	if member := changeLists[key]; member != "" {
		result, err := c.wire.call(ctx, key+"/list", obj{})
		if err != nil {
			return err
		}
		var all map[string]json.RawMessage
		var entries []map[string]any
		if json.Unmarshal(result, &all) != nil || json.Unmarshal(all[key], &entries) != nil {
			return fmt.Errorf("%w: %.300s", errRefused, result)
		}
		var names []string
		for _, e := range entries {
			text, _ := e[member].(string)
			if server, name := c.split(key, text); c.world.servers[server] != nil {
				if version, _ := e["description"].(string); version != "" {
					name += ":" + version
					c.world.mayList(c, server, key, version)
				}
				names = append(names, server+"/"+name)
				c.world.mayHear(c, server, begun, text+" on "+key+"/list")
			}
		}
		slices.Sort(names)
		value = strings.Join(names, " ")
	} else {
		c.mu.Lock()
		wants := c.wants[key]
		c.mu.Unlock()
		if !wants {
			return nil
		}
		result, err := c.wire.call(ctx, "resources/read", obj{"uri": c.uriOf(key)})
		if err != nil {
			return err
		}
		var r struct{ Contents []struct{ Text string } }
		if json.Unmarshal(result, &r) != nil || len(r.Contents) != 1 {
			return fmt.Errorf("%w: %.300s", errRefused, result)
		}
		value = r.Contents[0].Text
		c.world.mayHear(c, key, begun, "the resource of "+key)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cache[key] = value
	c.note("%s: %s", key, value)
	return nil
}

// split returns the server and the server's own name of an entry.
func (c *changeClient) split(list, text string) (server, name string) {
	switch {
	case list == "resources":
		return c.serverOf(text), text[strings.LastIndexByte(text, '/')+1:]
	case c.route != "":
		return c.route, text
	}
	server, name, _ = strings.Cut(text, "__")
	return server, name
}

// follow keeps the stream open as long as the client wants that.
func (c *changeClient) follow(ctx context.Context) {
	for ctx.Err() == nil {
		c.mu.Lock()
		open := c.open
		c.mu.Unlock()
		if open {
			c.wire.listen(ctx)
			c.lives(false, nil)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// lives notes that the stream is open, or is over, and what was granted.
func (c *changeClient) lives(on bool, uris []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live != on {
		c.note("its stream is open: %v %v", on, uris)
	}
	c.live = on
	clear(c.granted)
	for _, uri := range uris {
		c.granted[c.serverOf(uri)] = true
	}
}

// subscribe makes the client subscribe to the resource of a server, or no more.
func (c *changeClient) subscribe(ctx context.Context, server string, on bool) {
	method := "resources/unsubscribe"
	if on {
		method = "resources/subscribe"
	}
	c.mu.Lock()
	c.note("%s %s", method, server)
	if !on {
		delete(c.wants, server)
		delete(c.cache, server)
	} else if c.modern {
		c.wants[server] = true
	}
	c.mu.Unlock()
	if c.modern {
		c.wire.hangUp() // another listen begins, and asks for all
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	_, err := c.wire.call(ctx, method, obj{"uri": c.uriOf(server)})
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.note("%s %s: %.200s", method, server, err)
	} else if on {
		c.wants[server], c.dirty[server] = true, true
		c.nudge()
	}
}

// wrong returns what the client knows and is not so; empty: nothing. A client without an open
// stream, or whose own server it may not see, knows nothing for certain.
func (c *changeClient) wrong() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.route != "" && !c.world.visible(c, c.route) || !c.open {
		return ""
	}
	if !c.live {
		return "its stream is not open"
	}
	for list := range changeLists {
		if want := c.world.expected(c, list); c.cache[list] != want {
			return fmt.Sprintf("%s:\n has %s\nwant %s", list, c.cache[list], want)
		}
	}
	for server := range c.wants {
		if c.modern && !c.granted[server] || !c.world.visible(c, server) {
			continue
		}
		if want := c.world.servers[server].version(); c.cache[server] != want {
			return fmt.Sprintf("resource of %s: has %s, want %s", server, c.cache[server], want)
		}
	}
	return ""
}
