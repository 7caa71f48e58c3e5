//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	startPatience = 30 * time.Second
	stopPatience  = 15 * time.Second
)

// process is one program under measurement.
type process struct {
	cmd  *exec.Cmd
	addr string // host:port or path of the socket that it serves; empty: none
	done chan struct{}
	tail *tail
}

// start runs a program and waits until a line on the given stream (1 or 2) satisfies ready, which
// returns the address that the program serves. The program ends with the benchmark: the kernel
// kills it when the thread that started it ends. For this reason main locks its thread and calls
// start on it.
func start(stream int, ready func(line string) (addr string, ok bool), path string, env []string, args ...string) (*process, error) {
	cmd := exec.Command(path, args...)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out io.ReadCloser
	var err error
	if stream == 1 {
		cmd.Stderr = os.Stderr
		out, err = cmd.StdoutPipe()
	} else {
		out, err = cmd.StderrPipe()
	}
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{}), tail: new(tail)}
	up := make(chan string, 1)
	go p.follow(out, ready, up)
	select {
	case p.addr = <-up:
		return p, nil
	case <-p.done:
		return nil, fmt.Errorf("%s ended early: %s", path, p.tail)
	case <-time.After(startPatience):
		p.stop()
		return nil, fmt.Errorf("%s is not ready after %v: %s", path, startPatience, p.tail)
	}
}

// follow reads the output to its end and reaps the process.
func (p *process) follow(out io.Reader, ready func(string) (string, bool), up chan<- string) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		p.tail.add(lines.Text())
		if ready != nil {
			if addr, ok := ready(lines.Text()); ok {
				up <- addr
				ready = nil
			}
		}
	}
	io.Copy(io.Discard, out)
	p.cmd.Wait()
	close(p.done)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop sends SIGTERM to the process, and kills it if it does not end.
func (p *process) stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopPatience):
		p.cmd.Process.Kill()
		<-p.done
	}
}

// cpuTime returns the processor time of a process since its start, user and system, including ended
// threads. The process clock has nanoseconds; /proc/PID/stat has ticks of 10 ms, too coarse for 64
// children.
func cpuTime(pid int) (time.Duration, error) {
	// The encoding of clock_getcpuclockid(3): the inverted pid, and CPUCLOCK_SCHED for the whole process.
	clock := int32(^pid)<<3 | 2
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("reading the clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// memory holds values of /proc/PID/status in KiB.
type memory struct {
	RSS  int64 `json:"rss_kib"`
	Anon int64 `json:"anonymous_kib"`
}

func memoryOf(pid int) (memory, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, fmt.Errorf("reading memory: %w", err)
	}
	var m memory
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "VmRSS":
			m.RSS = kib(value)
		case "RssAnon":
			m.Anon = kib(value)
		}
	}
	if m.RSS == 0 {
		return m, errors.New("reading memory: no VmRSS: the process has ended")
	}
	return m, nil
}

func kib(value string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
	return n
}

// descendants returns the processes below a process: the stdio servers and their supervisors.
func descendants(root int) ([]int, error) {
	parents, err := parentTable()
	if err != nil {
		return nil, err
	}
	var found []int
	for pid := range parents {
		for p := parents[pid]; p > 1; p = parents[p] {
			if p == root {
				found = append(found, pid)
				break
			}
		}
	}
	return found, nil
}

// parentTable maps each process that is not a zombie to its parent.
func parentTable() (map[int]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	parents := make(map[int]int, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended since
		}
		// The name may hold any character, so the fields are counted from its closing parenthesis.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 && string(fields[0]) != "Z" {
			parents[pid], _ = strconv.Atoi(string(fields[1]))
		}
	}
	return parents, nil
}
