package spawn

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/upstream/process"
)

// A launcher whose program cannot be executed is refused with the path and the remedy, with and
// without an approval, and can be used again with its program.
func TestAProgramThatCannotBeExecutedIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t, process.Contain)
	program := s.dir + "/work/agent.sh"
	l := s.helper(process.Contain)
	l.Path = program
	s.launchers(l)
	write := func(mode os.FileMode) func() error {
		return func() error {
			return errors.Join(os.WriteFile(program, []byte("#!/bin/sh\n"), mode), os.Chmod(program, mode))
		}
	}
	for _, approved := range []func() error{nil, func() error { return nil }} {
		l.Approved = approved
		for _, c := range []struct {
			what string
			make func() error
			want string // in the reason; empty: it can be used
		}{
			{"executable", write(0o700), ""},
			{"not executable", write(0o600), program + ": not executable"},
			{"executable again", write(0o700), ""},
			{"a directory", func() error { return errors.Join(os.Remove(program), os.Mkdir(program, 0o700)) }, program + " is a directory"},
			{"absent", func() error { return os.Remove(program) }, program},
		} {
			if err := c.make(); err != nil {
				t.Fatal(err)
			}
			_, err := s.Check(s.parent, Request{Launcher: "helper", Prompt: "x"})
			if (err == nil) != (c.want == "") || err != nil && (code(err) != mail.LauncherUnknown || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: %v; want %q", c.what, err, c.want)
			}
		}
	}
}
