package upstream

import (
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/peer"
)

// awaiting counts the waits for data, in place of the goroutines that read silent streams.
type awaiting struct {
	*peer.Arrivals
	begun atomic.Int32
}

func newAwaiting(t *testing.T) *awaiting {
	t.Helper()
	a, err := peer.NewArrivals()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return &awaiting{Arrivals: a}
}

func (a *awaiting) await(c net.Conn, f func()) (func() bool, error) {
	a.begun.Add(1)
	return a.Await(c, f)
}

// A silent stream for messages outside of calls is awaited without a goroutine, also after a
// comment. Its events arrive, and it ends with its connection.
func TestASilentStreamIsAwaited(t *testing.T) {
	t.Parallel()
	next, left := make(chan string), make(chan struct{})
	f := newFakeWeb(t, func(f *fakeWeb) {
		f.stream = func(w http.ResponseWriter, r *http.Request) {
			send := events(w)
			for {
				select {
				case text := <-next:
					send("%s", text)
				case <-r.Context().Done():
					close(left)
					return
				}
			}
		}
	})
	a := newAwaiting(t)
	var got recorder
	c := dialLegacy(t, f.server(func(_ *Definition, d *Deps) { d.Await = a.await }), got.on)
	c.Listen()
	for i, text := range []string{": a comment\n\n", listChanged, "id: 7\n\n", listChanged + ": and another\n\n"} {
		eventually(t, "the stream is awaited", func() bool { return int(a.begun.Load()) > i })
		next <- text
	}
	eventually(t, "the stream is awaited again, and its events are here", func() bool { return a.begun.Load() > 4 && len(got.all()) == 2 })
	if n := a.begun.Load(); n > 7 {
		t.Errorf("%d waits for five reads of a stream", n)
	}
	c.Close()
	<-left
	c.Close()
	<-left
}

// A stream that was silent for longer than Idle is opened again.
func TestASilentStreamIsOpenedAgain(t *testing.T) {
	t.Parallel()
	var opened atomic.Int32
	f := newFakeWeb(t, func(f *fakeWeb) {
		f.stream = func(w http.ResponseWriter, r *http.Request) {
			opened.Add(1)
			events(w)
			<-r.Context().Done()
		}
	})
	a := newAwaiting(t)
	c := dialLegacy(t, f.server(func(def *Definition, d *Deps) { d.Await, def.Idle = a.await, 10*time.Millisecond }), nil)
	c.Listen()
	eventually(t, "the stream is opened again", func() bool { return opened.Load() == 2 && a.begun.Load() == 2 })
}
