package daemon

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// bodyReaders are the ways in which the paths of the daemon treat a body.
var bodyReaders = map[string]http.HandlerFunc{
	"a form": func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
		if r.ParseForm() != nil {
			http.Error(w, "no form", http.StatusBadRequest)
		}
	},
	"the whole body": func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20)); err != nil {
			http.Error(w, "no body", http.StatusBadRequest)
		}
	},
	"a refusal": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnauthorized) },
}

// bodyForms are ends of a request that have one byte of a longer body.
var bodyForms = map[string]string{
	"announced": "Content-Length: 11\r\n\r\nc",
	"chunked":   "Transfer-Encoding: chunked\r\n\r\n1\r\nc\r\n",
}

// timelyServer serves through a daemon's deadline for bodies, which ends after limit.
func timelyServer(t *testing.T, h http.Handler, limit time.Duration) (dial func() net.Conn) {
	t.Helper()
	s := httptest.NewServer(timely(h, limit))
	t.Cleanup(s.Close)
	return func() net.Conn {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(20 * time.Second))
		return c
	}
}

const postHead = "POST /ui/session HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n"

// A connection is closed when its client stops in the middle of a body, whatever the path
// does with the body.
func TestABodyThatDoesNotArriveEndsItsConnection(t *testing.T) {
	t.Parallel()
	for name, h := range bodyReaders {
		for form, rest := range bodyForms {
			t.Run(name+", "+form, func(t *testing.T) {
				t.Parallel()
				c := timelyServer(t, h, 50*time.Millisecond)()
				fmt.Fprint(c, postHead+rest)
				if _, err := io.Copy(io.Discard, c); err != nil {
					t.Errorf("the connection is open: %v", err)
				}
			})
		}
	}
}

// A body that has arrived leaves no deadline: the request goes on after the limit, and the
// connection serves the next one.
func TestABodyThatHasArrivedHasNoDeadline(t *testing.T) {
	t.Parallel()
	const limit = 200 * time.Millisecond
	for name, read := range bodyReaders {
		if name == "a refusal" { // it reads nothing
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := timelyServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				read(w, r)
				select {
				case <-r.Context().Done():
					t.Error("the request was cancelled")
				case <-time.After(2 * limit):
				}
			}), limit)()
			answers := bufio.NewReader(c)
			for range 2 {
				fmt.Fprint(c, postHead+"Content-Length: 6\r\n\r\ncode=x")
				resp, err := http.ReadResponse(answers, nil)
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("%v %v", resp, err)
				}
				resp.Body.Close()
			}
		})
	}
}

// A slow body that arrives within the limit is read in full.
func TestABodyInPiecesIsTaken(t *testing.T) {
	t.Parallel()
	c := timelyServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %v", b, err)
	}), 10*time.Second)()
	fmt.Fprint(c, postHead+"Connection: close\r\nContent-Length: 6\r\n\r\n")
	for _, piece := range strings.Split("code=x", "") {
		fmt.Fprint(c, piece)
		time.Sleep(time.Millisecond)
	}
	if all, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(all), "code=x <nil>") {
		t.Errorf("%s %v", all, err)
	}
}
