//go:build linux && changes

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// changeServer is an MCP server in the process of the test. Its lists and the text of its
// resource change when the test wants it, and it reports each change to those that it has
// promised to. All entries that it can list are approved before the test begins.
type changeServer struct {
	name   string
	modern bool
	entry  string // in the configuration of the daemon, without the last braces
	hangUp func() // ends the streams of its HTTP connections

	mu       sync.Mutex
	lists    map[string]int // by list: entry n is listed if bit n is set
	said     map[string]int // by list: version of the description of its first entry
	trusted  map[string]int // the same, of the version that the operator approved last
	text     int            // version of the resource's text
	peers    map[*changePeer]bool
	sessions map[string]*changePeer // of HTTP, by id
}

// changePeer is one connection or session at a changeServer. The mutex of the server guards it.
type changePeer struct {
	say     func(string)   // nil: nothing can be said outside of answers
	end     func()         // ends the connection; nil: of a session over HTTP
	uris    bool           // of the legacy era: subscribed to the resource
	listens map[string]obj // of the modern era: by the raw id of its request
	replies func(string)   // of HTTP+SSE
}

// changeLists are the lists by their names in results, with the member that names an entry.
var changeLists = map[string]string{"tools": "name", "prompts": "name", "resources": "uri"}

// changeEntries is the number of entries that a list can have, the first of which stays.
const changeEntries = 4

// changeKinds are the kinds of server: transport, era and instances.
var changeKinds = []string{"stdio legacy shared", "stdio legacy session", "stdio legacy auto", "stdio modern auto", "http legacy auto", "http modern auto", "sse legacy auto"}

func newChangeServer(t *testing.T, kind, mark string) *changeServer {
	f := strings.Fields(kind)
	transport, era, instances := f[0], f[1], f[2]
	s := &changeServer{name: strings.ReplaceAll(kind, " ", "-"), modern: era == "modern", lists: make(map[string]int), said: make(map[string]int), trusted: make(map[string]int), peers: make(map[*changePeer]bool), sessions: make(map[string]*changePeer), hangUp: func() {}}
	for list := range changeLists {
		s.lists[list] = 1<<changeEntries - 1
	}
	if transport == "stdio" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go s.accept(l)
		s.entry = fmt.Sprintf("command: fakemcp, args: [changing, %q, %q], doorward: {sandbox: off, protocol: %s, instances: %s", l.Addr(), mark, era, instances)
		return s
	}
	serve := s.serveStreamable
	if transport == "sse" {
		serve = s.serveSSE
	}
	h := httptest.NewServer(http.HandlerFunc(serve))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	s.hangUp = h.CloseClientConnections
	s.entry = fmt.Sprintf("type: %s, url: %q, doorward: {allow_private: true, instances: %s", transport, h.URL, instances)
	return s
}

func init() { fakeRuns["changing"] = runChanging }

// runChanging is `fakemcp changing ADDR MARK`: the server is at ADDR. It fails when the server
// hangs up.
func runChanging(args []string) error {
	c, err := net.Dial("tcp", args[0])
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(c, os.Stdin) // the end of the input ends the process
		os.Exit(0)
	}()
	_, err = io.Copy(os.Stdout, c)
	return errors.Join(err, errors.New("hung up"))
}

// names returns what clients get of a list: names with the versions of descriptions, without the name of the server.
func (s *changeServer) names(list string) (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all = s.namesLocked(list)
	if n := s.said[list]; n != s.trusted[list] {
		return all[1:] // the first is withheld
	} else if n > 0 {
		all[0] += fmt.Sprint(":", n)
	}
	return all
}

func (s *changeServer) namesLocked(list string) (all []string) {
	for n := range changeEntries {
		if s.lists[list]&(1<<n) != 0 {
			all = append(all, fmt.Sprintf("%s-%d", strings.TrimSuffix(list, "s"), n))
		}
	}
	return all
}

func (s *changeServer) version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint("version ", s.text)
}

// change makes one list another one, or raises the version of the text, and reports it if tell
// is set. A change of a list never leaves it as it was.
func (s *changeServer) change(what string, by int, tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if what == "text" {
		s.text++
	} else {
		s.lists[what] ^= 2 + 2*(by%(1<<(changeEntries-1)-1))
	}
	for p := range s.peers {
		if tell && p.say != nil {
			s.report(p, what)
		}
	}
}

// report tells a peer of a change. The caller holds mu.
func (s *changeServer) report(p *changePeer, what string) {
	method, params, member := "notifications/"+what+"/list_changed", obj{}, what+"ListChanged"
	if what == "text" {
		method, params = "notifications/resources/updated", obj{"uri": s.uri()}
	}
	say := func() { p.say(line(obj{"jsonrpc": "2.0", "method": method, "params": params})) }
	if !s.modern {
		if what != "text" || p.uris {
			say()
		}
		return
	}
	for id, filter := range p.listens {
		on, _ := filter[member].(bool)
		uris, _ := filter["resourceSubscriptions"].([]any)
		if on || what == "text" && slices.Contains(uris, any(s.uri())) {
			params["_meta"] = obj{"io.modelcontextprotocol/subscriptionId": raw(id)}
			say()
		}
	}
}

func (s *changeServer) uri() string { return "x://" + s.name + "/resource-0" }

// line is a message on one line.
func line(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // what the tests make can be encoded
	}
	return string(b)
}

// crash ends all connections and forgets all sessions.
func (s *changeServer) crash() {
	s.mu.Lock()
	clear(s.sessions)
	ends := make([]func(), 0, len(s.peers))
	for p := range s.peers {
		if p.end != nil {
			ends = append(ends, p.end)
		}
	}
	s.mu.Unlock()
	for _, end := range ends {
		end()
	}
	s.hangUp()
}

func (s *changeServer) join(p *changePeer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers[p] = true
}

// leave returns when nothing writes to p any more.
func (s *changeServer) leave(p *changePeer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.peers, p)
}

// hear takes one message of a peer. answer is empty if there is none.
func (s *changeServer) hear(p *changePeer, text []byte) (answer string) {
	var q struct {
		fakeRequest
		Params struct {
			URI, ProtocolVersion string
			RequestID            raw
			Notifications        obj
		} `json:"params"`
	}
	if json.Unmarshal(text, &q) != nil {
		return ""
	}
	if q.ID == nil {
		if q.Method == "notifications/cancelled" {
			s.mu.Lock()
			delete(p.listens, string(q.Params.RequestID))
			s.mu.Unlock()
		}
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var result obj
	list, _, _ := strings.Cut(q.Method, "/")
	caps := obj{"tools": obj{"listChanged": true}, "prompts": obj{"listChanged": true}, "resources": obj{"listChanged": true, "subscribe": true}}
	switch {
	case q.Method == "initialize" && !s.modern:
		result = obj{"protocolVersion": q.Params.ProtocolVersion, "capabilities": caps, "serverInfo": obj{"name": s.name, "version": "1"}}
	case q.Method == "server/discover" && s.modern:
		result = obj{"supportedVersions": []string{"2026-07-28"}, "capabilities": caps}
	case strings.HasSuffix(q.Method, "/list") && changeLists[list] != "":
		entries := []obj{}
		for i, name := range s.namesLocked(list) {
			e := obj{"name": name}
			if n := s.said[list]; i == 0 && n > 0 {
				e["description"] = fmt.Sprint(n)
			}
			if list == "tools" {
				e["inputSchema"] = obj{"type": "object"}
			} else if list == "resources" {
				e["uri"] = "x://" + s.name + "/" + name
			}
			entries = append(entries, e)
		}
		result = obj{list: entries}
	case q.Method == "resources/read":
		result = obj{"contents": []obj{{"uri": q.Params.URI, "text": fmt.Sprint("version ", s.text)}}}
	case q.Method == "resources/subscribe", q.Method == "resources/unsubscribe":
		p.uris, result = q.Method == "resources/subscribe", obj{}
	case q.Method == "subscriptions/listen" && s.modern:
		p.listens[string(q.ID)] = q.Params.Notifications
		p.say(line(obj{"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
			"params": obj{"notifications": q.Params.Notifications, "_meta": obj{"io.modelcontextprotocol/subscriptionId": q.ID}}}))
		return ""
	case q.Method == "ping":
		result = obj{}
	default:
		return line(obj{"jsonrpc": "2.0", "id": q.ID, "error": obj{"code": -32601, "message": "Method not found"}})
	}
	if s.modern {
		maps.Copy(result, obj{"resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
	}
	return line(obj{"jsonrpc": "2.0", "id": q.ID, "result": result})
}

// accept serves the processes of runChanging.
func (s *changeServer) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			s.converse(c, func(text string) { _, _ = io.WriteString(c, text+"\n") }, func() { c.Close() }) // who has left hears nothing
		}()
	}
}

func (s *changeServer) converse(in io.Reader, write func(string), end func()) {
	var mu sync.Mutex
	say := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		write(text)
	}
	p := &changePeer{say: say, end: end, listens: make(map[string]obj)}
	s.join(p)
	defer s.leave(p)
	for scan := bufio.NewScanner(in); scan.Scan(); {
		if answer := s.hear(p, scan.Bytes()); answer != "" {
			say(answer)
		}
	}
}
