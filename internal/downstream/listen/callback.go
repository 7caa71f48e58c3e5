package listen

import (
	"errors"
	"fmt"
	"net"
)

// Callback opens a port on 127.0.0.1 for one answer of a browser; port 0 selects any free
// port. It is not a listener of the daemon: its caller checks the answer and closes it.
func Callback(port int) (net.Listener, error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return nil, fmt.Errorf("opening 127.0.0.1:%d: %w", port, err)
	}
	if a, ok := l.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		return nil, errors.Join(errors.New("the port is not on loopback"), l.Close())
	}
	return l, nil
}
