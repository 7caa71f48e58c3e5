package doortest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"syscall"
	"testing"
)

// FreePort returns a TCP port that is free and reserved until the test ends. A test uses it where
// port 0 does not suit, such as for a daemon that starts again on its own port.
func FreePort(t testing.TB) int {
	t.Helper()
	return FreePorts(t, 1)[0]
}

// FreePorts returns n different ports, like FreePort. They are below the range from which the
// kernel serves port 0 and outgoing connections, so only a test that asks for a port here can
// take one of them.
func FreePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for _, i := range rand.Perm(20000) {
		if len(ports) == n {
			return ports
		}
		if port := 12000 + i; reserve(t, port) && isFree(port) {
			ports = append(ports, port)
		}
	}
	t.Fatalf("%d free ports of %d", len(ports), n)
	return nil
}

// reserve keeps a port from other tests on the same machine until the test ends. The mark is an
// abstract socket: it belongs to the network namespace of the port and leaves no file. Where there
// are no such sockets the ports are not reserved, and two tests seldom choose the same one.
func reserve(t testing.TB, port int) bool {
	if runtime.GOOS != "linux" {
		return true
	}
	l, err := net.Listen("unix", fmt.Sprintf("@doorward-test-port-%d", port))
	if err != nil {
		return false
	}
	t.Cleanup(func() { _ = l.Close() }) // the port is given back, or was already
	return true
}

// isFree binds the port for a moment. No process is started meanwhile: it would have the socket
// until it executes its program, and the port would still be in use when the test binds it.
func isFree(port int) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	return err == nil && l.Close() == nil
}
