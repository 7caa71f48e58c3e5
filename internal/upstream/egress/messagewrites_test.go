package egress

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// countedWrites counts the writes to a connection.
type countedWrites struct {
	net.Conn
	n *atomic.Int32
}

func (c countedWrites) Write(b []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(b)
}

// A request over net/http is written at once, and not its head alone first.
func TestAMessageIsWrittenAtOnce(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
	defer s.Close()
	var n atomic.Int32
	tr := NewRoundTripper(Options{AllowPrivate: true})
	defer tr.CloseIdleConnections()
	tr.proxy = true // like TLS: an http.Transport
	tr.Secure.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return countedWrites{c, &n}, err
	}
	m := NewMessage(nil, []byte(`{"a":1}`))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, m)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength, req.GetBody = 7, m.Again
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); string(text) != `{"a":1}` || err != nil || n.Load() != 1 {
		t.Errorf("%q, %v, %d writes", text, err, n.Load())
	}
}
