package listen

import (
	"net"
	"testing"
)

// The port for the redirect of a browser listens on 127.0.0.1 only. A port in use is an
// error.
func TestCallbackIsOnLoopback(t *testing.T) {
	t.Parallel()
	l, err := Callback(0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a := l.Addr().(*net.TCPAddr)
	if a.IP.String() != "127.0.0.1" || a.Port == 0 {
		t.Fatalf("it listens on %s", a)
	}
	if twice, err := Callback(a.Port); err == nil {
		twice.Close()
		t.Fatal("a port was opened twice")
	}
}
