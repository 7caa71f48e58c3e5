package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// refusers are the ways in which the paths of the daemon refuse a body that they do not read to
// its end.
var refusers = map[string]http.HandlerFunc{
	"unread": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	},
	"read in part": func(w http.ResponseWriter, r *http.Request) {
		io.CopyN(io.Discard, r.Body, 1<<10)
		w.Header().Set("Connection", "close")
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	},
	"kept open": func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	},
}

// lingers is less than the time after its answer for which net/http keeps the connection of a
// client that is still sending.
const lingers = 450 * time.Millisecond

// answered sends a whole request before it reads, and returns the answer. An error, such as a reset,
// within lingers fails the test; a machine that is too busy to send and read in this time tries
// again.
func answered(t *testing.T, dial func() net.Conn, request string) *http.Response {
	t.Helper()
	for range 30 {
		c, began := dial(), time.Now()
		resp, err := exchange(c, request)
		if err == nil {
			return resp
		}
		if after := time.Since(began); after < lingers {
			t.Fatalf("the request fails after %s: %v", after, err)
		}
	}
	t.Fatalf("no request was sent and answered within %s", lingers)
	return nil
}

func exchange(c net.Conn, request string) (*http.Response, error) {
	if err := writeSlowly(c, request); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		_, err = io.ReadAll(resp.Body)
	}
	return resp, err
}

// writeSlowly writes a request in pieces, so that the answer comes while the body is written.
func writeSlowly(c net.Conn, request string) error {
	for piece := range slices.Chunk([]byte(request), 20<<10) {
		if _, err := c.Write(piece); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// A client that sends all of a refused body before it reads gets the answer, and no reset.
func TestARefusedBodyGetsItsAnswer(t *testing.T) {
	t.Parallel()
	for name, h := range refusers {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, chunked %v", name, chunked), func(t *testing.T) {
				t.Parallel()
				body := strings.Repeat("x", 600<<10)
				head := fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body))
				if chunked {
					head, body = "Transfer-Encoding: chunked\r\n\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
				}
				resp := answered(t, timelyServer(t, h, 10*time.Second), postHead+head+body)
				if resp.StatusCode != http.StatusRequestEntityTooLarge {
					t.Error(resp.Status)
				}
			})
		}
	}
}

// A client that waits for "100 Continue" gets a refusal at once, since no body will come.
func TestARefusalDoesNotWaitForABodyThatIsNotSent(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403, 404, 415, 429} {
		for name, length := range map[string]string{"announced": "Content-Length: 11", "chunked": "Transfer-Encoding: chunked"} {
			t.Run(fmt.Sprint(status, " ", name), func(t *testing.T) {
				t.Parallel()
				refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", status) })
				c := timelyServer(t, refuse, time.Hour)()
				fmt.Fprint(c, postHead+"Expect: 100-continue\r\n"+length+"\r\n\r\n")
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil || resp.StatusCode != status {
					t.Errorf("%v %v", resp, err)
				}
			})
		}
	}
}

// A body that is wanted is asked for: "100 Continue" comes before the answer.
func TestAWantedBodyIsAskedFor(t *testing.T) {
	t.Parallel()
	c := timelyServer(t, bodyReaders["the whole body"], 10*time.Second)()
	fmt.Fprint(c, postHead+"Expect: 100-continue\r\nContent-Length: 6\r\n\r\n")
	answers := bufio.NewReader(c)
	for _, want := range []int{http.StatusContinue, http.StatusOK} {
		resp, err := http.ReadResponse(answers, nil)
		if err != nil || resp.StatusCode != want {
			t.Fatalf("%v %v, want %d", resp, err, want)
		}
		fmt.Fprint(c, "code=x")
	}
}

// A stream that was taken over from net/http has no deadline, whatever body its request
// announced.
func TestATakenOverConnectionHasNoDeadline(t *testing.T) {
	t.Parallel()
	var taken atomic.Bool
	dial := timelyServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if taken.Load() {
			io.Copy(io.Discard, r.Body)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		taken.Store(true)
		go io.Copy(conn, conn)
	}), 50*time.Millisecond)
	c, later := dial(), dial()
	fmt.Fprint(c, postHead+"Content-Length: 6\r\n\r\n")
	doortest.Until(t, 20*time.Second, "it is taken over", taken.Load)
	fmt.Fprint(later, postHead+"Content-Length: 6\r\n\r\n")
	if _, err := io.ReadAll(later); errors.Is(err, os.ErrDeadlineExceeded) { // its deadline is after that of c
		t.Fatal(err)
	}
	fmt.Fprint(c, "code=x")
	got := make([]byte, 6)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "code=x" {
		t.Errorf("%q %v", got, err)
	}
}
