package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// tokenBox is a state directory and the real program on it.
type tokenBox struct {
	t   *testing.T
	env []string
}

func (b *tokenBox) command(args ...string) *exec.Cmd {
	cmd := exec.Command("doorward", append([]string{"token"}, args...)...)
	cmd.Env = b.env
	return cmd
}

func (b *tokenBox) list() []tokenLine {
	b.t.Helper()
	out, err := b.command("list", "--json").Output()
	var all []tokenLine
	if err := errors.Join(err, json.Unmarshal(out, &all)); err != nil {
		b.t.Fatalf("token list: %v", err)
	}
	return all
}

// Many processes make and rotate tokens at once: each gets its own, none is lost, and each
// name has one current token.
func TestManyProcessesMakeTokens(t *testing.T) {
	t.Parallel()
	b := &tokenBox{t, []string{"HOME=" + t.TempDir(), "GORACE=atexit_sleep_ms=0", "DOORWARD_STATE_DIR=" + t.TempDir()}}
	if out, err := b.command("new", "ci", "--scope", "agent").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	const each = 8
	var mu sync.Mutex
	shown := map[string]bool{}
	var all sync.WaitGroup
	for i := range each {
		for _, args := range [][]string{{"new", fmt.Sprint("own", i)}, {"new", "ci", "--overlap", "1h"}} {
			all.Go(func() {
				out, err := b.command(args...).Output()
				mu.Lock()
				defer mu.Unlock()
				if tok := strings.TrimSpace(string(out)); err != nil || !strings.HasPrefix(tok, "dw_") || shown[tok] {
					t.Errorf("%v: %v", args, err)
				} else {
					shown[tok] = true
				}
			})
		}
	}
	all.Wait()
	current := map[string]int{}
	for _, l := range b.list() {
		if !l.Succeeded {
			current[l.Name]++
		}
		if l.Name == "ci" && (l.Scope != "agent" || l.Succeeded == (l.Expires == "")) {
			t.Errorf("%+v", l)
		}
	}
	if n := len(b.list()); n != 1+2*each || len(current) != 1+each || current["ci"] != 1 {
		t.Errorf("%d tokens, current %v", n, current)
	}
}

// A process that is killed at any moment leaves a store that can be read and written, with
// every token that was printed.
func TestAKilledProcessLosesNoToken(t *testing.T) {
	t.Parallel()
	b := &tokenBox{t, []string{"HOME=" + t.TempDir(), "GORACE=atexit_sleep_ms=0", "DOORWARD_STATE_DIR=" + t.TempDir()}}
	for i := range 25 {
		cmd := b.command("new", fmt.Sprint("n", i))
		said := newLines("")
		cmd.Stdout = said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		moment := time.Duration(i) * 2 * time.Millisecond
		if i%2 == 1 {
			moment = mailSoon // when it has shown its token
		}
		if _, shown := said.take(regexp.MustCompile(`^dw_`), moment); !shown && i%2 == 1 {
			t.Errorf("token n%d was not shown", i)
		}
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		known := false
		for _, l := range b.list() {
			known = known || l.Name == fmt.Sprint("n", i)
		}
		if said.String() != "" && !known {
			t.Errorf("token n%d was shown and is not there", i)
		}
	}
	if out, err := b.command("new", "last").CombinedOutput(); err != nil {
		t.Errorf("afterwards: %v %s", err, out)
	}
}
