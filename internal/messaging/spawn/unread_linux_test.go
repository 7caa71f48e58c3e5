package spawn

import (
	"errors"
	"os"
	"testing"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/upstream/pin"
	"github.com/doorward/doorward/internal/upstream/process"
)

// A launcher whose program cannot be read is unusable, and not changed: the operator has
// nothing to approve. It can be used again with its program.
func TestAProgramThatCannotBeReadIsNoChangedOne(t *testing.T) {
	t.Parallel()
	s := newStage(t, process.Contain)
	pins, err := pin.Open(pin.Options{Dir: s.dir + "/state/pins"})
	if err != nil {
		t.Fatal(err)
	}
	program := s.dir + "/work/agent.sh"
	l := s.helper(process.Contain)
	l.Path, l.Approved = program, pins.Guard("launcher:helper", false, &pin.Process{Path: program, Dir: l.Cwd}).Start
	s.launchers(l)
	write := func() error { return os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700) }
	for _, c := range []struct {
		what string
		make func() error
		want string
	}{
		{"absent before the first start", func() error { return nil }, mail.LauncherUnknown},
		{"there", write, ""},
		{"removed", func() error { return os.Remove(program) }, mail.LauncherUnknown},
		{"a link to nothing", func() error { return os.Symlink("none", program) }, mail.LauncherUnknown},
		{"another one", func() error {
			return errors.Join(os.Remove(program), os.WriteFile(program, []byte("#!/bin/sh\necho\n"), 0o700))
		}, mail.LauncherChanged},
		{"there again", func() error { return errors.Join(os.Remove(program), write()) }, ""},
	} {
		if err := c.make(); err != nil {
			t.Fatal(err)
		}
		_, err := s.Check(s.parent, Request{Launcher: "helper", Prompt: "x"})
		if err == nil && c.want != "" || err != nil && code(err) != c.want {
			t.Errorf("%s: %v; want %q", c.what, err, c.want)
		}
		if held := pins.Withheld("launcher:helper"); (len(held) > 0) != (c.want == mail.LauncherChanged) {
			t.Errorf("%s: withheld %+v", c.what, held)
		}
	}
}
