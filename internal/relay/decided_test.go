package relay

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/lookalike"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// forbidden is a policy: no object of any kind may be used that has one of these
// words in its name.
const forbidden = `
forbid (principal, action, resource) when { resource.name like "*delete*" || resource.name like "*secret*" };`

// hurdles builds a house with three servers, one of each kind. Each has a tool of
// its own name, which is also the prefix of its names on the aggregate.
func hurdles(t *testing.T) (*house, []*script) {
	text, notes, far := web(t, "text", "both"), stdio(t, "notes", "legacy"), web(t, "far", "modern")
	all := []*script{text, notes, far}
	var servers []Server
	var rules []option
	for _, s := range all {
		s.setList("tools/list", `{"tools":[{"name":"echo"},{"name":"delete"},{"name":"`+s.name+`"}]}`)
		servers = append(servers, s.server())
		rules = append(rules, withRules(s.name, policy.List{Allow: []string{"*"}, Deny: []string{"delete*"}}, elicitation))
	}
	h := build(t, servers, rules...)
	h.obey(forbidden)
	return h, all
}

// obey puts a policy file in force.
func (h *house) obey(text string) {
	h.t.Helper()
	set, problems := policy.Compile(policy.Options{UID: 1000, Servers: h.rules, File: "policy.cedar", Text: []byte(text)})
	if set == nil {
		h.t.Fatal(problems)
	}
	h.gate.SetPolicy(set)
}

// attempt is one message of a client.
type attempt struct {
	method, params string
	id             bool
}

// attempts makes messages: each method with names that are right, wrong or left out.
type attempts struct{ *rand.Rand }

// seeded makes the same messages for the same test each time.
func seeded(t *testing.T) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(h.Sum64(), 1))
}

func (a attempts) one() attempt {
	m := pick(a, methods...)
	return attempt{m, a.params(m), a.IntN(4) > 0}
}

func pick[T any](a attempts, from ...T) T { return from[a.IntN(len(from))] }

var methods = []string{
	"tools/call", "tools/call", "tools/call", "prompts/get", "prompts/get", "resources/read", "resources/read", "resources/subscribe", "resources/unsubscribe",
	"completion/complete", "completion/complete", "completion/complete", "tools/list", "prompts/list", "resources/list", "resources/templates/list",
	"logging/setLevel", "subscriptions/listen", "tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update",
	"sampling/createMessage", "roots/list", "elicitation/create", "ping", "server/discover", "future/method",
	"Tools/Call", "tools/call ", " prompts/get", "RESOURCES/READ", "tools/Call\n", "tool\u017f/call",
	"notifications/roots/list_changed", "notifications/cancelled", "notifications/progress", "notifications/future", "Notifications/future",
	"notifications/tools/call", "doorward/listening", "tools", "/tools/call",
}

// name is a tool, a prompt or a URI, in the words of a server, of the aggregate or
// of neither.
func (a attempts) name() string {
	server := pick(a, "text", "text", "notes", "far", "ghost", "", "TEXT", "Text", "te\u017ft", "text_")
	thing := pick(a, "echo", "delete", "delete_all", "secret", "text", "notes", "far", "Echo", "DELETE", "", "_", "file:///a", "file:///secret", "doorward://text/file:///secret",
		"delete ", " delete", "de\u200blete", "d\u0435lete", "\uff44elete", "delete\u0000", "Delete_All", "delete__x")
	switch a.IntN(20) {
	case 0:
		return server
	case 1:
		return thing
	case 2:
		return server + "__"
	case 3:
		return "__" + thing
	case 4:
		return server + "____" + thing
	case 5:
		return server + "_" + thing
	case 6:
		return server + "__" + server + "__" + thing
	case 7:
		return "doorward://" + server
	case 8:
		return "doorward://" + server + "//" + thing
	case 9:
		return "DOORWARD://" + server + "/" + thing
	case 10, 11:
		return "doorward://" + server + "/" + thing
	case 12:
		return server + pick(a, "\uff3f\uff3f", "_\u200b_", "_ _", "%5F%5F", "--", "::", "__\n") + thing
	case 13:
		return "doorward://" + pick(a, "x@"+server, server+":1", server+"%2F..", "./"+server, "%74ext", server+"\\") + "/" + thing
	case 14:
		return "doorward://ghost/../" + server + "/" + thing
	case 15:
		return pick(a, "doorward:", "doorward:/", "doorward:///", " doorward://", "doorward:\\/\\/") + server + "/" + thing
	}
	return server + "__" + thing
}

// value is a name as JSON, or something in its place.
func (a attempts) value() string {
	name := string(rawjson.AppendQuote(nil, a.name()))
	switch a.IntN(12) {
	case 0:
		return "null"
	case 1:
		return "7"
	case 2:
		return "[" + name + "]"
	case 3:
		return `{"name":` + name + `,"uri":` + name + `}`
	case 4:
		return strings.NewReplacer("e", `\u0065`, "_", `\u005f`, "/", `\/`).Replace(name)
	}
	return name
}

// params puts names where the method has them, or elsewhere, once or twice.
func (a attempts) params(method string) string {
	if a.IntN(12) == 0 {
		return pick(a, "", "{}")
	}
	var members []string
	add := func(key, value string) { members = append(members, string(rawjson.AppendQuote(nil, key))+":"+value) }
	switch {
	case strings.EqualFold(strings.TrimSpace(method), "completion/complete"):
		add("ref", a.ref())
		add("argument", `{"name":"x","value":""}`)
	case strings.Contains(strings.ToLower(method), "resources"):
		add("uri", a.value())
	case method == "subscriptions/listen":
		add("notifications", `{"resourceSubscriptions":[`+a.value()+`,`+a.value()+`]}`)
	case method == "logging/setLevel":
		add("level", `"info"`)
	default:
		add("name", a.value())
	}
	if a.IntN(4) == 0 {
		add(pick(a, "name", "uri", "Name", "URI", "ref", "taskId", "tool", "arguments", "task_id", "tool_name", "na\u00adme", "u\u0440i", "uri ", "_meta", "cursor", "params"), pick(a, a.value(), `{"name":`+a.value()+`}`))
	}
	return "{" + strings.Join(members, ",") + "}"
}

func (a attempts) ref() string {
	var members []string
	if a.IntN(8) > 0 {
		members = append(members, `"type":`+pick(a, `"ref/prompt"`, `"ref/prompt"`, `"ref/resource"`, `"ref/resource"`, `"ref/tool"`, "null"))
	}
	for range 1 + a.IntN(2) {
		members = append(members, string(rawjson.AppendQuote(nil, pick(a, "name", "name", "uri", "uri", "Name", "URI", "title")))+":"+a.value())
	}
	return "{" + strings.Join(members, ",") + "}"
}

// reading is what a server may take a message for. It ignores the case of keys, as
// encoding/json does.
type reading struct {
	Method string
	Params struct {
		Name, URI     any
		Notifications struct{ ResourceSubscriptions []string }
		Ref           json.RawMessage
	}
}

// objects returns the resources that a message asks a server for, as the record
// names them. An error says that two readers could understand the message
// differently.
func objects(server string, q *query) ([]string, error) {
	var r reading
	if err := json.Unmarshal([]byte(q.raw), &r); err != nil {
		return nil, err
	}
	named := []any{}
	switch r.Method {
	case "tools/call", "prompts/get":
		named = append(named, r.Params.Name)
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		named = append(named, r.Params.URI)
	case "completion/complete":
		var ref struct{ Type, Name, URI any }
		if err := json.Unmarshal(r.Params.Ref, &ref); err != nil {
			return nil, err
		}
		if (ref.Name == nil) == (ref.URI == nil) {
			return nil, errors.New("both a prompt and a resource, or neither")
		}
		if (ref.Type != "ref/prompt" || ref.Name == nil) && (ref.Type != "ref/resource" || ref.URI == nil) {
			return nil, errors.New("of another type")
		}
		named = append(named, cmp.Or(ref.Name, ref.URI))
	case "subscriptions/listen":
		for _, uri := range r.Params.Notifications.ResourceSubscriptions {
			named = append(named, uri)
		}
	default:
		return []string{server}, nil
	}
	var out []string
	for _, n := range named {
		name, ok := n.(string)
		if !ok || name == "" {
			return nil, fmt.Errorf("no name: %v", n)
		}
		out = append(out, server+"/"+name)
	}
	return out, nil
}

// account is what was allowed, and what of it the servers were sent.
type account struct {
	total, left map[string]int // by action and resource
}

func (h *house) account() account {
	a := account{make(map[string]int), make(map[string]int)}
	for _, r := range h.records() {
		if r.Kind == audit.Decision && r.Decision == audit.Allow {
			a.total[r.Action+" "+r.Resource]++
			a.left[r.Action+" "+r.Resource]++
		}
	}
	return a
}

// settles reports whether a message was allowed under exactly the name that it has,
// once for each time that it came. Doorward itself sends the handshake, the list
// that the headers of a call are checked with, and one subscription for all
// subscribers.
func (a account) settles(method, server, resource string) bool {
	switch method {
	case "initialize", "server/discover", "notifications/initialized", "notifications/cancelled", "":
		return true
	case "subscriptions/listen", "resources/subscribe":
		return a.total["resources/subscribe "+resource] > 0
	case "resources/unsubscribe":
		return a.total[method+" "+resource]+a.total["resources/subscribe "+resource] > 0
	case "tools/list":
		for act := range a.total {
			if strings.HasPrefix(act, "tools/call "+server+"/") || act == "tools/list "+server {
				return true
			}
		}
		return false
	}
	a.left[method+" "+resource]--
	return a.left[method+" "+resource] >= 0
}

// inspect compares one message that a server got with what was decided.
func (a account) inspect(t *testing.T, server string, q *query) {
	t.Helper()
	if q.Kind != wire.Response && wire.IsNotification(q.Method) != (q.Kind == wire.Notification) {
		t.Errorf("%s got what is both a request and a notification: %s", server, q.raw)
	}
	resources, err := objects(server, q)
	if err != nil {
		t.Errorf("%s got a message of two meanings (%v): %s", server, err, q.raw)
	}
	for _, r := range resources {
		if name, named := strings.CutPrefix(r, server+"/"); named && (strings.Contains(name, "delete") || strings.Contains(name, "secret")) {
			t.Errorf("%s got what is forbidden: %s", server, q.raw)
		}
		if name, named := strings.CutPrefix(r, server+"/"); named && q.Method == "tools/call" && strings.HasPrefix(lookalike.Shown(name)[0], "delete") {
			t.Errorf("%s got what looks like a denied tool: %s", server, q.raw)
		}
		if !a.settles(q.Method, server, r) {
			t.Errorf("%s got what was not allowed as %s %s: %s", server, q.Method, r, q.raw)
		}
	}
}

// taken are the messages that a server has got so far.
func (s *script) taken() []*query {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*query(nil), s.seen...)
}

// flushed is a method of the test's own, which no client sends.
const flushed = "test/flushed"

// flush waits until every open connection has carried what was written to it.
func (h *house) flush() {
	h.t.Helper()
	for _, b := range h.relay.table.Load().sorted {
		b.mu.Lock()
		open := slices.Collect(maps.Keys(b.conns))
		b.mu.Unlock()
		for _, c := range open {
			req := upstream.Request{Method: flushed, Params: era.OwnParams(c.meta)}
			if _, err := c.conn.Call(h.t.Context(), &req, nil); err != nil && c.alive() {
				h.t.Error(err)
			}
		}
	}
}

// ofDoorward reports what Doorward sends by itself, without being asked by a client:
// the handshake, and one listen for all that may change.
func ofDoorward(q *query) bool {
	switch q.Method {
	case "initialize", "server/discover", "notifications/initialized", "notifications/cancelled", flushed:
		return true
	case "subscriptions/listen":
		return rawjson.GetPath(q.Params, "notifications", "resourceSubscriptions") == nil
	}
	return false
}

// reach calls a tool of each server that the route has, so that whatever was sent
// there before has arrived.
func reach(c caller, route string, servers []*script) {
	for _, s := range servers {
		if route == "" {
			c.say("tools/call", `{"name":"`+s.name+`__echo"}`, true)
		} else if route == s.name {
			c.say("tools/call", `{"name":"echo"}`, true)
		}
	}
}

// tries is how many messages each kind of caller makes up.
const tries = 400

// Every message that a server gets has one meaning, was allowed under exactly its
// name and is recorded so, whatever a client sends on any transport.
func TestServersGetOnlyWhatWasDecided(t *testing.T) {
	t.Parallel()
	everyCaller(t, "text", func(t *testing.T, route, name string, open func(*house, string) caller) {
		h, servers := hurdles(t)
		c := open(h, `{"roots":{"listChanged":true}}`)
		reach(c, route, servers)
		made := attempts{seeded(t)}
		for range tries {
			m := made.one()
			c.say(m.method, m.params, m.id)
		}
		reach(c, route, servers)
		a, got := h.account(), 0
		for _, s := range servers {
			for _, q := range s.taken() {
				a.inspect(t, s.name, q)
				got++
			}
		}
		if got < tries/20 { // else the messages are worth nothing
			t.Errorf("%d messages reached a server", got)
		}
	})
}

// With everything denied, nothing that a client sends reaches a server: not on the
// sessions and connections of before, and not with the handshake allowed.
func TestDeniedCallersReachNoServer(t *testing.T) {
	t.Parallel()
	for what, text := range map[string]string{
		"everything":               `forbid (principal, action, resource);`,
		"all but the handshake":    `forbid (principal, action, resource) unless { action in Action::"handshake" };`,
		"all that names something": `forbid (principal, action, resource) unless { action in Action::"handshake" || resource is Doorward };`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			everyCaller(t, "text", func(t *testing.T, route, name string, open func(*house, string) caller) {
				h, servers := hurdles(t)
				c := open(h, `{"roots":{"listChanged":true}}`)
				reach(c, route, servers)
				h.flush()
				before := map[string]int{}
				for _, s := range servers {
					before[s.name] = len(s.taken())
				}
				h.obey(text)
				made := attempts{seeded(t)}
				for range tries / 4 {
					m := made.one()
					c.say(m.method, m.params, m.id)
				}
				h.flush()
				for _, s := range servers {
					for _, q := range s.taken()[before[s.name]:] {
						if !ofDoorward(q) {
							t.Errorf("%s got %s", s.name, q.raw)
						}
					}
				}
			})
		})
	}
}

// A request without an id is refused, and no server gets it.
func TestRequestsWithoutAnIDGoNowhere(t *testing.T) {
	t.Parallel()
	everyCaller(t, "text", func(t *testing.T, route, name string, open func(*house, string) caller) {
		h, servers := hurdles(t)
		c := open(h, `{}`)
		reach(c, route, servers)
		for method, params := range map[string]string{
			"tools/call": `{"name":"%secho"}`, "prompts/get": `{"name":"%sgreet"}`, "resources/read": `{"uri":"%sfile:///a"}`, "resources/subscribe": `{"uri":"%sfile:///a"}`,
			"completion/complete": `{"ref":{"type":"ref/prompt","name":"%sgreet"}}`, "tools/list": `{}`, "logging/setLevel": `{"level":"info"}`, "tasks/cancel": `{"taskId":"1"}`, "future/method": `{}`,
		} {
			prefix := ""
			if route == "" {
				prefix = "text__"
				if strings.HasPrefix(method, "resources/") {
					prefix = "doorward://text/"
				}
			}
			before := len(c.heard())
			c.say(method, strings.ReplaceAll(params, "%s", prefix), false)
			if !strings.Contains(c.heard()[before:], `"error":{"code":-32600,`) {
				t.Errorf("%s was not refused: %s", method, c.heard()[before:])
			}
		}
		h.flush()
		for _, s := range servers {
			for _, q := range s.taken() {
				if !ofDoorward(q) && q.Method != "tools/list" && q.name() != "echo" || q.Method == "tools/call" && q.Kind != wire.Request {
					t.Errorf("%s got %s", s.name, q.raw)
				}
			}
		}
	})
	t.Run("in a batch", func(t *testing.T) {
		t.Parallel()
		h, servers := hurdles(t)
		s := &session{house: h, who: "uid:1000", path: "/mcp/text", version: protocol.V20250326}
		r := s.hello0(`{}`)
		r.end()
		s.id = r.header.Get("Mcp-Session-Id")
		r = s.post(`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"tools/call","params":{"name":"delete"}}]`)
		equal(t, "answer", code(r.end()), "-32600")
		h.flush()
		for _, q := range servers[0].got("tools/call") {
			t.Errorf("text got %s", q.raw)
		}
	})
}

// A log level that policy denies for a server is not set on its later connections
// either.
func TestLogLevelOfANewConnectionIsDecided(t *testing.T) {
	t.Parallel()
	h, servers := hurdles(t)
	h.obey(`forbid (principal, action == Action::"logging/setLevel", resource == Server::"notes");`)
	c := overHTTP(h, "", protocol.V20251125, `{}`)
	c.say("logging/setLevel", `{"level":"info"}`, true)
	reach(c, "", servers)
	equal(t, "decision", h.decided("logging/setLevel", "notes").Decision, audit.Deny)
	equal(t, "outcome of the other", h.outcome(h.decided("logging/setLevel", "text")), "ok")
	if got := servers[1].got("logging/setLevel"); len(got) != 0 {
		t.Errorf("notes got %s", got[0].raw)
	}
	if got := servers[0].got("logging/setLevel"); len(got) != 1 {
		t.Errorf("text got %d levels", len(got))
	}
}

// Each resource of a listen is decided and recorded separately, and the server gets
// only those that are allowed.
func TestResourcesOfAListenAreDecided(t *testing.T) {
	t.Parallel()
	h, servers := hurdles(t)
	h.obey(forbidden + `forbid (principal, action == Action::"resources/read", resource == Resource::"text/file:///unread");
forbid (principal, action == Action::"resources/subscribe", resource == Resource::"text/file:///deaf");`)
	r, ack := h.modern("/mcp", "uid:1000").subscribe(`{"resourceSubscriptions":["doorward://text/file:///a","doorward://text/file:///secret","doorward://text/file:///unread","doorward://text/file:///deaf","doorward://text/","doorward://text","text","file:///a"]}`)
	defer r.stop()
	equal(t, "honoured", field(ack, "params", "notifications", "resourceSubscriptions"), `["doorward://text/file:///a"]`)
	equal(t, "carried", field(servers[0].last("subscriptions/listen").raw, "params", "notifications", "resourceSubscriptions"), `["file:///a"]`)
	for uri, want := range map[string]string{"a": audit.Allow, "secret": audit.Deny, "unread": audit.Deny, "deaf": audit.Deny} {
		equal(t, uri, h.decided("resources/subscribe", "text/file:///"+uri).Decision, want)
	}
	many := strings.TrimSuffix(strings.Repeat(`"doorward://text/%d",`, maxObjects+1), ",")
	equal(t, "too many", code(h.modern("/mcp", "uid:1000").call("subscriptions/listen", `{"notifications":{"resourceSubscriptions":[`+numbered(many)+`]}}`)), "-32602")
}

// numbered puts a number in the place of each %d.
func numbered(text string) string {
	n := 0
	for strings.Contains(text, "%d") {
		n++
		text = strings.Replace(text, "%d", fmt.Sprint(n), 1)
	}
	return text
}
