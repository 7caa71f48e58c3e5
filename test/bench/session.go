//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	legacyVersion = "2025-11-25"
	modernVersion = "2026-07-28"

	initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + legacyVersion +
		`","capabilities":{},"clientInfo":{"name":"doorward-bench","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

	// keepAlive is the maximum idle time of a connection that is used again. Doorward closes idle
	// connections, as any server may, and clients dial again.
	keepAlive = 30 * time.Second

	// openPatience is long enough to start a stdio server while a thousand others start.
	openPatience = 60 * time.Second
	bigBytes     = 1 << 20
)

// endpoint is the entry point of a path.
type endpoint struct {
	addr string // host:port, or the path of a Unix socket
	uri  string // path of the URL
}

func (e endpoint) host() string {
	if e.addr[0] == '/' {
		return "doorward"
	}
	return e.addr
}

// session is one MCP client on one connection. Each call carries a unique text, and its answer is
// valid only with that text and the call's id, so a proxy cannot gain by mixing up or repeating
// answers.
type session struct {
	at      endpoint
	conn    *rawConn
	stream  *rawConn // the open GET stream; nil: none
	id      string   // Mcp-Session-Id
	number  int
	calls   int64
	header  map[string][]byte // prepared header for each tool
	modern  bool
	body    []byte
	text    []byte
	pad     string // appended to every text; needs no escapes in JSON
	expect  []byte
	samples []time.Duration
	used    time.Time // when conn was last used
}

// openSession connects. With the older version it also does the handshake: initialize and
// initialized.
func openSession(at endpoint, number int, modern bool) (*session, error) {
	conn, err := dialRaw(at.addr, 16<<10)
	if err != nil {
		return nil, err
	}
	s := &session{at: at, conn: conn, number: number, modern: modern, used: time.Now()}
	if err := s.handshake(); err != nil {
		conn.close()
		return nil, fmt.Errorf("opening session %d: %w", number, err)
	}
	s.header = map[string][]byte{"echo": s.callHeader("echo"), "big": s.callHeader("big")}
	return s, nil
}

func (s *session) handshake() error {
	if s.modern {
		return nil
	}
	s.conn.patience(openPatience)
	a, err := s.conn.post(s.prepare("POST", "Content-Length: "), []byte(initialize))
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if a.Status != 200 || a.Session == "" || !bytes.Contains(a.Body, []byte(`"protocolVersion":"`+legacyVersion+`"`)) {
		return fmt.Errorf("initialize: %s", a)
	}
	s.id = a.Session
	a, err = s.conn.post(s.callHeader(""), []byte(initialized))
	if err != nil {
		return fmt.Errorf("initialized: %w", err)
	}
	if a.Status != 202 {
		return fmt.Errorf("initialized: %s", a)
	}
	return nil
}

// refresh dials again when the connection has been idle for long.
func (s *session) refresh() error {
	if time.Since(s.used) < keepAlive {
		return nil
	}
	conn, err := dialRaw(s.at.addr, 16<<10)
	if err != nil {
		return fmt.Errorf("session %d: %w", s.number, err)
	}
	s.conn.close()
	s.conn = conn
	return nil
}

func (a answer) String() string { return fmt.Sprintf("status %d, body %.300q", a.Status, a.Body) }

// prepare builds a request header. extra holds raw header lines with their line ends; the last one
// may be incomplete.
func (s *session) prepare(method string, extra ...string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: doorward-bench\r\n", method, s.at.uri, s.at.host())
	b.WriteString("Accept: application/json, text/event-stream\r\n")
	if method == "POST" {
		b.WriteString("Content-Type: application/json\r\n")
	}
	b.WriteString(strings.Join(extra, ""))
	return []byte(b.String())
}

// callHeader returns the header of a POST after the handshake, up to the value of Content-Length.
func (s *session) callHeader(tool string) []byte {
	if s.modern {
		return s.prepare("POST", "MCP-Protocol-Version: "+modernVersion+"\r\n",
			"Mcp-Method: tools/call\r\n", "Mcp-Name: "+tool+"\r\n", "Content-Length: ")
	}
	return s.prepare("POST", s.sessionLines(), "Content-Length: ")
}

func (s *session) sessionLines() string {
	return "Mcp-Session-Id: " + s.id + "\r\nMCP-Protocol-Version: " + legacyVersion + "\r\n"
}

// call calls a tool and checks the answer.
func (s *session) call(tool string) error {
	s.calls++
	s.text = s.appendText(s.text[:0])
	s.body = s.appendCall(s.body[:0], tool)
	a, err := s.conn.post(s.header[tool], s.body)
	if err != nil {
		return fmt.Errorf("session %d call %d: %w", s.number, s.calls, err)
	}
	if err := s.check(a, tool); err != nil {
		return fmt.Errorf("session %d call %d: %w: %s", s.number, s.calls, err, a)
	}
	return nil
}

// appendText appends the argument of this call, which is unique among all sessions and calls of a
// path.
func (s *session) appendText(b []byte) []byte {
	b = append(b, "session "...)
	b = strconv.AppendInt(b, int64(s.number), 10)
	b = append(b, " asks for the "...)
	b = strconv.AppendInt(b, s.calls, 10)
	return append(append(b, "th time"...), s.pad...)
}

func (s *session) appendCall(b []byte, tool string) []byte {
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = strconv.AppendInt(b, s.calls, 10)
	b = append(b, `,"method":"tools/call","params":{"name":"`...)
	b = append(b, tool...)
	b = append(b, `","arguments":{"text":"`...)
	b = append(b, s.text...)
	b = append(b, `"}`...)
	if s.modern {
		b = append(b, `,"_meta":{"io.modelcontextprotocol/protocolVersion":"`+modernVersion+
			`","io.modelcontextprotocol/clientCapabilities":{},`+
			`"io.modelcontextprotocol/clientInfo":{"name":"doorward-bench","version":"1"}}`...)
	}
	return append(b, "}}"...)
}

// check verifies the answer to a call. It searches instead of parsing, to save processor time.
func (s *session) check(a answer, tool string) error {
	if a.Status != 200 {
		return errors.New("not answered")
	}
	if !s.hasID(a.Body) {
		return errors.New("another id in the answer")
	}
	s.expect = append(append(s.expect[:0], `"text":"`...), s.text...)
	if tool == "big" {
		s.expect = append(s.expect, filler()[:bigBytes-len(s.text)]...)
	}
	s.expect = append(s.expect, '"')
	if !bytes.Contains(a.Body, s.expect) {
		return errors.New("another text in the answer")
	}
	return nil
}

// filler is the text with which the tool big fills its result. It is created on first use: the
// hidden modes do not need it, and their memory is measured.
var filler = sync.OnceValue(func() []byte { return bytes.Repeat([]byte("x"), bigBytes) })

// hasID reports whether the message has this call's id. The fixture's own text never contains
// `"id":`.
func (s *session) hasID(body []byte) bool {
	const key = `"id":`
	var number [20]byte
	want := strconv.AppendInt(number[:0], s.calls, 10)
	at := bytes.Index(body, []byte(key))
	if at < 0 {
		return false
	}
	rest := body[at+len(key):]
	return bytes.HasPrefix(rest, want) && len(rest) > len(want) && (rest[len(want)] == ',' || rest[len(want)] == '}')
}

// listTools makes a cheap request that every server of the benchmark answers.
func (s *session) listTools() error {
	s.conn.patience(openPatience)
	s.calls++
	body := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, s.calls)
	a, err := s.conn.post(s.callHeader(""), body)
	if err != nil {
		return fmt.Errorf("tools/list: %w", err)
	}
	if a.Status != 200 || !s.hasID(a.Body) || !bytes.Contains(a.Body, []byte(`"tools":`)) {
		return fmt.Errorf("tools/list: %s", a)
	}
	return nil
}

// openStream opens the GET stream and waits for its header.
func (s *session) openStream() error {
	conn, err := dialRaw(s.at.addr, 1<<10)
	if err != nil {
		return err
	}
	conn.patience(openPatience)
	if _, err := conn.c.Write(s.prepare("GET", s.sessionLines(), "\r\n")); err != nil {
		return fmt.Errorf("asking for the stream: %w", err)
	}
	h, err := conn.readHead()
	if err != nil || h.status != 200 || !h.events {
		conn.close()
		return fmt.Errorf("opening the stream: status %d, %v", h.status, err)
	}
	s.stream = conn
	return nil
}

// streamAlive reports whether the GET stream is still open, whether or not it has data.
func (s *session) streamAlive() bool {
	s.stream.patience(time.Millisecond)
	for {
		if _, err := s.stream.in.ReadByte(); err != nil {
			var timeout interface{ Timeout() bool }
			return errors.As(err, &timeout) && timeout.Timeout()
		}
	}
}

// close ends the session at the server too, so that it does not affect the next measurement.
func (s *session) close() {
	if s.stream != nil {
		s.stream.close()
	}
	if s.id != "" && s.refresh() == nil {
		s.conn.patience(openPatience)
		s.conn.exchange(s.prepare("DELETE", s.sessionLines(), "Content-Length: 0\r\n\r\n"))
	}
	s.conn.close()
}
