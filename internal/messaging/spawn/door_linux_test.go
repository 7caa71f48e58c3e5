package spawn

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/authn"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/test/doortest"
)

func TestAnAgentComesInUnderItsOwnName(t *testing.T) {
	eachMode(t, func(t *testing.T, s *stage) {
		id := s.start("ask\nask\ngrandchild\nwait 300ms")
		e := s.over(id, 20*time.Second)
		want := fmt.Sprintf("200 spawn:%s scope=agent,server:notes parent=%s", id, s.parent.Name())
		if n := strings.Count(e.Output, want); n != 3 || !strings.Contains(e.Output, "orphan "+want) {
			t.Errorf("%d of 3 answers %q in %q", n, want, e.Output)
		}
	})
}

// A process in the tree of an agent is refused without the agent's token, with another token
// and over TCP. It never counts as the user.
func TestInItsTreeOnlyTheTokenIdentifiesAnAgent(t *testing.T) {
	eachMode(t, func(t *testing.T, s *stage) {
		got := s.result("ask-with \nask-with " + authn.SpawnToken + "guess\nask-tcp " + s.tcp)
		lines := strings.Split(strings.TrimSpace(got), "\n")
		if !strings.HasPrefix(got, "401 nobody\n") || strings.Count(got, "401 nobody") != 2 || !strings.Contains(lines[len(lines)-1], "closed: ") {
			t.Errorf("the answers are %q", got)
		}
	})
}

// The token of an agent is refused from a process of the same user, from the daemon itself and
// from a sibling, while the agent runs and after its end. At the end its file is removed.
func TestATokenIsWorthNothingElsewhere(t *testing.T) {
	t.Parallel()
	s := newStage(t, "contain")
	id := s.start("ask\nwait 1000s")
	stolen := token(filepath.Join(s.dir, "run", tokenBegin+id+tokenEnd))
	if !strings.HasPrefix(stolen, authn.SpawnToken) || len(stolen) < 40 {
		t.Fatalf("the token is %q", stolen)
	}
	for what, got := range map[string]string{
		"a process of the same user":      s.outside(s.sock, stolen),
		"the same over TCP":               s.outside(s.tcp, stolen),
		"the parent, which is the daemon": ask(s.sock, stolen),
		"the same over loopback TCP":      ask(s.tcp, stolen),
	} {
		if !strings.HasPrefix(got, "401 ") && !(strings.Contains(what, "TCP") && strings.HasPrefix(got, "closed: ")) {
			t.Errorf("%s: %s", what, got)
		}
	}
	if got := s.outside(s.sock, ""); !strings.HasPrefix(got, "200 "+s.parent.Name()) {
		t.Errorf("a process of the same user as itself: %s", got)
	}
	if got := s.result("ask-with " + stolen); got != "401 nobody\n\n" {
		t.Errorf("a sibling: %q", got)
	}
	if err := s.Stop(id, 0); err != nil {
		t.Fatal(err)
	}
	if e := s.over(id, 10*time.Second); e.State != mail.Killed {
		t.Errorf("it was stopped and is %s", e.State)
	}
	if _, err := os.Lstat(filepath.Join(s.dir, "run", tokenBegin+id+tokenEnd)); !os.IsNotExist(err) {
		t.Errorf("the file of its token is still there: %v", err)
	}
	if got := s.outside(s.sock, stolen); !strings.HasPrefix(got, "401 ") {
		t.Errorf("after its end: %s", got)
	}
	if got := s.result("ask-with " + stolen); got != "401 nobody\n\n" {
		t.Errorf("a sibling after its end: %q", got)
	}
}

// A contained agent can read only its own token and the socket in the runtime directory. It
// reads no other token and no key, and writes nothing there.
func TestAContainedAgentSeesItsOwnTokenAlone(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"contain", "strict"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, mode)
			other := s.start("wait 1000s")
			id := s.start("shell ls -a " + s.dir + "/run\nshell cat " + s.dir + "/run/" + tokenBegin + other + tokenEnd +
				"\nshell cat " + s.dir + "/state/seal.key\nshell echo x >" + s.dir + "/run/x\nshell echo x >$DOORWARD_TOKEN_FILE\nshell stat -c %a $DOORWARD_TOKEN_FILE")
			got := s.over(id, 20*time.Second).Output
			list, rest, _ := strings.Cut(got, tokenEnd)
			if mode == "strict" { // strict does not even allow the list
				rest = got
			} else if fields := strings.Fields(list); !slices.Equal(fields, []string{".", "..", "doorward.sock", tokenBegin + id}) {
				t.Errorf("it sees %q of the runtime directory", fields)
			}
			if strings.Contains(rest, "secret") || strings.Contains(rest, authn.SpawnToken) || !strings.HasSuffix(rest, "600\n") ||
				strings.Count(rest, "No such file")+strings.Count(rest, "ermission denied")+strings.Count(rest, "Read-only file system") < 3 {
				t.Errorf("%q", rest)
			}
			if _, err := os.Lstat(s.dir + "/run/x"); !os.IsNotExist(err) {
				t.Errorf("it wrote into the runtime directory: %v", err)
			}
		})
	}
}

// A process that the daemon started is refused once it is no agent any more, even with the
// token of the agent.
func TestAProcessOfNoAgentIsRefused(t *testing.T) {
	t.Parallel()
	for mode, reason := range map[string]string{"off": listen.ReasonOwnChild, "contain": listen.ReasonForeign} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, mode)
			id := s.start("wait 300ms\nask")
			a := s.started(id)
			s.Manager.mu.Lock()
			a.live = false
			s.Manager.mu.Unlock()
			if e := s.over(id, 10*time.Second); !strings.HasPrefix(e.Output, "closed: ") {
				t.Errorf("the answer is %q", e.Output)
			}
			doortest.Until(t, 10*time.Second, "refused: "+reason, func() bool { // reported after the connection is closed
				s.mu.Lock()
				defer s.mu.Unlock()
				return slices.Contains(s.refused, reason)
			})
		})
	}
}

// An agent that an agent started has that agent's principal as its parent, and ends with it
// unless it was started with KeepOnExit.
func TestAnAgentsAgentStandsBelowIt(t *testing.T) {
	t.Parallel()
	s := newStage(t, "contain")
	first := s.start("wait 1000s")
	r := s.Find(first)
	who := principal.New(principal.Spawn(first), principal.Fact{Name: "scope", Value: strings.Join(r.Rights, ","), Grade: principal.Verified}).
		WithLocal().WithParent(s.parent)
	second, err := s.begin(who, Request{Prompt: "ask\nwait 1000s"})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Find(second); got.Parent.Name() != "spawn:"+first || got.Parent.Parent().Name() != s.parent.Name() {
		t.Errorf("its parent is %s", got.Parent.Name())
	}
	kept, err := s.begin(who, Request{Prompt: "wait 1000s", KeepOnExit: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(first, time.Second); err != nil {
		t.Fatal(err)
	}
	if e := s.over(second, 10*time.Second); e.State != mail.Killed {
		t.Errorf("it outlived its parent and is %s", e.State)
	}
	if s.Find(kept) == nil {
		t.Error("an agent with KeepOnExit has ended with its parent")
	}
}
