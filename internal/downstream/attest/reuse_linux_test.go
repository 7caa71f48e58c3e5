package attest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/puppet"
)

// A connector that is dead at the accept is refused although a living process has its pid
// now. A look into /proc would find that process.
func TestARecycledPidInheritsNothing(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	d := puppet.Start(t, puppet.OwnNumbers(), "reuse-before", filepath.Join(puppet.OpenDir(t), "s"))
	if got := d.Line(t, ""); got != "refused" {
		t.Errorf("it %s", got)
	}
}

// Bytes from a child of a dead connector that has the connector's pid and uid are a breach.
// Only the handle on the connector's process shows the difference.
func TestAProcessWithTheConnectorsReusedPidIsNotHeard(t *testing.T) {
	t.Parallel()
	puppet.NeedRoot(t)
	d := puppet.Start(t, puppet.OwnNumbers(), "reuse", filepath.Join(puppet.OpenDir(t), "s"))
	d.Line(t, "staged") // what is read without a check: the same pid and uid
	if got := d.Line(t, ""); got != "broke "+BreachDead {
		t.Errorf("it %s", got)
	}
}

// namespaced acts as the daemon in a pid namespace of its own, as pid 1.
func namespaced(path string) (*net.UnixListener, *puppet.Stagehand, error) {
	if err := puppet.EnterOwnNumbers(); err != nil {
		return nil, nil, err
	}
	ln, err := (&net.ListenConfig{Control: ListenControl}).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, nil, err
	}
	p, err := puppet.NewStagehand(path)
	return ln.(*net.UnixListener), p, err
}

func reusedBefore(args []string) error {
	ln, p, err := namespaced(args[0])
	if err != nil {
		return err
	}
	pid := int32(p.Cmd.Process.Pid)
	if err := p.Replace(pid); err != nil {
		return err
	}
	conn, err := ln.AcceptUnix()
	if err != nil {
		return err
	}
	if unix.Kill(int(pid), 0) != nil {
		return errors.New("the stage is wrong: no process has the pid")
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
	if err := p.Replace(creds.PID); err != nil {
		return err
	}
	if err := p.Order("say", "stolen"); err != nil {
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

// peekSame fails unless the next bytes have the pid and uid of the connector. It looks without
// the check.
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
