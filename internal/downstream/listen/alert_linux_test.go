package listen

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/peer"
)

// alertServer serves a listener: /wait waits until the context of the request ends and reports
// that, /hijack answers with the bytes that it reads one by one from the connection, and all
// others answer with a hash of what arrived.
type alertServer struct {
	l       *Listener
	srv     *http.Server
	waiting chan struct{} // a handler waits
	ended   chan error    // the error of its context
}

func serveAlert(t *testing.T, l *Listener) *alertServer {
	s := &alertServer{l: l, waiting: make(chan struct{}, 1), ended: make(chan error, 1)}
	s.srv = &http.Server{ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 20 * time.Millisecond, ConnState: l.ConnState, ConnContext: l.ConnContext,
		MaxHeaderBytes: 64 << 10, Handler: Alert(l, http.HandlerFunc(s.answer))}
	go s.srv.Serve(l.Net())
	t.Cleanup(func() { s.srv.Close() })
	return s
}

func (s *alertServer) answer(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/hijack":
		s.hijack(w, r)
		return
	case "/wait":
		io.Copy(io.Discard, r.Body)
		s.waiting <- struct{}{}
		<-r.Context().Done()
		s.ended <- r.Context().Err()
		return
	}
	sum := sha256.New()
	io.WriteString(sum, r.Header.Get("X-Long"))
	io.Copy(sum, r.Body)
	fmt.Fprintf(w, "%x", sum.Sum(nil))
}

func (s *alertServer) hijack(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	s.waiting <- struct{}{}
	got := make([]byte, 5)
	for i := range got {
		if _, err := io.ReadFull(c, got[i:i+1]); err != nil {
			return
		}
	}
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n%s", got)
}

func eachAlert(t *testing.T, test func(t *testing.T, s *alertServer, c asking)) {
	for name, open := range map[string]func(testing.TB, Options) *Listener{"unix": openSocket, "tcp": openLoopback} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveAlert(t, open(t, Options{Arrivals: newArrivals(t)}))
			raw, err := net.Dial(s.l.sockets[0].Addr().Network(), s.l.Addr())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { raw.Close() })
			test(t, s, asking{raw, bufio.NewReader(raw)})
		})
	}
}

func aPost(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// The context of a request ends when its client closes the connection, in whatever way and
// whatever came before on the connection.
func TestTheEndOfAConnectionEndsItsRequest(t *testing.T) {
	t.Parallel()
	type closer interface{ CloseWrite() error }
	ends := map[string]func(asking){
		"closed":      func(c asking) { c.Close() },
		"half closed": func(c asking) { c.Conn.(closer).CloseWrite() },
		"reset": func(c asking) {
			if tcp, ok := c.Conn.(*net.TCPConn); ok {
				tcp.SetLinger(0)
			}
			c.Close()
		},
		"closed behind a further request": func(c asking) { io.WriteString(c, aPost("/", "next")); c.Close() },
	}
	befores := map[string]func(*testing.T, *alertServer, asking){
		"first":        func(*testing.T, *alertServer, asking) {},
		"after a POST": func(t *testing.T, _ *alertServer, c asking) { c.get(t, aPost("/", "x")) },
		"after a GET":  func(t *testing.T, _ *alertServer, c asking) { c.get(t, aRequest) },
		"after a rest": func(t *testing.T, s *alertServer, c asking) {
			c.get(t, aPost("/", "x"))
			eventually(t, "the connection rests", func() bool { return s.l.atRest() == 1 })
		},
	}
	for how, end := range ends {
		for when, before := range befores {
			t.Run(how+", "+when, func(t *testing.T) {
				t.Parallel()
				eachAlert(t, func(t *testing.T, s *alertServer, c asking) {
					before(t, s, c)
					io.WriteString(c, aPost("/wait", "body"))
					<-s.waiting
					end(c)
					select {
					case err := <-s.ended:
						if !errors.Is(err, context.Canceled) {
							t.Errorf("the context ended with %v", err)
						}
					case <-time.After(20 * time.Second):
						t.Error("the context of the request has not ended")
					}
				})
			})
		}
	}
}

// A client that closes before its request is served ends it too.
func TestARequestThatIsServedAfterTheEndIsEnded(t *testing.T) {
	t.Parallel()
	eachAlert(t, func(t *testing.T, s *alertServer, c asking) {
		c.get(t, aPost("/", "x")) // the connection is watched
		io.WriteString(c, aPost("/wait", "body"))
		c.Close()
		<-s.waiting
		<-s.ended
	})
}

// A connection that the kernel does not watch is read by http.Server.
func TestTheEndIsNoticedWithoutTheKernel(t *testing.T) {
	t.Parallel()
	a := newArrivals(t)
	l := openLoopback(t, Options{Arrivals: a})
	s := serveAlert(t, l)
	a.Close()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, aPost("/wait", "body"))
	<-s.waiting
	c.Close()
	<-s.ended
}

// Requests arrive as they were sent, whatever the lengths of their headers and bodies, in
// whatever pieces: no read of one byte is taken for the one that waits for the end.
func TestRequestsArriveWhole(t *testing.T) {
	t.Parallel()
	eachAlert(t, func(t *testing.T, s *alertServer, c asking) {
		var sizes []int
		for size := 4000; size <= 4120; size++ {
			sizes = append(sizes, size)
		}
		for range 60 {
			sizes = append(sizes, rand.IntN(30_000))
		}
		for _, size := range sizes {
			header, body := strings.Repeat("h", size), strings.Repeat("b", 1+rand.IntN(9000))
			text := fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nX-Long: %s\r\nContent-Length: %d\r\n\r\n%s", header, len(body), body)
			at := rand.IntN(len(text))
			want := fmt.Sprintf("%x", sha256.Sum256([]byte(header+body)))
			if got := c.get(t, text[:at], text[at:]); got != want {
				t.Fatalf("a header of %d and a body of %d bytes: got %q", size, len(body), got)
			}
		}
	})
}

// A body in chunks arrives too, also when the line in front of a chunk fills the buffer but for one
// byte.
func TestChunksArriveWhole(t *testing.T) {
	t.Parallel()
	eachAlert(t, func(t *testing.T, s *alertServer, c asking) {
		want := fmt.Sprintf("%x", sha256.Sum256([]byte("x")))
		for size := 4080; size < 4096; size++ {
			line := "1;" + strings.Repeat("e", size-4) + "\r\n"
			io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
			eventually(t, "the head is read", func() bool { n, err := peer.Unread(c.Conn); return n == 0 || err != nil })
			io.WriteString(c, line[:size-1])
			eventually(t, "the line is read", func() bool { n, err := peer.Unread(c.Conn); return n == 0 || err != nil })
			if got := c.get(t, line[size-1:]+"x\r\n0\r\n\r\n"); got != want {
				t.Fatalf("a line of %d bytes: got %q", size, got)
			}
		}
	})
}

// Requests that are sent without waiting for answers are all served.
func TestRequestsInARowAreServed(t *testing.T) {
	t.Parallel()
	eachAlert(t, func(t *testing.T, s *alertServer, c asking) {
		const n = 50
		go io.WriteString(c, strings.Repeat(aPost("/", "x"), n))
		want := fmt.Sprintf("%x", sha256.Sum256([]byte("x")))
		for i := range n {
			if got := c.get(t); got != want {
				t.Fatalf("answer %d: %q", i, got)
			}
		}
	})
}

// A handler that takes the connection over reads all bytes of it, also one by one.
func TestATakenOverConnectionIsReadWhole(t *testing.T) {
	t.Parallel()
	eachAlert(t, func(t *testing.T, s *alertServer, c asking) {
		io.WriteString(c, aPost("/hijack", "body"))
		<-s.waiting
		for _, b := range []byte("hello") {
			c.Write([]byte{b})
		}
		if got := c.get(t); got != "hello" {
			t.Errorf("got %q", got)
		}
	})
}
