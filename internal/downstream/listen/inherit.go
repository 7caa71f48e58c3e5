package listen

import (
	"net"
	"os"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// inherit takes the socket that a service manager bound to the path and passed
// to this process; nil when there is none. The same is asked of it as of a
// socket that is bound here: its directory is private, its mode 0600. The file
// stays when the daemon ends, because the manager goes on listening.
//
// Other sockets that were passed are closed, with a notice.
func (u *unixSocket) inherit(dir *os.File, notice func(string)) (net.Listener, error) {
	socket := u.passed(notice)
	if socket == nil {
		return nil, nil
	}
	if err := u.adopt(socket, dir); err != nil {
		socket.Close()
		return nil, err
	}
	return socket, nil
}

// passed finds the socket that is bound to the path.
func (u *unixSocket) passed(notice func(string)) (found *net.UnixListener) {
	for _, f := range peer.PassedSockets() {
		l, err := net.FileListener(f)
		f.Close()
		if err != nil {
			notice("a socket was passed that is not a listener: " + plaintext.Name(err.Error()))
			continue
		}
		x, ok := l.(*net.UnixListener)
		if ok && found == nil && x.Addr().Network() == "unix" && x.Addr().String() == u.path {
			found = x
			continue
		}
		notice("the socket " + plaintext.Name(l.Addr().String()) + " was passed, and listen.unix names another: it is not served")
		l.Close()
	}
	return found
}

// adopt makes a socket fit to attest its peers. Bytes of a client that waits
// already have a writer only where the manager sets PassCredentials=yes;
// without one the client is turned away.
func (u *unixSocket) adopt(socket *net.UnixListener, dir *os.File) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	if err := attest.ListenControl("unix", u.path, raw); err != nil {
		return err
	}
	if err := u.settle(dir); err != nil {
		return err
	}
	u.file = nil
	if u.binder, err = peer.ListenerPID(raw); err != nil {
		return err
	}
	u.watcher, err = peer.NewWatcher()
	return err
}

// Binder is the process that clients of the Unix socket see as their peer: the
// daemon itself, or the service manager that passed the socket. 0 for TCP, and
// where it is not visible.
func (l *Listener) Binder() int {
	if l.unix == nil {
		return 0
	}
	return l.unix.binder
}
