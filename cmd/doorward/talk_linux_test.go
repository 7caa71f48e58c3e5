package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// lines collects what a process or a stream says and wakes its readers. A line can be taken
// once.
type lines struct {
	mu      sync.Mutex
	all     []string
	left    []string // not taken yet
	partial []byte
	ended   bool
	changed chan struct{} // closed and replaced by every change
	copy    *os.File      // for the script to grep; may be nil
}

// newLines appends what comes to the file too, unless path is empty.
func newLines(path string) *lines {
	l := &lines{changed: make(chan struct{})}
	if path != "" {
		// A daemon that cannot log has other troubles: the copy is optional.
		l.copy, _ = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	}
	return l
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.copy != nil {
		if _, err := l.copy.Write(p); err != nil {
			return 0, err
		}
	}
	l.partial = append(l.partial, p...)
	for {
		line, rest, ok := bytes.Cut(l.partial, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		l.all = append(l.all, string(line))
		l.left = append(l.left, string(line))
		l.partial = rest
		l.signal()
	}
}

// signal needs mu.
func (l *lines) signal() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *lines) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.copy != nil {
		l.copy.Close()
	}
	l.signal()
}

func (l *lines) seen() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

func (l *lines) String() string { return strings.Join(l.seen(), "\n") }

// take waits for a line that matches and has not been taken. It gives up when
// nothing more can come.
func (l *lines) take(re *regexp.Regexp, within time.Duration) (string, bool) {
	timeout := time.After(within)
	for {
		l.mu.Lock()
		i := slices.IndexFunc(l.left, re.MatchString)
		if i >= 0 {
			line := l.left[i]
			l.left = slices.Delete(l.left, i, i+1)
			l.mu.Unlock()
			return line, true
		}
		changed, ended := l.changed, l.ended
		l.mu.Unlock()
		if ended {
			return "", false
		}
		select {
		case <-changed:
		case <-timeout:
			return "", false
		}
	}
}

// over waits for the end of what is said.
func (l *lines) over(within time.Duration) bool {
	_, _ = l.take(regexp.MustCompile(`^\x00$`), within) // matches nothing: waits
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// talk is a conversation in lines: with a command over stdio, or an event
// stream that is listened to.
type talk struct {
	in   io.WriteCloser // nil for a stream
	out  *lines
	done chan struct{} // closed when the command has ended; nil for a stream
	cmd  *exec.Cmd
}

// cmdMCP is one step of a conversation:
//
//	mcp NAME start [-uid N] CMD…     run CMD, as that user, and talk to it
//	mcp NAME send LINE               $NAME is replaced
//	[!] mcp NAME expect REGEXP [LIMIT]   a line comes, whatever came before it
//	mcp NAME end STATUS LIMIT        close its stdin; it must exit by itself
//	[!] mcp NAME over LIMIT          the other side ends it
//
// Streams are opened with http -stream.
func cmdMCP(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg && (len(args) < 2 || args[1] != "expect" && args[1] != "over"), len(args) >= 2, "mcp NAME start|send|expect|end|over …")
	s := stageOf(ts)
	name, what, args := args[0], args[1], args[2:]
	if what == "start" {
		s.talks[name] = startTalk(ts, args)
		return
	}
	t := s.talks[name]
	if t == nil {
		ts.Fatalf("no conversation %s", name)
	}
	switch {
	case what == "send" && len(args) == 1 && t.in != nil:
		_, err := io.WriteString(t.in, fill(ts, args[0])+"\n")
		ts.Check(err)
	case what == "expect" && len(args) >= 1:
		t.expect(ts, neg, args)
	case what == "end" && len(args) == 2 && t.in != nil:
		t.end(ts, args[0], args[1])
	case what == "over" && len(args) == 1:
		t.over(ts, neg, args[0])
	default:
		ts.Fatalf("mcp %s: unknown or wrong arguments", what)
	}
}

func startTalk(ts *testscript.TestScript, args []string) *talk {
	uid := ""
	if len(args) > 2 && args[0] == "-uid" {
		uid, args = args[1], args[2:]
	}
	pairs, argv := cutPairs(args)
	cmd := exec.Command(program(ts, argv[0]), argv[1:]...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), environment(ts, pairs)
	if uid != "" {
		asUser(ts, cmd, uid)
	}
	t := &talk{out: newLines(""), cmd: cmd, done: make(chan struct{})}
	var errs strings.Builder
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = t.out, &errs, 3*time.Second
	in, err := cmd.StdinPipe()
	ts.Check(err)
	t.in = in
	ts.Check(cmd.Start())
	go func() {
		defer close(t.done)
		_ = cmd.Wait() // its status is read from ProcessState
		t.out.close()
	}()
	ts.Defer(func() {
		in.Close()
		_ = cmd.Process.Kill() // it may be gone
		<-t.done
		if errs.Len() > 0 {
			ts.Logf("[stderr of %s]\n%s", strings.Join(argv, " "), errs.String())
		}
	})
	return t
}

func (t *talk) expect(ts *testscript.TestScript, neg bool, args []string) {
	within := 15*time.Second + late()
	if len(args) > 1 {
		d, err := time.ParseDuration(args[1])
		ts.Check(err)
		if within = d; !neg {
			within += late()
		}
	}
	line, ok := t.out.take(pattern(ts, args[0]), within)
	switch {
	case ok && neg:
		ts.Fatalf("it said %s", line)
	case !ok && !neg:
		ts.Fatalf("no line matches %s within %s; it said:\n%s", args[0], within, t.out)
	}
	fmt.Fprintln(ts.Stdout(), line)
}

func (t *talk) over(ts *testscript.TestScript, neg bool, text string) {
	within, err := time.ParseDuration(text)
	ts.Check(err)
	if !neg {
		within += late()
	}
	if t.out.over(within) == neg {
		ts.Fatalf("it ended within %s: %v; it said:\n%s", within, neg, t.out)
	}
}

func (t *talk) end(ts *testscript.TestScript, status, within string) {
	ts.Check(t.in.Close())
	select {
	case <-t.done:
	case <-time.After(limit(ts, within)):
		ts.Fatalf("it still runs %s after its input ended", within)
	}
	if got := strconv.Itoa(t.cmd.ProcessState.ExitCode()); got != status {
		ts.Fatalf("exit status %s", got)
	}
}
