package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ptyMain runs a program at a terminal of its own, as a person's shell does, and ends
// with its status. Output and errors of the program stay apart, and go where those of
// ptyMain go; after the word -screen they go to the terminal, which is 80 columns wide
// and at the end of its input.
func ptyMain() {
	argv, screen := os.Args[1:], false
	if len(argv) > 0 && argv[0] == "-screen" {
		argv, screen = argv[1:], true
	}
	status, err := atTerminal(argv, screen)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pty:", err)
	}
	os.Exit(status)
}

func atTerminal(argv []string, screen bool) (int, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return 1, err
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return 1, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return 1, err
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return 1, err
	}
	defer slave.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, os.Stdout, os.Stderr
	if screen {
		shown, err := showOn(master, slave)
		if err != nil {
			return 1, err
		}
		cmd.Stdout, cmd.Stderr = slave, slave
		defer shown(slave)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return ended.ExitCode(), nil
	}
	return 0, err
}

// showOn makes the terminal 80 columns wide, ends its input, and copies what is written
// to it to standard output. shown waits for the end of that.
func showOn(master, slave *os.File) (shown func(*os.File), err error) {
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 80}); err != nil {
		return nil, err
	}
	mode, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	mode.Lflag &^= unix.ECHO
	mode.Oflag &^= unix.OPOST
	if err := unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, mode); err != nil {
		return nil, err
	}
	if _, err := master.Write([]byte("\x04\x04\x04\x04")); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(os.Stdout, master) // ends with EIO when the terminal is closed
	}()
	return func(slave *os.File) {
		slave.Close()
		<-done
	}, nil
}
