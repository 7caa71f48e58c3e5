package egress

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// A request that reached the server over TLS never counts as one that was not sent, also on a
// connection that an earlier request has used.
func TestARequestThatWasReadIsNotUnconnected(t *testing.T) {
	t.Parallel()
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		for kind, warm := range map[string]bool{"new connection": false, "used connection": true} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				var cut atomic.Bool
				var read atomic.Int32
				srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					read.Add(1)
					if cut.Load() {
						panic(http.ErrAbortHandler)
					}
				}))
				srv.EnableHTTP2 = http2
				srv.StartTLS()
				t.Cleanup(srv.Close)
				transport := srv.Client().Transport
				post := func() error {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader("x"))
					if err != nil {
						t.Fatal(err)
					}
					resp, err := connected(transport, req)
					if err == nil {
						resp.Body.Close()
					}
					return err
				}
				if warm {
					if err := post(); err != nil {
						t.Fatal(err)
					}
				}
				cut.Store(true)
				before := read.Load()
				if err := post(); err == nil || errors.Is(err, ErrUnconnected) || read.Load() != before+1 {
					t.Errorf("%v after %d requests", err, read.Load()-before)
				}
			})
		}
	}
}
