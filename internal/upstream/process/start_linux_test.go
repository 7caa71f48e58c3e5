package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestServerTalksOverItsPipes(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := s.role("as-echo")
	for _, word := range []string{"one", "two"} {
		fmt.Fprintln(p.Stdin, word)
		s.expect(p, word)
	}
	if p.Err() != nil {
		t.Fatalf("Err before the end: %v", p.Err())
	}
	p.Stdin.Close()
	if err := s.end(p, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if n, err := p.Stdout.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("after the end: %d bytes, %v", n, err)
	}
}

func TestOutputBeforeTheEndCanBeReadAfterIt(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := s.shell("echo last words")
	if err := s.end(p, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	s.expect(p, "last words")
}

func TestExitStatusIsTheServers(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{
		"exit 0": 0, "exit 3": 3, "exit 255": 255, "kill -TERM $$": 128 + 15, "kill -SEGV $$": 128 + 11, "kill -KILL $$": 128 + 9,
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, Options{})
			err := s.end(s.shell(script), 5*time.Second)
			var exit *ExitError
			if want == 0 && err != nil || want != 0 && (!errors.As(err, &exit) || *exit != ExitError{Code: want}) {
				t.Fatalf("got %v, want status %d", err, want)
			}
		})
	}
}

func TestServerThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/nonexistent/server": 127, "/etc": 126, text: 126} {
		s := newStage(t, Options{})
		lines := make(chan string, 10)
		p := s.start(Spec{Path: path, Stderr: func(l string) { lines <- l }})
		err := s.end(p, 5*time.Second)
		var exit *ExitError
		if !errors.As(err, &exit) || exit.Code != want {
			t.Fatalf("%s: %v, want %d", path, err, want)
		}
		if l := <-lines; !strings.Contains(l, path) {
			t.Fatalf("the reason %q does not name %s", l, path)
		}
	}
	s := newStage(t, Options{})
	if _, err := s.Start(Spec{Server: "x", Path: "/bin/cat", Dir: "/nonexistent"}); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("missing directory: %v", err)
	}
	if s.Alive() != 0 {
		t.Fatalf("a failed start takes a place: %d", s.Alive())
	}
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	s.expect(s.start(Spec{Path: "/bin/sh", Args: []string{"-c", "pwd"}, Dir: "/usr"}), "/usr")
}

func TestArgumentsArriveAsTheyAre(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	args := []string{"--", "", "a b", "$HOME;ls", "-x", "ünï\x01"}
	p := s.start(Spec{Path: "/bin/sh", Args: append([]string{"-c", `printf '[%s]' "$@"; echo`, "sh"}, args...)})
	s.expect(p, "["+strings.Join(args, "][")+"]")
}

func TestCap(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{Max: 2})
	a, b := s.role("as-echo"), s.role("as-echo")
	if _, err := s.Start(Spec{Server: "c", Path: "/bin/cat"}); !errors.Is(err, ErrTooMany) {
		t.Fatalf("third start: %v", err)
	}
	a.Stop()
	s.end(a, 5*time.Second)
	c := s.role("as-echo")
	fmt.Fprintln(c.Stdin, "x")
	s.expect(c, "x")
	fmt.Fprintln(b.Stdin, "y")
	s.expect(b, "y")
}

func TestServerThatClosesStdoutButLives(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := s.shell(`exec >&-; read line; exit 5`)
	_ = p.Stdout.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := p.Stdout.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("want the end of file while it lives, got %v", err)
	}
	select {
	case <-p.Done():
		t.Fatal("it should be alive")
	default:
	}
	fmt.Fprintln(p.Stdin, "go on")
	if err := s.end(p, 5*time.Second); err == nil || err.(*ExitError).Code != 5 {
		t.Fatalf("status %v, want 5", err)
	}
}

func TestServerThatClosesStdinBreaksThePipe(t *testing.T) {
	t.Parallel()
	s := newStage(t, Options{})
	p := s.shell(`exec <&-; echo ready; sleep 1000`)
	s.expect(p, "ready")
	// The supervisor lets go of its own copy a moment after the server's start.
	eventually(t, 5*time.Second, "writing fails with EPIPE", func() bool {
		_, err := p.Stdin.Write([]byte("x"))
		return errors.Is(err, unix.EPIPE)
	})
}
