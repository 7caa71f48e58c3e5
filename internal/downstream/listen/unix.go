package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// SocketName is the file name of the socket "auto" in the runtime directory.
const SocketName = "doorward.sock"

// unixSocket holds what is released when the socket is closed.
type unixSocket struct {
	path    string
	file    os.FileInfo // as bound; nil if a service manager bound it, which also removes it
	lock    *os.File
	watcher *peer.Watcher // of the peers' processes
	binder  int           // the process that made the socket listen
}

// release removes the socket if it is still the bound one, and then the lock, so that the
// next daemon finds either a running daemon or no socket.
func (u *unixSocket) release() {
	if u.watcher != nil {
		u.watcher.Close()
	}
	if fi, err := os.Lstat(u.path); err == nil && u.file != nil && os.SameFile(fi, u.file) {
		os.Remove(u.path)
	}
	u.lock.Close()
}

// openUnix opens the socket in four steps: a private directory, the lock, bind,
// mode. A stale socket is removed only under the lock.
func openUnix(ctx context.Context, s Spec, o Options) (*Listener, error) {
	path, err := SocketPath(s.Addr, o.RuntimeDir)
	name := "unix:" + path
	if err != nil {
		return nil, refuse("unix:"+s.Addr, err)
	}
	dir, err := peer.PrivateDir(filepath.Dir(path))
	if err != nil {
		return nil, refuse(name, err)
	}
	defer dir.Close()
	lock, err := peer.Lock(dir, filepath.Base(path)+".lock", 0)
	if errors.Is(err, durable.ErrLocked) {
		return nil, &RefusedError{Addr: name, Reason: "another daemon has it open", Err: err}
	}
	if err != nil {
		return nil, refuse(name, err)
	}
	u := &unixSocket{path: path, lock: lock, binder: os.Getpid()}
	socket, err := u.inherit(dir, o.OnNotice)
	if socket == nil && err == nil {
		socket, err = u.bind(ctx, dir)
	}
	if err != nil {
		u.release()
		return nil, refuse(name, err)
	}
	s.Addr = path
	l := newListener(s, o)
	l.sockets, l.unix, l.rules = []net.Listener{socket}, u, unixRules()
	l.start()
	return l, nil
}

// SocketPath returns the path of a Unix listener. It is absolute, so that it cannot be an abstract socket, which has
// no owner and no mode.
func SocketPath(addr, runtimeDir string) (string, error) {
	if addr == "auto" || addr == "" {
		if runtimeDir == "" {
			return SocketName, errors.New("there is no runtime directory")
		}
		addr = filepath.Join(runtimeDir, SocketName)
	}
	path, err := filepath.Abs(addr)
	if err != nil {
		return addr, err
	}
	if len(path) > peer.MaxSocketPath {
		return path, fmt.Errorf("the path has %d bytes, a socket may have %d: set listen.unix or --runtime-dir to a shorter path", len(path), peer.MaxSocketPath)
	}
	return path, nil
}

// bind binds the path and checks the result: the bound socket, with mode 0600, in the
// directory that was checked.
func (u *unixSocket) bind(ctx context.Context, dir *os.File) (net.Listener, error) {
	if err := peer.ClearSocket(u.path); err != nil {
		return nil, err
	}
	watcher, err := peer.NewWatcher()
	if err != nil {
		return nil, err
	}
	u.watcher = watcher
	lc := net.ListenConfig{Control: attest.ListenControl}
	l, err := lc.Listen(ctx, "unix", u.path)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // release removes the file, after a check
	if err := u.settle(dir); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (u *unixSocket) settle(dir *os.File) error {
	if err := os.Chmod(u.path, 0o600); err != nil {
		return err
	}
	file, err := os.Lstat(u.path)
	if err != nil {
		return err
	}
	u.file = file
	checked, err := dir.Stat()
	if err != nil {
		return err
	}
	now, err := os.Lstat(filepath.Dir(u.path))
	if err != nil {
		return err
	}
	if file.Mode() != os.ModeSocket|0o600 || !os.SameFile(checked, now) {
		return fmt.Errorf("%s is not the socket that was bound", u.path)
	}
	return nil
}
