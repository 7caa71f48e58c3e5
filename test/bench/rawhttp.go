//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// rawConn is a persistent HTTP/1.1 connection without net/http: on a machine with two cores the
// standard client would take as much processor time as the proxy under test. It serves one exchange
// at a time.
type rawConn struct {
	c    net.Conn
	in   *bufio.Reader
	out  []byte
	body []byte
}

// answer is a response. Body aliases the connection's buffer and is valid until the next exchange.
type answer struct {
	Status  int
	Session string // Mcp-Session-Id
	Tag     string // ETag
	Body    []byte // the JSON message; of an event stream, its last message
}

// head holds the header fields of a response that are needed here.
type head struct {
	status  int
	length  int64 // -1: no Content-Length
	chunked bool
	events  bool
	session string
	tag     string
}

func dialRaw(addr string, buffer int) (*rawConn, error) {
	network := "tcp"
	if addr[0] == '/' {
		network = "unix"
	}
	c, err := net.Dial(network, addr)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	return &rawConn{c: c, in: bufio.NewReaderSize(c, buffer)}, nil
}

func (r *rawConn) close() { r.c.Close() }

// patience sets one deadline for all exchanges from now on, so that a proxy that hangs fails its
// path instead of the run. A deadline for each call would cost the generator a timer per call.
func (r *rawConn) patience(d time.Duration) { r.c.SetDeadline(time.Now().Add(d)) }

// post sends a body after the prepared header, which ends in `Content-Length: `, and reads the
// answer.
func (r *rawConn) post(header, body []byte) (answer, error) {
	r.out = append(r.out[:0], header...)
	r.out = strconv.AppendInt(r.out, int64(len(body)), 10)
	r.out = append(r.out, "\r\n\r\n"...)
	r.out = append(r.out, body...)
	return r.exchange(r.out)
}

// exchange sends a whole request and reads the whole answer.
func (r *rawConn) exchange(request []byte) (answer, error) {
	if _, err := r.c.Write(request); err != nil {
		return answer{}, fmt.Errorf("sending: %w", err)
	}
	h, err := r.readHead()
	if err != nil {
		return answer{}, err
	}
	if err := r.readBody(h); err != nil {
		return answer{}, fmt.Errorf("reading body of a %d: %w", h.status, err)
	}
	a := answer{Status: h.status, Session: h.session, Tag: h.tag, Body: r.body}
	if h.events {
		a.Body = lastEvent(r.body)
	}
	return a, nil
}

// readHead reads the status line and the header, and skips interim responses.
func (r *rawConn) readHead() (head, error) {
	for {
		h, err := r.readOneHead()
		if err != nil || h.status >= 200 {
			return h, err
		}
	}
}

func (r *rawConn) readOneHead() (head, error) {
	h := head{length: -1}
	line, err := r.line()
	if err != nil {
		return h, fmt.Errorf("reading status: %w", err)
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return h, fmt.Errorf("status line %q", line)
	}
	if h.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return h, fmt.Errorf("status line %q", line)
	}
	for {
		line, err := r.line()
		if err != nil {
			return h, fmt.Errorf("reading header: %w", err)
		}
		if len(line) == 0 {
			return h, nil
		}
		if err := h.field(line); err != nil {
			return h, err
		}
	}
}

// field stores a header field if it is needed here.
func (h *head) field(line []byte) error {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimSpace(value)
	var err error
	switch len(name) {
	case len("ETag"):
		if bytes.EqualFold(name, []byte("ETag")) {
			h.tag = string(value)
		}
	case len("Content-Type"):
		if bytes.EqualFold(name, []byte("Content-Type")) {
			h.events = bytes.HasPrefix(value, []byte("text/event-stream"))
		}
	case len("Content-Length"): // also Mcp-Session-Id
		if bytes.EqualFold(name, []byte("Content-Length")) {
			h.length, err = strconv.ParseInt(string(value), 10, 64)
		} else if bytes.EqualFold(name, []byte("Mcp-Session-Id")) {
			h.session = string(value)
		}
	case len("Transfer-Encoding"):
		if bytes.EqualFold(name, []byte("Transfer-Encoding")) {
			h.chunked = bytes.EqualFold(value, []byte("chunked"))
		}
	}
	if err != nil {
		return fmt.Errorf("header field %q", line)
	}
	return nil
}

var errUnframed = errors.New("neither Content-Length nor chunked: the connection would not persist")

func (r *rawConn) readBody(h head) error {
	r.body = r.body[:0]
	switch {
	case h.status == 204 || h.status == 304:
		return nil
	case h.chunked:
		return r.readChunks()
	case h.length >= 0:
		return r.readInto(h.length)
	}
	return errUnframed
}

func (r *rawConn) readChunks() error {
	for {
		line, err := r.line()
		if err != nil {
			return err
		}
		size, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseInt(string(size), 16, 64)
		if err != nil {
			return fmt.Errorf("chunk size %q", line)
		}
		if n == 0 {
			break
		}
		if err := r.readInto(n); err != nil {
			return err
		}
		if line, err = r.line(); err != nil || len(line) != 0 {
			return fmt.Errorf("end of chunk %q: %w", line, err)
		}
	}
	for { // trailers
		line, err := r.line()
		if err != nil || len(line) == 0 {
			return err
		}
	}
}

// readInto appends n bytes to the body.
func (r *rawConn) readInto(n int64) error {
	from := len(r.body)
	if need := from + int(n); need > cap(r.body) {
		grown := make([]byte, from, need+need/2)
		copy(grown, r.body)
		r.body = grown
	}
	r.body = r.body[:from+int(n)]
	_, err := io.ReadFull(r.in, r.body[from:])
	return err
}

// line reads one line and removes its end. The result is valid until the next read.
func (r *rawConn) line() ([]byte, error) {
	b, err := r.in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b[:len(b)-1], []byte("\r")), nil
}

// lastEvent returns the data of the last event that has any: the answer to a request is the last
// message of its stream. Data over several lines is not joined, because no JSON message of the
// fixture contains a line break.
func lastEvent(stream []byte) []byte {
	var data []byte
	for len(stream) > 0 {
		var line []byte
		line, stream, _ = bytes.Cut(stream, []byte("\n"))
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if value = bytes.TrimSpace(value); len(value) > 0 {
				data = value
			}
		}
	}
	return data
}
