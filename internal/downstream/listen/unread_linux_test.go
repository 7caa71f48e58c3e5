package listen

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
)

// Bytes written to an admitted connection count as unread until the client reads them, also
// below TLS. A context without a connection of the listener has no measurement.
func TestUnreadMeasuresTheConnectionOfTheContext(t *testing.T) {
	t.Parallel()
	if Unread(context.Background()) != nil {
		t.Error("a context without a connection is measured")
	}
	for name, l := range map[string]*Listener{"unix": openSocket(t, Options{}), "tcp": openLoopback(t, Options{})} {
		conns := accepted(t, l)
		client, err := net.Dial(l.sockets[0].Addr().Network(), l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		c := next(t, conns)
		unread := Unread(l.ConnContext(context.Background(), tls.Server(c, &tls.Config{})))
		for _, step := range []struct {
			do   func()
			left bool
		}{{func() {}, false}, {func() { c.Write([]byte("ab")) }, true}, {func() { client.Read(make([]byte, 1)) }, true}, {func() { client.Read(make([]byte, 1)) }, false}} {
			step.do()
			if n, err := unread(); err != nil || n > 0 != step.left {
				t.Errorf("%s: %d unread, %v; some left: %v", name, n, err, step.left)
			}
		}
		if other := openSocket(t, Options{}); Unread(other.ConnContext(context.Background(), c)) != nil {
			t.Errorf("%s: a connection of another listener is measured", name)
		}
	}
}
