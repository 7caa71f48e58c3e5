package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// fakeAgent is an agent that runs its prompt as a shell script. It passes the prompt on
// standard input, so that it is in no argument of the shell either. The programs for the
// scripts are in the directory of its own program.
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
