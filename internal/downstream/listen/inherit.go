package listen

import (
	"net"
	"os"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// inherit returns the socket that a service manager bound to the path and passed to this
// process; nil: none. It must meet the same conditions as a socket that is bound here: a
// private directory and mode 0600. The file remains when the daemon ends, because the
// manager continues to listen.
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

// passed returns the passed socket that is bound to the path.
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

// adopt prepares a socket so that its peers can be attested. Bytes that a waiting client
// has already sent carry a writer only if the manager sets PassCredentials=yes; otherwise
// the connection of that client is closed.
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

// Binder returns the process that clients of the Unix socket see as their peer: the
// daemon itself, or the service manager that passed the socket. 0: the listener is TCP,
// or the process is not visible.
func (l *Listener) Binder() int {
	if l.unix == nil {
		return 0
	}
	return l.unix.binder
}
