package deliver

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// hasty is a writer whose deadlines for reading end after a moment.
type hasty struct{ http.ResponseWriter }

func (h hasty) SetReadDeadline(t time.Time) error {
	if !t.IsZero() {
		t = time.Now().Add(50 * time.Millisecond)
	}
	return http.NewResponseController(h.ResponseWriter).SetReadDeadline(t)
}

// A client that stops in the middle of a body is refused and loses its connection. One whose body
// has arrived keeps it for longer than a body may take.
func TestABodyThatStopsEndsItsConnection(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := bodyOf(hasty{w}, r, maxBody); err != nil {
			http.Error(w, "malformed", http.StatusBadRequest)
			return
		}
		select {
		case <-r.Context().Done():
			t.Error("a request whose body has arrived was cancelled")
		case <-time.After(150 * time.Millisecond):
		}
	}))
	t.Cleanup(web.Close)
	for rest, status := range map[string]string{
		"Content-Length: 11\r\n\r\n{":                                                       "400",
		"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n":                                      "400",
		"Content-Length: 2\r\n\r\n{}GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n": "200",
	} {
		c, err := net.Dial("tcp", web.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"+rest)
		all, err := io.ReadAll(c)
		if err != nil || len(all) < 12 || string(all[9:12]) != status {
			t.Errorf("%q: %q %v", rest, all, err)
		}
	}
}
