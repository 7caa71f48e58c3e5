package upstream

import (
	"bytes"
	"io"
	"net/http"
	"strings"
)

// isMedia compares the media type of a response without its parameters.
func isMedia(resp *http.Response, want string) bool {
	v := resp.Header["Content-Type"]
	if len(v) == 0 {
		return false
	}
	kind, _, _ := strings.Cut(v[0], ";")
	return strings.EqualFold(strings.TrimSpace(kind), want)
}

// trusted bounds the buffer that is allocated for an announced length before the body
// arrives, in bytes.
const trusted = 1 << 20

// readBody reads a whole body of at most max bytes, into one buffer of the right size if its
// length is announced.
func readBody(resp *http.Response, max int) ([]byte, error) {
	length := resp.ContentLength
	if length > int64(max) {
		return nil, newFault(ErrTooLarge, "a long body")
	}
	if length >= 0 && length <= trusted {
		body := make([]byte, length)
		if _, err := io.ReadFull(resp.Body, body); err != nil {
			return nil, newFaultf(ErrLost, "the body was cut short", err)
		}
		drainHTTP2(resp)
		return body, nil
	}
	var buf bytes.Buffer
	if length > 0 {
		buf.Grow(trusted)
	}
	n, err := buf.ReadFrom(io.LimitReader(resp.Body, int64(max)+1))
	switch {
	case err != nil:
		return nil, newFaultf(ErrLost, "the body was cut short", err)
	case n > int64(max):
		return nil, newFault(ErrTooLarge, "a long body")
	}
	return buf.Bytes(), nil
}

// drainHTTP2 reads the end of a body whose length was known. HTTP/1 reports it with the last
// byte; in HTTP/2, closing before it was read resets the stream, which some servers count as
// misbehaviour.
func drainHTTP2(resp *http.Response) {
	if resp.ProtoMajor >= 2 {
		var b [1]byte
		_, _ = resp.Body.Read(b[:])
	}
}
