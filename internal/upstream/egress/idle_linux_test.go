package egress

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/peer"
)

// A stream that is awaited has the smallest buffer, and its own again when there is something to
// read: a chunk whose first line needs more than the smallest is read.
func TestASilentStreamHasNoBuffer(t *testing.T) {
	t.Parallel()
	a, err := peer.NewArrivals()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	next := make(chan string)
	defer close(next)
	go serveOnce(server, next)
	var conn *plainConn
	tr := NewRoundTripper(Options{AllowPrivate: true, Await: func(c net.Conn, f func()) (func() bool, error) {
		if size := conn.r.Size(); size != leastBytes {
			t.Errorf("a buffer of %d bytes while the stream is silent", size)
		}
		return a.Await(c, f)
	}})
	defer tr.CloseIdleConnections()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+server.Addr().String(), nil)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	conn = resp.Body.(wordedBody).ReadCloser.(*plainBody).c
	for range 2 {
		called := make(chan struct{})
		if !Await(resp.Body, func() { close(called) }) {
			t.Fatal("not awaited")
		}
		next <- "3;a=" + strings.Repeat("x", 200) + "\r\nabc\r\n"
		select {
		case <-called:
		case <-time.After(30 * time.Second):
			t.Fatal("not called")
		}
		if size := conn.r.Size(); size != streamBytes {
			t.Errorf("a buffer of %d bytes to read into", size)
		}
		b := make([]byte, 3)
		if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != "abc" {
			t.Fatalf("read %q, %v", b, err)
		}
	}
}

// serveOnce answers the first request with the head of a stream, and then writes the texts.
func serveOnce(l net.Listener, texts <-chan string) {
	c, err := l.Accept()
	if err != nil {
		return
	}
	defer c.Close()
	http.ReadRequest(bufio.NewReader(c))
	io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	for text := range texts {
		io.WriteString(c, text)
	}
}
