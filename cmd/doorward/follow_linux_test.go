package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// follower is `doorward pending --follow` at a terminal of its own.
type follower struct {
	t             *testing.T
	master, slave *os.File
	cmd           *exec.Cmd
	over          chan error

	mu    sync.Mutex
	shown bytes.Buffer
	read  int // bytes of shown that were waited for
}

func startFollower(t *testing.T, d *mailDaemon) *follower {
	t.Helper()
	f := &follower{t: t, over: make(chan error, 1)}
	f.master, f.slave = openTerminal(t)
	f.cmd = exec.Command("doorward", "pending", "--follow")
	f.cmd.Dir, f.cmd.Env = d.dir, d.env
	f.cmd.Stdin, f.cmd.Stdout, f.cmd.Stderr = f.slave, f.slave, f.slave
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { f.over <- f.cmd.Wait() }()
	go f.watch()
	t.Cleanup(func() {
		_ = f.cmd.Process.Kill() // it may have ended
		f.slave.Close()
		f.master.Close()
		if t.Failed() {
			t.Logf("[the terminal]\n%s", f.text())
		}
	})
	return f
}

// watch keeps what the terminal shows.
func (f *follower) watch() {
	b := make([]byte, 4096)
	for {
		n, err := f.master.Read(b)
		f.mu.Lock()
		f.shown.Write(b[:n])
		f.mu.Unlock()
		if err != nil {
			return // the terminal is closed
		}
	}
}

func (f *follower) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shown.String()
}

func (f *follower) typed(keys string) {
	f.t.Helper()
	if _, err := f.master.WriteString(keys); err != nil {
		f.t.Fatal(err)
	}
}

// asks waits for the next question, and returns what was shown with it.
func (f *follower) asks() (text string) { f.t.Helper(); return f.sees(keysOfAnswers + ": ") }

// sees waits until the terminal shows something, and returns what was shown before it.
func (f *follower) sees(what string) (text string) {
	f.t.Helper()
	found := poll(mailSoon, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		before, _, ok := bytes.Cut(f.shown.Bytes()[f.read:], []byte(what))
		if ok {
			text = string(before)
			f.read += len(before) + len(what)
		}
		return ok
	})
	if !found {
		f.t.Fatalf("%q is not shown", what)
	}
	return text
}

// answer is how a held call ended for its caller.
type answer struct {
	out string
	err error
}

// hold makes a call with this argument, which is held. The process that starts the command
// counts as an agent: that is a shell, and not the test, which is above the terminal.
func hold(t *testing.T, d *mailDaemon, arg string) <-chan answer {
	t.Helper()
	cmd := exec.Command("sh", "-c", "doorward call echo count "+arg+"; exit $?")
	cmd.Dir, cmd.Env = d.dir, d.env
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &both, &both, 10*time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	over := make(chan answer, 1)
	go func() {
		err := cmd.Wait()
		over <- answer{both.String(), err}
	}()
	return over
}

func (a answer) status() int {
	var exit *exec.ExitError
	if errors.As(a.err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

func ended(t *testing.T, over <-chan answer) answer {
	t.Helper()
	select {
	case a := <-over:
		return a
	case <-time.After(mailSoon):
		t.Fatal("the call still waits")
		return answer{}
	}
}

// typedBefore is what a person may have typed before a question is shown: answers to other
// questions, with line ends and without.
func typedBefore(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(12) {
		b.WriteByte("ynshw \n\r"[r.IntN(8)])
	}
	return b.String()
}

// TestAKeyAnswersAHeldCall: at a real terminal a call runs once when its key approves it,
// and not at all when its key denies it, with or without a reason. Keys typed before a
// question is shown do not answer it, also when they follow the answer to the question
// before.
func TestAKeyAnswersAHeldCall(t *testing.T) {
	t.Parallel()
	d := heldCount(t)
	f := startFollower(t, d)
	seed := time.Now().UnixNano()
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	ran, before := 0, typedBefore(r)
	f.typed(before)
	for n := range 8 {
		over := hold(t, d, fmt.Sprintf("n=%d", n))
		if text := f.asks(); !strings.Contains(text, "echo/count") || !strings.Contains(text, fmt.Sprintf(`{"n":%d}`, n)) {
			t.Errorf("shown: %q", text)
		}
		key := "ynw"[r.IntN(3)]
		was := before
		before = typedBefore(r)
		switch key {
		case 'y':
			ran++
			f.typed("y" + before)
			if a := ended(t, over); a.err != nil || !strings.Contains(a.out, fmt.Sprintf("call %d", ran)) {
				t.Fatalf("seed %d: y after %q: %v %s", seed, was, a.err, a.out)
			}
		case 'n':
			f.typed("n" + before)
			if a := ended(t, over); a.status() != exitRefused || !strings.Contains(a.out, "Not approved by the operator") {
				t.Fatalf("seed %d: n after %q: %v %s", seed, was, a.err, a.out)
			}
		case 'w':
			f.typed("w")
			f.sees("why: ")
			f.typed(fmt.Sprintf("reason %d of the operator\n%s", n, before))
			if a := ended(t, over); a.status() != exitRefused || !strings.Contains(a.out, fmt.Sprintf("reason %d of the operator", n)) {
				t.Fatalf("seed %d: w after %q: %v %s", seed, was, a.err, a.out)
			}
		}
	}
	if out, _ := d.human("doorward", "approvals", "list"); out != "there are no standing approvals\n" {
		t.Errorf("seed %d: %s", seed, out)
	}
}

// TestOneKeyAnswersOneHeldCall: of several keys in one burst only the first is an answer;
// the others do not answer the next question.
func TestOneKeyAnswersOneHeldCall(t *testing.T) {
	t.Parallel()
	d := heldCount(t)
	f := startFollower(t, d)
	first := hold(t, d, "n=1")
	f.asks()
	second := hold(t, d, "n=2")
	if !poll(mailSoon, func() bool { out, _ := d.human("doorward", "pending"); return strings.Contains(out, "\n2  ") }) {
		t.Fatal("the second call is not held")
	}
	f.typed("yyyy")
	if a := ended(t, first); a.err != nil || !strings.Contains(a.out, "call 1") {
		t.Fatalf("%v %s", a.err, a.out)
	}
	f.asks()
	f.typed("n")
	if a := ended(t, second); a.status() != exitRefused {
		t.Errorf("the second call: %v %s", a.err, a.out)
	}
}

// TestCtrlCLeavesAHeldCallPending: the command exits with status 0, the terminal mode is
// restored, and the calls stay pending. A key without a meaning also leaves its call
// pending.
func TestCtrlCLeavesAHeldCallPending(t *testing.T) {
	t.Parallel()
	d := heldCount(t)
	f := startFollower(t, d)
	_ = hold(t, d, "n=1")
	f.asks()
	f.typed("x")
	over := hold(t, d, "n=2")
	f.asks()
	f.typed("\x03")
	select {
	case err := <-f.over:
		if err != nil {
			t.Errorf("the command ended with %v", err)
		}
	case <-time.After(mailSoon):
		t.Fatal("the command goes on")
	}
	mode, err := unix.IoctlGetTermios(int(f.slave.Fd()), unix.TCGETS)
	if err != nil || mode.Lflag&unix.ICANON == 0 || mode.Lflag&unix.ECHO == 0 || mode.Lflag&unix.ISIG == 0 {
		t.Errorf("the terminal is left in another mode: %+v, %v", mode, err)
	}
	out, _ := d.human("doorward", "pending")
	if !strings.HasPrefix(out, "1  echo/count") || !strings.Contains(out, "\n2  echo/count") || len(over) != 0 {
		t.Errorf("what waits:\n%s", out)
	}
}

// TestAQuestionEndsWhenItIsSettledElsewhere: the terminal reports the decision and asks
// about the next call. The next key answers that call, and not the question that has ended.
func TestAQuestionEndsWhenItIsSettledElsewhere(t *testing.T) {
	t.Parallel()
	d := heldCount(t)
	f := startFollower(t, d)
	first := hold(t, d, "n=1")
	f.asks()
	second := hold(t, d, "n=2")
	third := startFollower(t, d)
	third.asks()
	third.typed("y")
	if a := ended(t, first); a.err != nil || !strings.Contains(a.out, "call 1") {
		t.Fatalf("%v %s", a.err, a.out)
	}
	if text := f.asks(); !strings.Contains(text, "1 was decided elsewhere") || !strings.Contains(text, `{"n":2}`) {
		t.Errorf("shown: %q", text)
	}
	f.typed("w")
	f.sees("why: ")
	third.asks()
	third.typed("n")
	if a := ended(t, second); a.status() != exitRefused {
		t.Errorf("the second call: %v %s", a.err, a.out)
	}
	f.sees("2 was decided elsewhere")
	last := hold(t, d, "n=3")
	f.asks()
	f.typed("y")
	if a := ended(t, last); a.err != nil || !strings.Contains(a.out, "call 2") {
		t.Errorf("the third call: %v %s", a.err, a.out)
	}
}

// TestARestartHidesNoHeldCall: after a restart of the daemon a call is asked about, also if it
// is equal to one that was asked about before.
func TestARestartHidesNoHeldCall(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]string{"an equal call": "n=1", "another call": "n=2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := heldCount(t)
			f := startFollower(t, d)
			_ = hold(t, d, "n=1")
			f.asks()
			d.kill()
			d.start()
			f.sees("1 was decided elsewhere")
			over := hold(t, d, second)
			if text := f.asks(); !strings.Contains(text, "\n2  echo/count") {
				t.Errorf("shown: %q", text)
			}
			f.typed("y")
			if a := ended(t, over); a.err != nil || !strings.Contains(a.out, "call 1") {
				t.Errorf("%v %s", a.err, a.out)
			}
		})
	}
}
