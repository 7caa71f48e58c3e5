package process

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// An image is executed from a file that has no name and that neither the server nor
// anything else of its user can change.
func TestAnImageIsSealed(t *testing.T) {
	t.Run("off sealed", func(t *testing.T) { // which eachMode leaves out
		t.Parallel()
		s := newStage(t, Options{Image: imageOf(sealedForm)})
		s.mode, s.form = Off, sealedForm
		isSealed(t, s)
	})
	eachMode(t, Options{}, isSealed)
}

func isSealed(t *testing.T, s *stage) {
	t.Helper()
	p := s.role("as-echo")
	fmt.Fprintln(p.Stdin, "one")
	s.expect(p, "one")
	exe := fmt.Sprintf("/proc/%d/exe", p.PID())
	inMemory := strings.HasPrefix(must(os.Readlink(exe)), "/memfd:"+imageName)
	if inMemory != (s.form == sealedForm) {
		t.Errorf("a supervisor of the form %s runs %s", s.form, must(os.Readlink(exe)))
	}
	if !inMemory {
		return
	}
	fd := int(s.image.file.Fd())
	if _, err := unix.Pwrite(fd, []byte("x"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("writing: %v", err)
	}
	if err := unix.Ftruncate(fd, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("cutting: %v", err)
	}
	if _, err := unix.Mmap(fd, 0, 4096, unix.PROT_WRITE, unix.MAP_SHARED); !errors.Is(err, unix.EPERM) {
		t.Errorf("mapping: %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("further seals: %v", err)
	}
	if got := must(os.ReadFile(exe)); string(got) != s.o.Image {
		t.Error("it is not the image")
	}
}

// A server gets no descriptor of the image.
func TestAServerHasNoDescriptorOfTheImage(t *testing.T) {
	eachMode(t, Options{}, func(t *testing.T, s *stage) {
		p := s.shell("for f in /proc/self/fd/*; do readlink $f; done; echo end")
		for line := ""; line != "end"; {
			if line = s.line(p); strings.Contains(line, imageName) {
				t.Errorf("it has %s", line)
			}
		}
	})
}

// Where an image cannot be executed, the own binary is the supervisor, and that is logged
// once. A start that fails for another reason is not taken for that.
func TestWithoutAnImageThatRuns(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	s := newStage(t, Options{Image: "no program", Log: slog.New(slog.NewTextHandler(&said, nil))})
	_, err := s.Start(Spec{Server: "s", Path: "/bin/cat", Dir: filepath.Join(t.TempDir(), "missing")})
	if err == nil || said.Len() > 0 {
		t.Errorf("started in no directory: %v, logged: %s", err, &said)
	}
	for range 2 {
		p := s.role("as-echo")
		fmt.Fprintln(p.Stdin, "one")
		s.expect(p, "one")
		if exe := must(os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID()))); exe != self() {
			t.Errorf("the supervisor runs %s", exe)
		}
	}
	if n := strings.Count(said.String(), "own binary"); n != 1 {
		t.Errorf("logged %d times: %s", n, &said)
	}
}
