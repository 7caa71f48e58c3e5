package session

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/test/doortest"
)

// helperEnv makes the test binary a helper process: it prints itself and its
// ancestors, and ends with its input.
const helperEnv = "DOORWARD_SESSION_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) == "" {
		os.Exit(m.Run())
	}
	above, _ := peer.Above()
	for _, p := range above {
		os.Stdout.WriteString(p.Instance + " ")
	}
	os.Stdout.WriteString("\n")
	if len(os.Args) > 1 { // a parent: start a child that does the same
		child := exec.Command("/proc/self/exe")
		child.Env, child.Stdin, child.Stdout = os.Environ(), os.Stdin, os.Stdout
		_ = child.Run()
		os.Exit(0)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// process starts a parent with a child. instance is the parent's, seen by its
// child, and end ends both.
func process(t *testing.T) (instance string, end func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "parent")
	cmd.Env = []string{helperEnv + "=1"}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var once sync.Once
	end = func() {
		once.Do(func() {
			in.Close()
			cmd.Process.Kill()
			cmd.Wait()
		})
	}
	t.Cleanup(end)
	read := func() []string {
		var line []byte
		for b := make([]byte, 1); ; line = append(line, b[0]) {
			if _, err := io.ReadFull(out, b); err != nil {
				t.Fatalf("the helper said %q: %v", line, err)
			}
			if b[0] == '\n' {
				return strings.Fields(string(line))
			}
		}
	}
	parent, child := read(), read()
	if len(parent) == 0 || len(child) != len(parent)+1 || child[1] != parent[0] {
		t.Fatalf("the stage is wrong: %v above the parent, %v above the child", parent, child)
	}
	return child[0], end
}

// A session ends when the real process that it is bound to exits. A session bound to
// another process goes on.
func TestARealProcessThatExitsEndsItsSession(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		var looks sync.Map // at which processes Run has looked
		o := b.options()
		o.Gone = func(p string) bool { looks.Store(p, true); return peer.Gone(p) }
		o.Now = nil
		b.Keeper = b.open(o)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { b.Run(ctx) })
		defer func() { cancel(); running.Wait() }()

		instance, end := process(t)
		other, _ := process(t)
		r := ask()
		r.Bind = instance
		token, s := b.issue(r)
		r.Bind = other
		stays, _ := b.issue(r)
		below := func(p string) Caller {
			return Caller{Unix: true, Principal: "uid:1000", Processes: []string{"below/1@1", p}}
		}
		looks.Clear()
		doortest.Until(t, 20*time.Second, "Run looks at it", func() bool { _, looked := looks.Load(instance); return looked })
		b.good(token, below(instance))
		b.bad(token, below(other), Binding)
		done := b.Done(s.ID)
		end()
		began := time.Now()
		select {
		case <-done:
		case <-time.After(30 * time.Second): // about one second on an idle machine
			t.Fatal("its process is gone, and the session lives")
		}
		b.bad(token, below(instance), Revoked)
		b.good(stays, below(other))
		same(t, "why", b.mustFind(s.ID).Reason, ReasonProcess)
		t.Logf("ended after %s", time.Since(began).Round(time.Millisecond))
		doortest.Until(t, 20*time.Second, "it is told", func() bool { return len(b.heard()) == 1 })
		doortest.Until(t, 20*time.Second, "it is saved", func() bool { return b.rows("instruct_tokens") == 1 })
	})
}

func TestARealProcessThatExitedBeforeTheStartEndsItsSession(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		o := b.options()
		o.Gone, o.Now = nil, nil
		b.Keeper = b.open(o)
		instance, end := process(t)
		r := ask()
		r.Bind = instance
		token, s := b.issue(r)
		b.Keeper = b.open(o)
		b.good(token, Caller{})
		end()
		b.bad(token, Caller{}, Revoked) // at once
		b.Keeper = b.open(o)
		b.bad(token, Caller{}, Revoked)
		same(t, "why", b.mustFind(s.ID).Reason, ReasonProcess)
	})
}
