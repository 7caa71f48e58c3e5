package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/pin"
	"github.com/doorward/doorward/test/overload"
)

// mute never answers a handshake, as a program that hangs.
func mute(s *script) *script {
	s.refuse = func(*query) bool { return true }
	return s
}

// tardy answers a handshake after a while, as a program that is still installed.
func tardy(s *script, after time.Duration) *script {
	begin := time.Now()
	s.refuse = func(q *query) bool {
		select {
		case <-time.After(time.Until(begin.Add(after))):
		case <-q.ctx.Done():
		}
		return false
	}
	return s
}

// broken is a server whose program ends at once.
func broken(t *testing.T, name string) Server {
	return stdio(t, name, "legacy").server(func(_ *Server, d *upstream.Definition) { d.Path, d.Args = "/bin/false", nil })
}

func (h *house) status(server string) Status {
	for _, s := range h.relay.Status() {
		if s.Name == server {
			return s
		}
	}
	h.t.Fatalf("no server %s", server)
	return Status{}
}

// within fails the test when f takes longer than a list may; on a busy machine, when it takes
// as long as a tardy server.
func within(t *testing.T, what string, f func() string) string {
	t.Helper()
	limit := min(3*time.Second+overload.Late(), 8*time.Second)
	begin := time.Now()
	out := f()
	if d := time.Since(begin); d > limit {
		t.Errorf("%s took %s", what, d)
	}
	return out
}

// A list comes within 3 s with the servers that are there, although one of six servers
// hangs, one takes long to start and one is broken. Status says what the list lacks, and it
// is complete after the client was told to look again.
func TestAListWaitsForNoServer(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			var h *house
			var list func() string
			var stream *reply
			const there = "a__echo b__echo c__echo"
			first := func() string {
				servers := []Server{broken(t, "broken"), mute(stdio(t, "hung", "legacy")).server(), tardy(stdio(t, "slow", "legacy"), 9*time.Second).server()}
				for _, name := range []string{"a", "b", "c"} {
					servers = append(servers, stdio(t, name, "legacy").server())
				}
				h = build(t, servers)
				if era == "legacy" {
					c := h.legacy("/mcp", "uid:1000", `{}`)
					stream, list = c.listen(), func() string { return c.call("tools/list", `{}`) }
				} else {
					m := h.modern("/mcp", "uid:1000")
					stream, list = m.begin("subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`), func() string { return m.call("tools/list", `{}`) }
				}
				return join(names(within(t, "the first list", list), "tools", "name"))
			}
			got := first()
			for tries := 1; got != there && overload.Late() > 0 && tries < 4; tries++ { // a busy machine starts a program later than a list waits
				got = first()
			}
			equal(t, "the first list", got, there)
			for server, want := range map[string]string{"slow": "starting", "hung": "starting"} {
				st := h.status(server)
				if st.State != want || !strings.Contains(st.Reason, "tools/list") {
					t.Errorf("%s: %+v", server, st)
				}
			}
			contains(t, "broken", h.status("broken").Reason, "tools/list")
			end := time.Now().Add(40 * time.Second)
			for got := ""; got != there+" slow__echo"; {
				if time.Now().After(end) {
					t.Fatalf("the list is not complete after list_changed: %s", got)
				}
				stream.nextOf(protocol.ToolsChanged)
				got = join(names(within(t, "a list", list), "tools", "name"))
			}
			equal(t, "nothing is owed", h.status("slow").Reason, "")
		})
	}
}

// While a known server starts, its list is what was approved of it: cleaned, and as far as
// the caller may use it. A call waits for the server.
func TestAStartingServerIsShownAsApproved(t *testing.T) {
	t.Parallel()
	s, book := stdio(t, "s", "legacy"), shelf(t)
	const tools = `[{"name":"echo","description":"echo\u200bes","inputSchema":{"type":"object"}},{"name":"secret"}]`
	s.setList("tools/list", `{"tools":`+tools+`}`)
	book.Guard("s", false, nil).Judge(pin.Asker{Era: "legacy"}, pin.Tools, []byte(tools))
	tardy(s, 10*time.Second)
	h := build(t, []Server{s.server(pinnedBy(book, false))}, withRules("s", policy.List{Allow: []string{"*"}, Deny: []string{"secret"}}, elicitation))
	c, m := h.legacy("/mcp", "uid:1000", `{}`), h.modern("/mcp/s", "uid:1000")
	stream := c.listen()
	alone := make(chan string, 1)
	go func() {
		alone <- within(t, "a list of the server alone", func() string { return m.call("tools/list", `{}`) })
	}()
	shown := within(t, "the list", func() string { return c.call("tools/list", `{}`) })
	equal(t, "tools", field(shown, "result", "tools"), `[{"description":"echoes","inputSchema":{"type":"object"},"name":"s__echo"}]`)
	one := <-alone
	equal(t, "on its own route", join(names(one, "tools", "name"))+field(one, "result", "resultType"), `echo"complete"`)
	equal(t, "prompts, of which nothing was approved", join(names(c.call("prompts/list", `{}`), "prompts", "name")), "")
	if end := c.tool("s__echo", ""); field(end, "result") == "" {
		t.Errorf("a call while it starts: %s", end)
	}
	stream.nextOf(protocol.ToolsChanged)
	equal(t, "at last", join(names(c.call("tools/list", `{}`), "tools", "name")), "s__echo")
	eventually(t, "nothing is owed", func() bool { return h.status("s").Reason == "" })
}

// A client that gives servers a second is not kept waiting by one that hangs, once there
// is something to show: what was approved, or what another server has answered. Before that
// it waits as long as others do (TestAHastyClientWaitsForTheFirst).
func TestAHastyClientHasWhatIsKnown(t *testing.T) {
	t.Parallel()
	const tools = `[{"name":"echo"}]`
	for _, c := range []struct {
		client       string
		known, waits bool
	}{{"codex-mcp-client", false, false}, {"codex-mcp-client", true, false}, {"tester", false, true}, {"tester", true, true}} {
		listed := func() time.Duration {
			s, book := stdio(t, "s", "legacy"), shelf(t)
			s.setList("tools/list", `{"tools":`+tools+`}`)
			if c.known {
				book.Guard("s", false, nil).Judge(pin.Asker{Era: "legacy"}, pin.Tools, []byte(tools))
			}
			h := build(t, []Server{s.server(pinnedBy(book, false)), mute(stdio(t, "hung", "legacy")).server(pinnedBy(book, false))})
			took := hastyList(t, h, c.client)
			if lacks := h.status("hung").Reason; !strings.Contains(lacks, "not yet in tools/list") {
				t.Errorf("%+v: the server that hangs: %q", c, lacks)
			}
			return took
		}
		if took := leastOf(listed, c.waits); took >= listing.ListTime != c.waits {
			t.Errorf("%+v: the list took %s", c, took)
		}
	}
}

// hastyList is how long a client waits for a list, which has the tool of the server s.
func hastyList(t *testing.T, h *house, client string) time.Duration {
	t.Helper()
	c := h.named(client, "/mcp", "uid:1000", `{}`)
	begin := time.Now()
	equal(t, "tools", join(names(c.call("tools/list", `{}`), "tools", "name")), "s__echo")
	return time.Since(begin)
}

// leastOf is the least of three times, or the first, where it is to be long: a busy machine
// makes every time longer.
func leastOf(took func() time.Duration, long bool) time.Duration {
	least := took()
	for range 2 {
		if !long && least >= listing.ListTime {
			least = took()
		}
	}
	return least
}

// A list goes out with the first answer when none of its servers is known: here one hangs
// and one starts in a second.
func TestAHastyClientWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	took := leastOf(func() time.Duration {
		s := stdio(t, "s", "legacy")
		s.setList("tools/list", `{"tools":[{"name":"echo"}]}`)
		tardy(s, time.Second)
		h := build(t, []Server{s.server(), mute(stdio(t, "hung", "legacy")).server()})
		return hastyList(t, h, "codex-mcp-client")
	}, false)
	if took < listing.LateTime || took >= listing.ListTime {
		t.Errorf("the list took %s", took)
	}
}

// The last answer of a server that is slow with every list is shown, and clients are not
// told to list again for each.
func TestAServerThatIsSlowWithEveryList(t *testing.T) {
	t.Parallel()
	s, book := stdio(t, "s", "legacy"), shelf(t)
	s.setList("tools/list", "")
	s.serve = func(q *query) {
		if q.Method == "tools/list" {
			select {
			case <-time.After(3500 * time.Millisecond):
			case <-q.ctx.Done():
				return
			}
		}
		q.result(`{"tools":[{"name":"late"}]}`)
	}
	h := build(t, []Server{s.server(pinnedBy(book, false))})
	c := h.legacy("/mcp", "uid:1000", `{}`)
	stream := c.listen()
	equal(t, "nothing is known yet", join(names(c.call("tools/list", `{}`), "tools", "name")), "")
	stream.nextOf(protocol.ToolsChanged)
	equal(t, "as it answered", join(names(c.call("tools/list", `{}`), "tools", "name")), "s__late")
	eventually(t, "the server has answered again", func() bool {
		for _, held := range h.relay.sessions.of(h.sessionOf(c)).all() {
			return !held.link.late.expected("tools/list")
		}
		return false
	})
	stream.silent()
}
