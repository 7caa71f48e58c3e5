package relay

import (
	"path/filepath"
	"testing"

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

// A session that goes on in the next run of the daemon is set up again with its log level
// and the resources it was subscribed to, before it calls anything, on the route of one
// server and on the aggregate. What the server is told was decided and recorded in that
// run: a resource that policy denies by then does not reach it.
func TestASessionIsSetUpAgain(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/mcp/s", "/mcp"} {
		for _, denied := range []bool{false, true} {
			t.Run(path+map[bool]string{true: " denied"}[denied], func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "sessions")
				s := stdio(t, "s", "legacy")
				first := build(t, []Server{s.server()}, keeping(t, dir))
				c := first.legacy(path, "token:a", `{}`)
				uri := map[string]string{"/mcp": "doorward://s/"}[path]
				for _, name := range []string{"file:///a", "file:///b", "file:///left"} {
					c.call("resources/subscribe", `{"uri":"`+uri+name+`"}`)
				}
				c.call("resources/unsubscribe", `{"uri":"`+uri+`file:///left"}`)
				c.call("logging/setLevel", `{"level":"warning"}`)
				first.door.Close()

				next := stdio(t, "s", "legacy")
				h := build(t, []Server{next.server()}, keeping(t, dir))
				if denied {
					h.forbid(`forbid (principal, action, resource == Resource::"s/file:///b");`)
				}
				h.takes(c)
				stream := c.listen()
				eventually(t, "it is set up", func() bool {
					return len(next.got("resources/subscribe")) == map[bool]int{false: 2, true: 1}[denied] && len(next.got("logging/setLevel")) == 1
				})
				for _, q := range next.got("resources/subscribe") {
					name := text(string(q.Params), "uri")
					if d := h.decided("resources/subscribe", "s/"+name); d.Decision != "allow" || name == "file:///left" || denied && name == "file:///b" {
						t.Errorf("the server was told of %s: %+v", name, d)
					}
				}
				if d := h.decided("resources/subscribe", "s/file:///b"); (d.Decision == "allow") == denied {
					t.Errorf("%+v", d)
				}
				next.open()[0].tell(resourceUpdated, `{"uri":"file:///a"}`)
				equal(t, "a change", text(stream.nextOf(resourceUpdated), "params", "uri"), uri+"file:///a")
				stream.stop()
			})
		}
	}
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

// takes lets a client of another house meet this one at the same address, as it does
// after a restart.
func (h *house) takes(c *session) { c.house = h }
