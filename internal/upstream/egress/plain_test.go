package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// local is a transport that may reach this host.
func local(t *testing.T) *Transport {
	t.Helper()
	tr := NewRoundTripper(Options{AllowPrivate: true})
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func post(ctx context.Context, tr *Transport, url, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	return tr.RoundTrip(req)
}

func TestPlainConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	var conns atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.Host, b)
	}))
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	tr := local(t)
	for i := range 20 {
		resp, err := post(t.Context(), tr, s.URL, fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if want := fmt.Sprintf("POST %s %d", strings.TrimPrefix(s.URL, "http://"), i); err != nil || string(got) != want {
			t.Fatalf("got %q %v, want %q", got, err, want)
		}
		resp.Body.Close()
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections for 20 calls in a row", n)
	}
}

func TestPlainAnswersDoNotCross(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Write(b)
	}))
	defer s.Close()
	tr := local(t)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 50 {
				want := strings.Repeat(fmt.Sprintf("%d-%d;", g, i), 1+i*10)
				ctx, cancel := context.WithCancel(t.Context())
				resp, err := post(ctx, tr, s.URL, want)
				if err != nil {
					t.Error(err)
					cancel()
					return
				}
				if i%7 == 0 { // leave in the middle: the connection must not be reused
					cancel()
				}
				got, err := io.ReadAll(resp.Body)
				if i%7 != 0 && (err != nil || string(got) != want) {
					t.Errorf("got %.20q… %v", got, err)
				}
				resp.Body.Close()
				cancel()
			}
		})
	}
	wg.Wait()
}

// script answers every request with the same bytes.
func script(t *testing.T, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					io.Copy(io.Discard, req.Body)
					io.WriteString(c, answer)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

func TestPlainAnswersOfHostileServers(t *testing.T) {
	t.Parallel()
	ok := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	tests := []struct {
		name, answer string
		body         string // "": an error
	}{
		{"plain", ok, "ok"},
		{"interim answers", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok, "ok"},
		{"endless interim answers", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 50), ""},
		{"switching protocols", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", ""},
		{"header without end", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHeaderBytes+1) + "\r\n\r\nok", ""},
		{"garbage", "hello\r\n\r\n", ""},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "ok"},
		{"bytes behind the answer", ok + "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "ok"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			url := script(t, tt.answer)
			tr := local(t)
			for range 2 { // the second must not see what the first left behind
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				resp, err := post(ctx, tr, url, "x")
				if tt.body == "" {
					if err == nil {
						t.Fatalf("answered %s", resp.Status)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				got, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if string(got) != tt.body {
					t.Errorf("got %q", got)
				}
			}
		})
	}
}

func TestPlainConnectionThatTheServerClosedIsNotUsed(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }))
	defer s.Close()
	tr := local(t)
	for range 5 {
		resp, err := post(t.Context(), tr, s.URL, "x")
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		s.CloseClientConnections()
		doortest.Until(t, 20*time.Second, "its end is noticed", func() bool { return !idleQuiet(tr) })
	}
}

// idleQuiet reports whether an idle connection still looks usable.
func idleQuiet(tr *Transport) bool {
	tr.plain.mu.Lock()
	defer tr.plain.mu.Unlock()
	for _, c := range tr.plain.free {
		if c.quiet() {
			return true
		}
	}
	return false
}

func TestPlainCancellation(t *testing.T) {
	t.Parallel()
	gone := make(chan bool, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		gone <- true
	}))
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := post(ctx, local(t), s.URL, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	select {
	case <-gone:
	case <-time.After(20 * time.Second):
		t.Error("the server still has the connection")
	}
}

func TestPlainDialsByTheSameRules(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	tr := NewRoundTripper(Options{})
	if _, err := post(t.Context(), tr, s.URL, "x"); !errors.Is(err, ErrForbidden) {
		t.Errorf("a private address without allow_private: %v", err)
	}
}
