package relay

import (
	"testing"

	"github.com/doorward/doorward/internal/upstream"
)

// endingConn is a connection over HTTP of which only the end is needed.
type endingConn struct {
	upstream.Conn
	done  chan struct{}
	after []func()
}

func (c *endingConn) Done() <-chan struct{} { return c.done }
func (c *endingConn) AfterDone(f func())    { c.after = append(c.after, f) }

func (c *endingConn) end() {
	close(c.done)
	for _, f := range c.after {
		f()
	}
}

// A server forgets a connection over HTTP when it ends, whether Doorward closed it or it fell, and
// counts only the second. The daemon would otherwise keep it until the next sweep.
func TestAnEndedConnectionIsForgottenAtOnce(t *testing.T) {
	t.Parallel()
	for mask := range 16 { // which of two connections end, and which ends were asked for
		b := &backend{Server: Server{Kind: upstream.KindHTTP}}
		open, fallen := 2, int64(0)
		for i := range 2 {
			conn := &endingConn{done: make(chan struct{})}
			c := &liveConn{conn: conn}
			if !b.keep(c) {
				t.Fatal("not kept")
			}
			if rested := mask>>(2+i)&1 == 1; mask>>i&1 == 1 {
				c.rested.Store(rested)
				conn.end()
				if open--; !rested {
					fallen++
				}
			}
		}
		for _, when := range []string{"at once", "after a sweep"} {
			if len(b.conns) != open || int64(b.fallen.Load()) != fallen {
				t.Errorf("case %04b, %s: %d connections and %d that fell, want %d and %d", mask, when, len(b.conns), b.fallen.Load(), open, fallen)
			}
			b.mu.Lock()
			b.prune()
			b.mu.Unlock()
		}
	}
}
