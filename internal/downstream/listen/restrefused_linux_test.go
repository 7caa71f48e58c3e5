package listen

import (
	"bufio"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// clientOf returns a client's connection.
func clientOf(t *testing.T, l *Listener) asking {
	t.Helper()
	raw, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	return asking{raw, bufio.NewReader(raw)}
}

// TestWhenTheKernelWatchesNoMoreConnectionsTheyStay: after a connection could not be watched,
// idle connections do not rest, and live as long as they would at rest.
func TestWhenTheKernelWatchesNoMoreConnectionsTheyStay(t *testing.T) {
	t.Parallel()
	a := newArrivals(t)
	l := openLoopback(t, Options{Arrivals: a})
	restful(t, l)
	a.Close() // every further Await fails
	first := clientOf(t, l)
	first.get(t, aRequest)
	eventually(t, "the connection that was not watched ends", func() bool { return l.Open() == 0 })
	second := clientOf(t, l)
	second.get(t, aRequest)
	second.SetReadDeadline(time.Now().Add(200 * time.Millisecond)) // ten times the idle time
	if _, err := second.in.Peek(1); !os.IsTimeout(err) {
		t.Fatalf("the idle connection ends: %v", err)
	}
	second.get(t, aRequest)
}

// TestOneConnectionTriesToRestAgain: after a pause one connection may rest again, and when it
// can be watched, all others.
func TestOneConnectionTriesToRestAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &resting{}
		if r.pauses() {
			t.Error("pauses without a failure")
		}
		now := time.Now()
		r.failed.Store(&now)
		time.Sleep(restTime - time.Nanosecond)
		if !r.pauses() {
			t.Error("tries before the pause is over")
		}
		time.Sleep(time.Nanosecond)
		if r.pauses() || !r.pauses() {
			t.Error("not exactly one connection tries again")
		}
	})
}
