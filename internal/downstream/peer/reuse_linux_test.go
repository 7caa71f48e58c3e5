package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ownNumbers is a pid namespace, where nobody else takes a number.
func ownNumbers() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
}

// The pid of the dead connector belongs to another living process by the time
// of the accept. A look into /proc would find that one.
func TestARecycledPidInheritsNothing(t *testing.T) {
	t.Parallel()
	needRoot(t)
	d := start(t, ownNumbers(), "reuse-before", filepath.Join(openDir(t), "s"))
	if got := d.line(t, ""); got != "refused" {
		t.Errorf("it %s", got)
	}
}

// The pid of the connector is given to an heir of its descriptor: pid and uid
// of the writer are those of the connector, and only the handle on it tells.
func TestAnHeirWithTheConnectorsPidIsNotHeard(t *testing.T) {
	t.Parallel()
	needRoot(t)
	d := start(t, ownNumbers(), "reuse", filepath.Join(openDir(t), "s"))
	d.line(t, "staged") // what is read without a check: the same pid and uid
	if got := d.line(t, ""); got != "broke "+BreachDead {
		t.Errorf("it %s", got)
	}
}

// namespaced plays the daemon of such a namespace, whose pid is 1.
func namespaced(path string) (*net.UnixListener, *stagehand, error) {
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("proc", "/proc", "proc", 0, "")); err != nil {
		return nil, nil, err
	}
	ln, err := (&net.ListenConfig{Control: ListenControl}).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, nil, err
	}
	p, err := newStagehand(path)
	return ln.(*net.UnixListener), p, err
}

func reusedBefore(args []string) error {
	ln, p, err := namespaced(args[0])
	if err != nil {
		return err
	}
	pid := int32(p.cmd.Process.Pid)
	if err := p.replace(pid); err != nil {
		return err
	}
	conn, err := ln.AcceptUnix()
	if err != nil {
		return err
	}
	if _, ok := look(pid); !ok {
		return errors.New("the stage is wrong: the pid is nobody's")
	}
	if creds, err := OfUnix(conn); !errors.Is(err, ErrGone) {
		return fmt.Errorf("got %+v, %v", creds, err)
	}
	fmt.Println("refused")
	return nil
}

func reusedPid(args []string) error {
	ln, p, err := namespaced(args[0])
	if err != nil {
		return err
	}
	conn, err := ln.AcceptUnix()
	if err != nil {
		return err
	}
	creds, err := OfUnix(conn)
	if err != nil {
		return err
	}
	reason := "nothing"
	g := Guard(conn, creds, func(r string) { reason = r })
	if err := p.replace(creds.PID); err != nil {
		return err
	}
	if err := p.order("say", "stolen"); err != nil {
		return err
	}
	if err := peekSame(conn, creds); err != nil {
		return err
	}
	fmt.Println("staged")
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := g.Read(make([]byte, 64)); n != 0 || !errors.Is(err, ErrBreach) {
		return fmt.Errorf("read %d bytes, %v", n, err)
	}
	fmt.Println("broke", reason)
	return nil
}

// stagehand is a puppet under the command of a helper.
type stagehand struct {
	cmd     *exec.Cmd
	in, out *os.File
}

func newStagehand(path string) (*stagehand, error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{helperEnv + "=puppet"}
	cmd.Stdin, cmd.Stdout = inR, outW
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &stagehand{cmd, inW, outR}
	if path == "" {
		return p, nil
	}
	return p, p.order("dial", path)
}

func (p *stagehand) order(words ...string) error {
	line, err := p.ask(words...)
	if err == nil && !strings.HasPrefix(line, "done") {
		err = errors.New(line)
	}
	return err
}

func (p *stagehand) ask(words ...string) (string, error) {
	for i, w := range words {
		words[i] = strconv.Quote(w)
	}
	if _, err := fmt.Fprintln(p.in, strings.Join(words, "\t")); err != nil {
		return "", err
	}
	return lineOf(int(p.out.Fd()))
}

// replace lets the connector leave its place to an heir, which leaves it to
// further ones until one has the connector's pid.
func (p *stagehand) replace(pid int32) error {
	if err := p.order("heir"); err != nil {
		return err
	}
	if _, err := p.cmd.Process.Wait(); err != nil {
		return err
	}
	for try := range 3000 {
		last := int(pid) - 1 - try%16 // threads, and what os/exec tries out, take numbers too
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(last)), 0); err != nil {
			return err
		}
		line, err := p.ask("heir")
		if err != nil {
			return err
		}
		if line == fmt.Sprint("done ", pid) {
			return nil
		}
	}
	return errors.New("the pid was not given again")
}

// peekSame looks at the next bytes without the checks: by pid and uid they are
// the connector's.
func peekSame(c *net.UnixConn, creds *Credentials) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	control := make([]byte, 64)
	n := 0
	raw.Read(func(fd uintptr) bool {
		_, n, _, _, err = unix.Recvmsg(int(fd), make([]byte, 8), control, unix.MSG_PEEK)
		return err != unix.EAGAIN
	})
	if err != nil {
		return err
	}
	if pid, uid, ok, _ := readControl(control[:n]); !ok || pid != creds.PID || uid != creds.UID {
		return fmt.Errorf("the stage is wrong: pid %d uid %d, the connector's are %d %d", pid, uid, creds.PID, creds.UID)
	}
	return nil
}
