package puppet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// OwnNumbers is a pid namespace, in which no other process takes a number.
func OwnNumbers() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
}

// Stagehand is a puppet under the command of a helper.
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

// Replace lets the connector leave its place to an heir, which leaves it to
// further ones until one has the connector's pid.
func (p *Stagehand) Replace(pid int32) error {
	if err := p.Order("heir"); err != nil {
		return err
	}
	if _, err := p.Cmd.Process.Wait(); err != nil {
		return err
	}
	for try := range 3000 {
		last := int(pid) - 1 - try%16 // threads, and what os/exec tries out, take numbers too
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(last)), 0); err != nil {
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
