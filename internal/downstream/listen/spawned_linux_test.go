package listen

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/doorward/doorward/internal/downstream/attest"
)

// A connection of an agent that the daemon started is admitted although the agent is a child
// of the daemon, and it carries the agent's name. Other children are refused.
func TestAStartedAgentIsLetInAsItself(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		agent func(*attest.Credentials) string
		own   bool // the peer is a child of the daemon
		want  string
	}{
		{"an agent", func(*attest.Credentials) string { return "A" }, true, "HTTP/1.1 200 OK"},
		{"no agent", func(*attest.Credentials) string { return "" }, true, "closed"},
		{"no child of the daemon", func(*attest.Credentials) string { return "" }, false, "HTTP/1.1 200 OK"},
		{"without agents", nil, true, "closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := openSocket(t, Options{Spawned: c.agent, OwnChild: func(*attest.Credentials) bool { return c.own }})
			names := make(chan string, 1)
			serveHTTP(t, l, func(w http.ResponseWriter, r *http.Request) {
				names <- From(r.Context()).Spawn
				answer(w, r)
			})
			p := start(t, nil, "ask", l.Addr())
			if got := p.line(t); got != c.want {
				t.Fatalf("the peer got %q, want %q", got, c.want)
			}
			want := ""
			if c.agent != nil {
				want = c.agent(nil)
			}
			if strings.HasPrefix(c.want, "HTTP") {
				if got := <-names; got != want {
					t.Errorf("the agent of the connection is %q, want %q", got, want)
				}
			}
		})
	}
}

func TestAForeignAgentIsLetInAndGuarded(t *testing.T) {
	t.Parallel()
	needRoot(t)
	l := openSocket(t, Options{Spawned: func(*attest.Credentials) string { return "A" }, OwnChild: func(*attest.Credentials) bool { return true }})
	serveHTTP(t, l, answer)
	p := start(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}, "ask-by-a-child", l.Addr())
	if got := p.line(t); got != "HTTP/1.1 200 OK" {
		t.Fatal(got)
	}
	fmt.Fprintln(p.in)
	if got := p.line(t); got != "closed" {
		t.Errorf("its child on the same connection: %s", got)
	}
}

// A peer that ended before it was identified as an agent is refused as a child of the daemon,
// because its process number may be in use again.
func TestAnAgentThatEndedMeanwhileIsRefused(t *testing.T) {
	t.Parallel()
	h := &heard{}
	l := openSocket(t, Options{OnRefused: h.hear, OwnChild: func(*attest.Credentials) bool { return true },
		Spawned: func(c *attest.Credentials) string { c.Close(); return "A" }})
	start(t, nil, "ask", l.Addr())
	eventually(t, "it is turned away", func() bool { return l.Refused()[ReasonOwnChild] == 1 })
}
