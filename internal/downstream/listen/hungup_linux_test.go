package listen

import (
	"context"
	"net"
	"testing"
)

// A connection that was closed here has hung up.
func TestAConnectionThatWasClosedHereHasHungUp(t *testing.T) {
	t.Parallel()
	l := openLoopback(t, Options{Arrivals: newArrivals(t)})
	conns := accepted(t, l)
	client, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c := next(t, conns)
	hung := HungUp(l.ConnContext(context.Background(), c))
	if hung() {
		t.Error("an open connection has hung up")
	}
	if c.Close(); !hung() {
		t.Error("a closed connection has not hung up")
	}
}
