package listen

import (
	"net"
	"testing"
)

// closing calls a function before it closes a connection.
type closing struct {
	*net.TCPConn
	before func()
}

func (c closing) Close() error {
	c.before()
	return c.TCPConn.Close()
}

// A connection that is being ended, because its process has ended, does not rest if http.Server
// gives it up at that moment.
func TestAConnectionThatIsBeingEndedDoesNotRest(t *testing.T) {
	t.Parallel()
	l, c := oneAccepted(t)
	rested := false
	c.Conn = closing{c.Conn.(*net.TCPConn), func() { rested = l.resting.add(c, l.opts.Arrivals) }}
	c.end()
	if rested || l.atRest() != 0 || l.Open() != 0 {
		t.Errorf("rests: %v; %d rest, %d are open", rested, l.atRest(), l.Open())
	}
}
