package doortest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killFamily ends a process and its children with SIGKILL, and returns when all have ended. The
// parent is stopped first, so that it starts no further child. Without /proc only the parent is
// killed; PostgreSQL's children then end by themselves.
func killFamily(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stopping %d: %w", pid, err)
	}
	family := append(children(pid), pid)
	for _, p := range family {
		if err := syscall.Kill(p, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("killing %d: %w", p, err)
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for _, p := range family {
		for running(p) {
			if time.Now().After(deadline) {
				return fmt.Errorf("process %d does not end", p)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// signalFamily sends a signal to a process, and then to its children.
func signalFamily(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil {
		return fmt.Errorf("signalling %d: %w", pid, err)
	}
	for _, p := range children(pid) {
		if err := syscall.Kill(p, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signalling %d: %w", p, err)
		}
	}
	return nil
}

func children(parent int) []int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var found []int
	for _, path := range stats {
		if _, ppid := processState(path); ppid == parent {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				found = append(found, pid)
			}
		}
	}
	return found
}

// running is false for a process that has ended, reaped or not.
func running(pid int) bool {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return false
	}
	state, _ := processState(fmt.Sprintf("/proc/%d/stat", pid))
	return state != "Z" && state != "X"
}

// processState reads state and parent after the name, which may contain anything.
func processState(stat string) (state string, parent int) {
	b, err := os.ReadFile(stat)
	if err != nil {
		return "", 0
	}
	_, rest, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
	_, _ = fmt.Sscan(rest, &state, &parent)
	return state, parent
}
