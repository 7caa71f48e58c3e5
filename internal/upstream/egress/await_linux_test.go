package egress

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/peer"
)

// Await reports data, the end of a stream, and the cancellation of its request, once. It is not
// for a body with data that has been received.
func TestAwait(t *testing.T) {
	t.Parallel()
	a, err := peer.NewArrivals()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	for name, end := range map[string]struct {
		do   func(write, leave chan<- string, cancel func())
		want string
	}{
		"data":         {func(write, _ chan<- string, _ func()) { write <- "abc" }, "a"},
		"its end":      {func(_, leave chan<- string, _ func()) { leave <- "" }, "EOF"},
		"cancellation": {func(_, _ chan<- string, cancel func()) { cancel() }, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			write, leave := make(chan string), make(chan string)
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for {
					w.(http.Flusher).Flush()
					select {
					case text := <-write:
						io.WriteString(w, text)
					case <-leave:
						return
					case <-r.Context().Done():
						return
					}
				}
			}))
			defer s.Close()
			tr := NewRoundTripper(Options{AllowPrivate: true, Await: a.Await})
			defer tr.CloseIdleConnections()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			called := make(chan struct{}, 2)
			if !Await(resp.Body, func() { called <- struct{}{} }) {
				t.Fatal("not awaited")
			}
			end.do(write, leave, cancel)
			select {
			case <-called:
			case <-time.After(30 * time.Second):
				t.Fatal("not called")
			}
			if name == "cancellation" && Await(resp.Body, func() {}) {
				t.Error("a cancelled request is awaited")
			}
			b := make([]byte, 1)
			n, err := resp.Body.Read(b)
			got := string(b[:n])
			if n == 0 {
				got = err.Error()
			}
			if got != end.want {
				t.Errorf("read %q", got)
			}
			if Await(resp.Body, func() {}) {
				t.Error("a body with data, at its end or of a cancelled request is awaited")
			}
			cancel()
			if len(called) != 0 {
				t.Error("called twice")
			}
		})
	}
	if Await(http.NoBody, func() {}) {
		t.Error("an empty body is awaited")
	}
}
