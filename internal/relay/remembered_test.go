package relay

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/sessionstore"
	"github.com/doorward/doorward/internal/trust/policy"
)

// disk is a front.Keeper on a real directory.
type disk struct {
	t *testing.T
	*sessionstore.Store
}

func (d disk) Keep(name string, content []byte) {
	if err := d.Store.Keep(name, content); err != nil {
		d.t.Error(err)
	}
}

// keeping keeps the sessions of a house in dir for the next one.
func keeping(t *testing.T, dir string) option {
	t.Helper()
	store, err := sessionstore.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return func(h *house, _ *Options) { h.keeper = disk{t, store} }
}

// Sessions that go on in the next run of the daemon are set up again with their log level
// and the resources they were subscribed to, before they call anything: on the route of one
// server and on the aggregate, with a server of either era, beside each other. What the
// server is told was decided and recorded in that run, and a session hears of nothing that
// it has left or that policy denies by then.
func TestSessionsAreSetUpAgain(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		for _, path := range []string{"/mcp/s", "/mcp"} {
			for _, rule := range []string{"", `forbid (principal, action, resource == Resource::"s/file:///b");`} {
				t.Run(era+path+rule, func(t *testing.T) {
					t.Parallel()
					setUpAgain(t, era, path, rule)
				})
			}
		}
	}
}

func setUpAgain(t *testing.T, era, path, rule string) {
	dir := filepath.Join(t.TempDir(), "sessions")
	s := stdio(t, "s", era)
	first := build(t, []Server{s.server()}, keeping(t, dir))
	prefix := map[string]string{"/mcp": "doorward://s/"}[path]
	one, two := first.legacy(path, "token:a", `{}`), first.legacy(path, "token:a", `{}`)
	subscribe := func(c *session, verb string, names ...string) {
		for _, name := range names {
			c.call("resources/"+verb, `{"uri":"`+prefix+"file:///"+name+`"}`)
		}
	}
	subscribe(one, "subscribe", "a", "b", "left")
	subscribe(one, "unsubscribe", "left")
	subscribe(two, "subscribe", "c")
	one.call("logging/setLevel", `{"level":"warning"}`)
	first.door.Close()

	next := stdio(t, "s", era)
	h := build(t, []Server{next.server()}, keeping(t, dir))
	if rule != "" {
		h.forbid(rule)
	}
	one.house, two.house = h, h // as after a restart, at the same address
	streams := map[*session]*reply{one: one.listen(), two: two.listen()}
	wanted := map[string]string{"a": "allow", "b": "allow", "c": "allow"}
	if rule != "" {
		wanted["b"] = "deny"
	}
	for name, want := range wanted {
		equal(t, name, h.decided("resources/subscribe", "s/file:///"+name).Decision, want)
	}
	eventually(t, "the server knows", func() bool {
		told := make(map[string]bool)
		for _, uri := range next.watched() {
			told[strings.TrimPrefix(uri, "file:///")] = true
		}
		for name, d := range wanted {
			if told[name] != (d == "allow") {
				return false
			}
		}
		return !told["left"] && (era == "modern" || len(next.got("logging/setLevel")) > 0)
	})
	for _, name := range []string{"left", "b", "c", "a"} {
		next.change(protocol.ResourceUpdated, `{"uri":"file:///`+name+`"}`)
	}
	heard := map[*session][]string{one: {"b", "a"}, two: {"c"}}
	if rule != "" {
		heard[one] = []string{"a"}
	}
	for c, names := range heard {
		for range names {
			uri := text(streams[c].nextOf(protocol.ResourceUpdated), "params", "uri")
			if name := strings.TrimPrefix(uri, prefix+"file:///"); !slices.Contains(names, name) {
				t.Errorf("heard of %s", uri)
			}
		}
		streams[c].stop()
	}
}

// watched are the resources that the server was asked to watch, in either era. A listen counts
// when changes can be sent on it.
func (s *script) watched() (uris []string) {
	for _, q := range s.got("resources/subscribe") {
		uris = append(uris, text(string(q.Params), "uri"))
	}
	for _, q := range s.got("subscriptions/listen") {
		q.mu.Lock()
		began := q.began
		q.mu.Unlock()
		var listed []string
		if began && json.Unmarshal(rawjson.GetPath(q.Params, "notifications", "resourceSubscriptions"), &listed) == nil {
			uris = append(uris, listed...)
		}
	}
	return uris
}

// forbid adds a rule to the policy of a house.
func (h *house) forbid(rule string) {
	h.t.Helper()
	set, problems := policy.Compile(policy.Options{UID: 1000, Servers: h.rules, File: "test.cedar",
		Text: []byte("permit (principal, action, resource);\n" + rule)})
	if set == nil {
		h.t.Fatal(problems)
	}
	h.gate.SetPolicy(set)
}
