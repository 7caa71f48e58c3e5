//go:build linux

package main

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
)

// bareRelay forwards HTTP to an HTTP server. It reads each request completely, as Doorward does,
// and checks nothing, so it is the upper bound for Doorward in front of an HTTP server.
type bareRelay struct {
	to     url.URL
	client http.Transport
}

func newBareRelay(to *url.URL) http.Handler {
	return &bareRelay{to: *to, client: http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}
}

func (b *bareRelay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "unreadable", http.StatusBadRequest)
		return
	}
	at := b.to
	at.Path = r.URL.Path
	out := (&http.Request{Method: r.Method, URL: &at, Header: r.Header, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body))}).WithContext(r.Context())
	if len(body) == 0 {
		out.Body = nil
	}
	answer, err := b.client.RoundTrip(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	for name, values := range answer.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.StatusCode)
	copyFlushed(w, answer.Body)
}

// copyFlushed copies a body and flushes after each read.
func copyFlushed(w http.ResponseWriter, from io.Reader) {
	flush := http.NewResponseController(w)
	for buf := make([]byte, 32<<10); ; {
		n, err := from.Read(buf)
		if _, e := w.Write(buf[:n]); e != nil || err != nil {
			return
		}
		if flush.Flush() != nil {
			return
		}
	}
}
