package egress

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
)

// Head is the head of a request in the form in which net/http writes it. It serves all requests
// that differ in their bodies only.
type Head struct {
	method, host  string
	url           *url.URL
	close         bool
	header        http.Header
	before, after []byte // the text around the value of Content-Length
}

const lengthLine = "\r\nContent-Length: "

// NewHead returns the head of POSTs made from a template; nil: net/http refuses to write it. The
// template and its header must not be changed afterwards.
func NewHead(template *http.Request) *Head {
	empty := *template
	empty.Body, empty.ContentLength = http.NoBody, 0
	var b bytes.Buffer
	if empty.Write(&b) != nil {
		return nil
	}
	before, after, ok := bytes.Cut(bytes.Clone(b.Bytes()), []byte(lengthLine+"0"))
	if !ok {
		return nil
	}
	return &Head{template.Method, template.Host, template.URL, template.Close, template.Header, before, after}
}

// fits reports whether h is the head of a request: nothing but the body and the context differ
// from the template.
func (h *Head) fits(req *http.Request) bool {
	return req.Method == h.method && req.URL == h.url && req.Host == h.host && req.Close == h.close &&
		len(req.TransferEncoding) == 0 && // a trailer needs chunks
		reflect.ValueOf(req.Header).UnsafePointer() == reflect.ValueOf(h.header).UnsafePointer()
}

// Message is the body of a request, held in memory. A request over plain HTTP is written with the
// head of its Message if it fits, and is otherwise composed by net/http.
type Message struct {
	head *Head // nil: none
	text []byte
	bytes.Reader
}

// NewMessage returns a body; head may be nil.
func NewMessage(head *Head, text []byte) *Message {
	m := &Message{head: head, text: text}
	m.Reset(text)
	return m
}

// Close implements io.Closer.
func (m *Message) Close() error { return nil }

// Again returns the body for another attempt, without a head. It fits http.Request.GetBody.
func (m *Message) Again() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(m.text)), nil }

// write writes a request in the form that net/http gives it.
func write(b *bytes.Buffer, req *http.Request) error {
	m, ok := req.Body.(*Message)
	if !ok || m.head == nil || len(m.text) == 0 || req.ContentLength != int64(len(m.text)) || m.Len() != len(m.text) || !m.head.fits(req) {
		return req.Write(b)
	}
	b.Write(m.head.before)
	b.WriteString(lengthLine)
	b.Write(strconv.AppendInt(b.AvailableBuffer(), req.ContentLength, 10))
	b.Write(m.head.after)
	b.Write(m.text)
	return nil
}

// standard returns a request with a bytes.Reader as its body in place of a Message. net/http
// writes the head alone first if it does not know the type of the body.
func standard(req *http.Request) *http.Request {
	m, ok := req.Body.(*Message)
	if !ok {
		return req
	}
	req = req.WithContext(req.Context())
	req.Body = io.NopCloser(&m.Reader)
	return req
}
