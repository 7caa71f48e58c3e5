package puppet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// OwnNumbers returns attributes for a process in a new pid namespace, where no other process
// takes pids.
func OwnNumbers() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
}

// EnterOwnNumbers must be called first by a process started with OwnNumbers. It mounts the
// namespace's own /proc and lets pids start at 1000, because Replace needs free pids below the
// one that it wants.
func EnterOwnNumbers() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	return nextNumberAfter(1000)
}

// nextNumberAfter makes the kernel give the next process or thread of the namespace the pid after
// last, or the next free one.
func nextNumberAfter(last int) error {
	return os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(last)), 0)
}

// Stagehand is a puppet that a helper controls.
type Stagehand struct {
	Cmd     *exec.Cmd
	in, out *os.File
}

func NewStagehand(path string) (*Stagehand, error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{Env + "=puppet"}
	cmd.Stdin, cmd.Stdout = inR, outW
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Stagehand{cmd, inW, outR}
	if path == "" {
		return p, nil
	}
	return p, p.Order("dial", path)
}

func (p *Stagehand) Order(words ...string) error {
	line, err := p.Ask(words...)
	if err == nil && !strings.HasPrefix(line, "done") {
		err = errors.New(line)
	}
	return err
}

func (p *Stagehand) Ask(words ...string) (string, error) {
	for i, w := range words {
		words[i] = strconv.Quote(w)
	}
	if _, err := fmt.Fprintln(p.in, strings.Join(words, "\t")); err != nil {
		return "", err
	}
	return LineOf(int(p.out.Fd()))
}

// Replace ends the process that made the connection after it has started a successor. Successors
// replace each other until one has the pid of that process.
func (p *Stagehand) Replace(pid int32) error {
	if err := p.Order("heir"); err != nil {
		return err
	}
	if _, err := p.Cmd.Process.Wait(); err != nil {
		return err
	}
	for try := range 3000 {
		last := int(pid) - 1 - try%16 // threads and the probes of os/exec take pids too
		if err := nextNumberAfter(last); err != nil {
			return err
		}
		line, err := p.Ask("heir")
		if err != nil {
			return err
		}
		if line == fmt.Sprint("done ", pid) {
			return nil
		}
	}
	return errors.New("the pid was not given again")
}
