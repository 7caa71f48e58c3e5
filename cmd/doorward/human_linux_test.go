package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdHuman runs an operator's command as at a person's terminal. The processes of a script
// are below the test, and so are its agents. A person's terminal is not, and was open
// before the agents began. So the command runs below the resident, which left the process
// tree of the test before the first daemon: an operator's command is not refused there.
//
//	human [-within D] STATUS [VAR=V…] CMD…   must end by itself, with that status
func cmdHuman(ts *testscript.TestScript, neg bool, args []string) {
	within := 30*time.Second + late()
	if len(args) > 1 && args[0] == "-within" {
		within, args = limit(ts, args[1]), args[2:]
	}
	need(ts, neg, len(args) > 1, "human [-within LIMIT] STATUS [VAR=VALUE…] CMD…")
	pairs, argv := cutPairs(args[1:])
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	status, err := runAdrift(ctx, ts, pairs, argv)
	ts.Check(err)
	if status != args[0] {
		ts.Fatalf("exit status %s", status)
	}
}

// runAdrift has the resident run a command.
func runAdrift(ctx context.Context, ts *testscript.TestScript, pairs, argv []string) (status string, err error) {
	stdout, stderr, status, err := residentRun(ctx, residentJob{Dir: ts.MkAbs("."), Env: environment(ts, pairs), Argv: append([]string{program(ts, argv[0])}, argv[1:]...)})
	fmt.Fprint(ts.Stdout(), stdout)
	fmt.Fprint(ts.Stderr(), stderr)
	return status, err
}

// residentRun has the resident run a command, and returns what it printed and its exit status.
func residentRun(ctx context.Context, job residentJob) (stdout, stderr, status string, err error) {
	var out [3]bytes.Buffer // stdout, stderr, status
	done := make(chan error, len(out))
	var ends []*os.File
	for i := range out {
		r, w, err := os.Pipe()
		if err != nil {
			return "", "", "", err
		}
		defer r.Close()
		stop := context.AfterFunc(ctx, func() { r.Close() })
		defer stop()
		ends = append(ends, w)
		go func() { _, err := io.Copy(&out[i], r); done <- err }()
	}
	err = theResident().run(job, ends)
	for _, w := range ends {
		w.Close()
	}
	for range out {
		err = errors.Join(err, <-done)
	}
	return out[0].String(), out[1].String(), out[2].String(), err
}

// adriftFrom is the variable with the parent whose end a process waits for.
const adriftFrom = "ADRIFT_FROM"

// adrift starts itself again and exits; the second one waits until it is
// adopted, runs the command and writes its status to descriptor 3.
func adrift() {
	if err := drift(); err != nil {
		fmt.Fprintln(os.Stderr, "adrift:", err)
		os.Exit(1)
	}
}

func drift() error {
	status := os.NewFile(3, "status")
	from := os.Getenv(adriftFrom)
	if from == "" {
		path, err := exec.LookPath("adrift")
		if err != nil {
			return err
		}
		again := exec.Command(path, os.Args[1:]...)
		again.Env = append(os.Environ(), adriftFrom+"="+strconv.Itoa(os.Getpid()))
		again.Stdout, again.Stderr, again.ExtraFiles = os.Stdout, os.Stderr, []*os.File{status}
		return again.Start()
	}
	for strconv.Itoa(os.Getppid()) == from {
		time.Sleep(time.Millisecond)
	}
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, adriftFrom+"=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	_, err = fmt.Fprint(status, cmd.ProcessState.ExitCode())
	return err
}
