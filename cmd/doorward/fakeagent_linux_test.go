package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// fakeAgent is an agent that obeys: its prompt, on standard input, is a shell's
// script, and so it is in no argument of that shell either. The programs of the
// scripts are beside its own.
func fakeAgent(args []string) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c := exec.Command("/bin/sh", append([]string{"-s", "--"}, args...)...)
	c.Env = append(os.Environ(), "PATH="+filepath.Dir(self)+":"+os.Getenv("PATH"))
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = c.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
