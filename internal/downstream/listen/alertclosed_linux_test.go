package listen

import (
	"io"
	"testing"
)

// The context of a request ends when the connection is closed here: by the server, and because the
// process that made it has ended while another process holds its descriptor.
func TestAConnectionClosedHereEndsItsRequest(t *testing.T) {
	t.Parallel()
	t.Run("by the server", func(t *testing.T) {
		t.Parallel()
		eachAlert(t, func(t *testing.T, s *alertServer, c asking) {
			c.get(t, aPost("/", "x"))
			io.WriteString(c, aPost("/wait", "body"))
			<-s.waiting
			s.srv.Close()
			<-s.ended
		})
	})
	t.Run("for a process that has ended", func(t *testing.T) {
		t.Parallel()
		s := serveAlert(t, openSocket(t, Options{Arrivals: newArrivals(t)}))
		p := start(t, nil, "dial-and-leave-later", s.l.Addr(), aPost("/wait", "body"))
		<-s.waiting
		io.WriteString(p.in, "x")
		<-s.ended
	})
}

// A connection that was closed here is not watched any more.
func TestAClosedConnectionIsNotWatched(t *testing.T) {
	t.Parallel()
	_, c := oneAccepted(t)
	c.stopWaiting() // what Close does first
	c.beAlert()
	if c.alert.stop != nil || c.alerted.Load() {
		t.Error("it is watched")
	}
}
