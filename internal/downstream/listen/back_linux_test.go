package listen

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// lending serves a listener whose handler takes each connection over, answers on it, and gives it
// back with what was read of the next request.
func lending(t *testing.T, l *Listener) {
	srv := &http.Server{IdleTimeout: time.Minute, ConnState: l.ConnState,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			ctx = l.ConnContext(ctx, c)
			o := From(ctx)
			known, _ := o.Facts.(string)
			o.Facts = known + "+"
			return ctx
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			facts, back := From(r.Context()).Facts.(string), Back(r.Context())
			c, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			ahead, _ := rw.Reader.Peek(rw.Reader.Buffered())
			go func() {
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(facts), facts)
				back(ahead)
			}()
		})}
	go srv.Serve(l.Net())
	t.Cleanup(func() { srv.Close() })
}

// A connection that was taken over from http.Server and given back rests at once, keeps its place
// and its facts, and serves further requests, also those that were read with the one before. When
// its client closes it, it ends.
func TestAConnectionThatComesBackRests(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB, Options) *Listener{"unix": openSocket, "tcp": openLoopback} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t, Options{Arrivals: newArrivals(t)})
			lending(t, l)
			raw, err := net.Dial(l.sockets[0].Addr().Network(), l.Addr())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { raw.Close() })
			c, want := asking{raw, bufio.NewReader(raw)}, ""
			for _, requests := range []int{1, 1, 3, 2, 1} {
				for range requests {
					io.WriteString(c, aRequest)
				}
				for range requests {
					if want += "+"; c.get(t) != want {
						t.Fatalf("request %d of its connection is another one", len(want))
					}
				}
				eventually(t, "the connection rests", func() bool { return l.atRest() == 1 && l.Open() == 1 })
			}
			c.Close()
			eventually(t, "the connection ends", func() bool { return l.atRest() == 0 && l.Open() == 0 })
		})
	}
}

// A connection that comes back to a closed listener ends, with and without a next request.
func TestAConnectionThatComesBackTooLateEnds(t *testing.T) {
	t.Parallel()
	for _, ahead := range []string{"", aRequest} {
		l := openLoopback(t, Options{Arrivals: newArrivals(t)})
		conns := accepted(t, l)
		client, err := net.Dial("tcp", l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		back := Back(l.ConnContext(context.Background(), next(t, conns)))
		l.Close()
		back([]byte(ahead))
		eventually(t, "the connection ends", func() bool { return l.Open() == 0 })
	}
}

// Only a connection that may rest can come back.
func TestAConnectionThatDoesNotRestDoesNotComeBack(t *testing.T) {
	t.Parallel()
	if Back(context.Background()) != nil {
		t.Error("without a connection one comes back")
	}
	for rests, o := range map[bool]Options{true: {Arrivals: newArrivals(t)}, false: {}} {
		l := openLoopback(t, o)
		conns := accepted(t, l)
		client, err := net.Dial("tcp", l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if c := next(t, conns); (Back(l.ConnContext(context.Background(), c)) != nil) != rests {
			t.Errorf("rests %v: Back differs", rests)
		}
	}
}
