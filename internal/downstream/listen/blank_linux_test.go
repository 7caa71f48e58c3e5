package listen

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// echoing serves a listener whose handler answers with the body of a request. With lends it
// answers a POST on a connection that it has taken over, and gives that back.
func echoing(t *testing.T, l *Listener, lends bool) {
	srv := &http.Server{IdleTimeout: time.Minute, ConnContext: l.ConnContext, ConnState: l.ConnState, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		back := Back(r.Context())
		if err != nil || !lends || back == nil || r.Method != http.MethodPost || r.Close || r.ContentLength < 0 {
			text := fmt.Sprintf("%s %s %v", r.Method, body, err == nil)
			w.Header().Set("Content-Length", strconv.Itoa(len(text)))
			_, _ = io.WriteString(w, text) // the client may have left
			return
		}
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		ahead, _ := rw.Reader.Peek(rw.Reader.Buffered())
		ahead = bytes.Clone(ahead)
		go func() {
			text := fmt.Sprintf("%s %s true", r.Method, body)
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
			back(ahead)
		}()
	})}
	go srv.Serve(l.Net())
	t.Cleanup(func() { srv.Close() })
}

// pieces is what a client sends, in turns with the number of answers that it waits for.
type pieces []struct {
	Text    string
	Answers int
}

// generated returns requests with blank lines between them, cut anywhere.
func generated(random *rand.Rand) (all pieces) {
	var text strings.Builder
	whole := 0 // requests that were sent completely
	cut := func() {
		if random.IntN(2) == 0 {
			all = append(all, pieces{{text.String(), whole}}...)
			text.Reset()
			whole = 0
		}
	}
	requests := []string{
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("d", 9000),
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\ne",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: T\r\n\r\n3\r\nfgh\r\n0\r\nT: t\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1\r\n\r\ni", "NONSENSE\r\n\r\n",
	}
	post := false
	for range 1 + random.IntN(8) {
		r := requests[random.IntN(len(requests))]
		if post {
			for range random.IntN(6) {
				text.WriteByte("\r\n"[random.IntN(2)])
				cut()
			}
		}
		at := random.IntN(len(r))
		text.WriteString(r[:at])
		cut()
		text.WriteString(r[at:])
		whole++
		cut()
		post = strings.HasPrefix(r, "POST")
	}
	return append(all, pieces{{text.String(), whole}}...)
}

// talk sends the pieces and returns all that is answered until the connection ends. Where it can, it
// waits for the answers to what it has sent before it sends more.
func talk(t *testing.T, l *Listener, p pieces) string {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	in := make(chan byte, 1<<20)
	go func() {
		defer close(in)
		for b := make([]byte, 4096); ; {
			n, err := c.Read(b)
			for _, one := range b[:n] {
				in <- one
			}
			if err != nil {
				return
			}
		}
	}()
	var got strings.Builder
	want := 0
	for _, one := range p {
		if _, err := io.WriteString(c, one.Text); err != nil {
			break // it was closed here, as the answers show
		}
		want += one.Answers
		for strings.Count(got.String(), " true")+strings.Count(got.String(), " false") < want {
			b, ok := <-in
			if !ok {
				break
			}
			got.WriteByte(b)
			if strings.Contains(got.String(), "400 Bad Request") {
				want = 0
			}
		}
	}
	c.(*net.TCPConn).CloseWrite()
	for b := range in {
		got.WriteByte(b)
	}
	return got.String()
}

// form is an answer without what differs between net/http and the handler of the test.
func form(text string) (all []string) {
	for line := range strings.SplitSeq(text, "\r\n") {
		if !strings.HasPrefix(line, "Date: ") && !strings.HasPrefix(line, "Content-Type: text/plain") && line != "" {
			all = append(all, line)
		}
	}
	return all
}

// A connection that was taken over and given back serves the same bytes with the same answers as
// one that http.Server keeps: requests that are pipelined and cut anywhere, empty lines between
// them (RFC 9112, 2.2), and what ends a connection.
func TestAConnectionThatComesBackServesWhatOneServesThatStays(t *testing.T) {
	t.Parallel()
	kept, lent := openLoopback(t, Options{Arrivals: newArrivals(t)}), openLoopback(t, Options{Arrivals: newArrivals(t)})
	echoing(t, kept, false)
	echoing(t, lent, true)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	for i := range 100 {
		p := generated(random)
		if diff := cmp.Diff(form(talk(t, kept, p)), form(talk(t, lent, p))); diff != "" {
			t.Fatalf("seed %d, %d: %+v\n%s", seed, i, p, diff)
		}
	}
	eventually(t, "all connections end", func() bool { return lent.Open() == 0 })
}

// An empty line behind a body is no request: the connection rests, before and after the line
// comes, and serves the next request.
func TestAnEmptyLineBehindABodyIsNoRequest(t *testing.T) {
	t.Parallel()
	const post = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na"
	for _, blank := range []string{"", "\r\n", "\n", "\r\n\r\n"} {
		for _, early := range []bool{true, false} {
			t.Run(fmt.Sprintf("%q %v", blank, early), func(t *testing.T) {
				t.Parallel()
				l := openLoopback(t, Options{Arrivals: newArrivals(t)})
				echoing(t, l, true)
				c := clientOf(t, l)
				for range 3 {
					if early {
						c.get(t, post+blank)
					} else {
						c.get(t, post)
						eventually(t, "the connection rests", func() bool { return l.atRest() == 1 })
						io.WriteString(c, blank)
					}
					eventually(t, "the connection rests", func() bool { return l.atRest() == 1 && l.Open() == 1 })
				}
				if got := c.get(t, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); got != "GET  true" {
					t.Errorf("answer %q", got)
				}
			})
		}
	}
}

// A connection that comes back when the kernel watches no further one stays open for its next
// request, and no other one is taken over.
func TestAConnectionThatCannotRestComesBack(t *testing.T) {
	t.Parallel()
	a := newArrivals(t)
	l := openLoopback(t, Options{Arrivals: a})
	echoing(t, l, true)
	a.Close() // every further Await fails
	c := clientOf(t, l)
	for range 3 {
		if got := c.get(t, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na"); got != "POST a true" {
			t.Errorf("answer %q", got)
		}
	}
	if l.resting.failed.Load() == nil || Back(context.WithValue(t.Context(), originKey{}, &conn{origin: Origin{Listener: l}})) != nil {
		t.Error("connections are taken over that cannot rest")
	}
}

// An expelled connection that comes back ends at once.
func TestAnExpelledConnectionDoesNotComeBack(t *testing.T) {
	t.Parallel()
	for _, ahead := range []string{"", aRequest} {
		l, c := oneAccepted(t)
		back := Back(l.ConnContext(t.Context(), c))
		c.origin.Expel()
		if back([]byte(ahead)); l.Open() != 0 || l.atRest() != 0 {
			t.Errorf("with %q ahead: %d open, %d rest", ahead, l.Open(), l.atRest())
		}
	}
}

// A connection does not keep the bytes that were read ahead once they are read.
func TestWhatWasReadAheadIsNotKept(t *testing.T) {
	t.Parallel()
	c := &conn{ahead: []byte(aRequest)}
	for _, n := range []int{3, len(aRequest)} {
		if _, err := c.Read(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	if c.ahead != nil {
		t.Errorf("%d bytes are kept", cap(c.ahead))
	}
}
