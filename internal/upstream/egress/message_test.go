package egress

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// template is a POST with a header that net/http has to clean.
func template(t *testing.T) *http.Request {
	t.Helper()
	u, err := url.Parse("http://user@[fe80::1%25eth0]:8080/a b/mcp?x=%2f#f")
	if err != nil {
		t.Fatal(err)
	}
	return &http.Request{Method: http.MethodPost, URL: u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{
		"User-Agent": {"agent\r\nContent-Length: 0"}, "Content-Type": {"application/json"}, "Accept": {"a", "b"},
		"X-Lines": {"one\r\ntwo: three"}, "not a name": {"x"}, "Content-Length": {"7"}, "Mcp-Session-Id": {"s"},
	}}
}

// TestWriteIsNetHTTPs: a request is written as net/http writes it, whether it fits its head or
// differs from the template in one member.
func TestWriteIsNetHTTPs(t *testing.T) {
	t.Parallel()
	other := http.Header{"Authorization": {"Bearer token"}}
	for name, change := range map[string]func(req *http.Request){
		"fits":               func(*http.Request) {},
		"another header":     func(req *http.Request) { req.Header = other },
		"a copied header":    func(req *http.Request) { req.Header = req.Header.Clone(); req.Header.Set("X-New", "1") },
		"no header":          func(req *http.Request) { req.Header = nil },
		"another method":     func(req *http.Request) { req.Method = http.MethodPut },
		"another URL":        func(req *http.Request) { req.URL = &url.URL{Scheme: "http", Host: "h", Path: "/other"} },
		"another host":       func(req *http.Request) { req.Host = "other" },
		"closes":             func(req *http.Request) { req.Close = true },
		"a trailer":          func(req *http.Request) { req.Trailer = http.Header{"X": nil} },
		"an unknown length":  func(req *http.Request) { req.ContentLength = -1 },
		"another length":     func(req *http.Request) { req.ContentLength++ },
		"chunked":            func(req *http.Request) { req.TransferEncoding = []string{"chunked"} },
		"a body half read":   func(req *http.Request) { io.CopyN(io.Discard, req.Body, 1) },
		"a body of its own":  func(req *http.Request) { req.Body = io.NopCloser(strings.NewReader("another")); req.ContentLength = 7 },
		"the body once more": func(req *http.Request) { req.Body, _ = req.Body.(*Message).Again() },
	} {
		for _, body := range []string{"", "{}", strings.Repeat("x", 100<<10)} {
			of := template(t)
			written := func(head *Head, write func(*bytes.Buffer, *http.Request) error) (string, error) {
				req := of.WithContext(t.Context())
				req.Body, req.ContentLength = NewMessage(head, []byte(body)), int64(len(body))
				change(req)
				var b bytes.Buffer
				err := write(&b, req)
				return b.String(), err
			}
			want, wantErr := written(nil, func(b *bytes.Buffer, req *http.Request) error { return req.Write(b) })
			got, err := written(NewHead(of), write)
			if diff := cmp.Diff(want, got); diff != "" || (err == nil) != (wantErr == nil) {
				t.Errorf("%s, %d bytes: %v, want %v\n%s", name, len(body), err, wantErr, diff)
			}
		}
	}
}

// TestNewHead: there is a head where net/http writes the request.
func TestNewHead(t *testing.T) {
	t.Parallel()
	if NewHead(template(t)) == nil {
		t.Error("no head")
	}
	if NewHead(&http.Request{Method: http.MethodPost}) != nil {
		t.Error("a head without a host")
	}
}
