package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// ending is a way in which the connection of a client ends without an answer.
type ending struct {
	name    string
	process bool // another process is the client
	unread  bool // it leaves bytes of the daemon unread
	chunked bool // the body comes in chunks
	end     func(c *endingClient)
}

var endings = []ending{
	{name: "killed", process: true, end: func(c *endingClient) { c.process.kill() }},
	{name: "closed", end: func(c *endingClient) { c.Close() }},
	{name: "half closed", end: func(c *endingClient) { c.Conn.(interface{ CloseWrite() error }).CloseWrite() }},
	{name: "reset", unread: true, end: func(c *endingClient) {
		if tcp, ok := c.Conn.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		c.Close()
	}},
	{name: "closed behind a further request", end: func(c *endingClient) {
		io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: "+c.host+"\r\n\r\n")
		c.Close()
	}},
	{name: "closed after a body in chunks", chunked: true, end: func(c *endingClient) { c.Close() }},
}

// endingCase is one call whose connection ends.
type endingCase struct {
	network, server string
	begun           bool // the stream of the answer
	how             ending
}

func (e endingCase) key() string {
	return fmt.Sprintf("%s/%s/begun %v/%s", e.network, e.server, e.begun, e.how.name)
}

// eachEnding runs a test for all combinations, and returns when all have ended.
func eachEnding(t *testing.T, servers map[string]*waitServer, test func(*testing.T, endingCase, *waitServer)) {
	t.Run("all", func(t *testing.T) {
		for name, s := range servers {
			for _, how := range endings {
				for i := range 4 {
					e := endingCase{[]string{"unix", "tcp"}[i/2], name, i%2 == 1, how}
					t.Run(e.key(), func(t *testing.T) { t.Parallel(); test(t, e, s) })
				}
			}
		}
	})
}

// startWaiting starts the real program with all kinds of servers.
func startWaiting(t *testing.T, name string) (*mailDaemon, map[string]*waitServer) {
	t.Helper()
	servers := waitServers(t)
	config := "listen: {http: [{addr: \"127.0.0.1:0\"}]}\nmcpServers:\n"
	for name, s := range servers {
		config += "  " + name + ": " + s.config + "\n"
	}
	return startMail(t, name, config), servers
}

// endingClient is one connection to a daemon, and perhaps the process that made it.
type endingClient struct {
	t *testing.T
	net.Conn
	in      *bufio.Reader
	host    string
	process *proxy // nil: the process of the test
}

func dialEnding(t *testing.T, d *mailDaemon, e endingCase) *endingClient {
	t.Helper()
	c := &endingClient{t: t, host: "localhost"}
	network, addr := e.network, d.address(e.network == "unix")
	if network == "tcp" {
		c.host = addr
	}
	if e.how.process {
		c.process = d.proxyOver(t, fmt.Sprint("ending", mailIDs.Add(1)), network)
		network, addr = "unix", "@"+c.process.name
	}
	conn, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(mailSoon))
	c.Conn, c.in = conn, bufio.NewReaderSize(conn, 16)
	return c
}

const modernHead = "Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: wait\r\n"

// post sends a message, with more lines of the head.
func (c *endingClient) post(e endingCase, head, body string) {
	c.t.Helper()
	head = "POST /mcp/" + e.server + " HTTP/1.1\r\nHost: " + c.host + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" + head
	if e.how.unread {
		head += "Expect: 100-continue\r\n" // whose answer stays unread
	}
	if e.how.chunked {
		head, body = head+"Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	} else {
		head += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	if _, err := io.WriteString(c, head+"\r\n"+body); err != nil {
		c.t.Fatal(err)
	}
}

// wait begins a call, of a session or of the modern era, and returns what the client has read of
// the answer when its stream has begun, if it begins.
func (c *endingClient) wait(e endingCase, s *waitServer, key, session string) (seen string) {
	c.t.Helper()
	m, head := meta, modernHead
	if session != "" {
		m, head = `"_meta":{}`, "Mcp-Session-Id: "+session+"\r\n"
	}
	if e.begun {
		m = strings.TrimSuffix(strings.Replace(m, "{", `{"progressToken":"p",`, 1), ",}")
		if session != "" {
			m += "}"
		}
	}
	c.post(e, head, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"wait","arguments":{"key":`+quote(key)+`},`+m+`}}`)
	await(c.t, s.call(key).begun, "the server has not got the call")
	switch {
	case e.begun && e.how.unread:
		return c.read("notifications/progress")
	case e.begun:
		return c.read(`"progress":1}}` + "\n\n\r\n")
	}
	return ""
}

// read reads until the text has come, and not more.
func (c *endingClient) read(text string) string {
	c.t.Helper()
	var seen []byte
	b := make([]byte, 1)
	for !strings.HasSuffix(string(seen), text) {
		if _, err := io.ReadFull(c.Conn, b); err != nil {
			c.t.Fatalf("no %q: %v\n%s", text, err, seen)
		}
		seen = append(seen, b...)
	}
	return string(seen)
}

// endSoon is less than the 15 seconds after which a keep-alive notices most ends.
const endSoon = 10 * time.Second

// await waits for what a working daemon causes at once.
func await(t *testing.T, c <-chan struct{}, otherwise string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(mailSoon):
		t.Fatal(otherwise)
	}
}

// TestTheEndOfAConnectionCancelsItsModernCall: a call of the modern era whose connection ends
// without an answer, in whatever way, is cancelled at the server. The call of a client that stays
// is not, and gets its answer, although both share the server.
func TestTheEndOfAConnectionCancelsItsModernCall(t *testing.T) {
	t.Parallel()
	d, servers := startWaiting(t, "ending")
	eachEnding(t, servers, func(t *testing.T, e endingCase, s *waitServer) {
		stays := endingCase{e.network, e.server, e.begun, ending{name: e.how.name + ", which stays"}}
		other := dialEnding(t, d, stays)
		other.wait(stays, s, stays.key(), "")
		c := dialEnding(t, d, e)
		c.wait(e, s, e.key(), "")
		e.how.end(c)
		select {
		case <-s.call(e.key()).cancelled:
		case <-time.After(endSoon):
			t.Fatal("the call is not cancelled")
		}
		if s.call(stays.key()).wasCancelled() {
			t.Fatal("the call of the client that stays is cancelled")
		}
		close(s.call(stays.key()).release)
		other.read("answer of " + stays.key())
	})
}

// TestTheEndOfAConnectionCancelsNoCallOfASession: a call of a session goes on when its connection
// ends. If its stream had begun, the client gets the answer by the id of the last event. A session
// on the Unix socket ends with its process, and its calls with it.
func TestTheEndOfAConnectionCancelsNoCallOfASession(t *testing.T) {
	t.Parallel()
	d, servers := startWaiting(t, "session")
	eachEnding(t, servers, func(t *testing.T, e endingCase, s *waitServer) {
		c := dialEnding(t, d, e)
		session := c.open(e)
		seen := c.wait(e, s, e.key(), session)
		e.how.end(c)
		if e.network == "unix" && e.how.process {
			await(t, s.call(e.key()).cancelled, "the session of a process that has ended goes on")
			return
		}
		// A call that ends later is cancelled, so the daemon has seen the first end.
		later := endingCase{e.network, e.server, e.begun, endings[1]}
		l := dialEnding(t, d, later)
		l.wait(later, s, e.key()+" later", "")
		l.Close()
		await(t, s.call(e.key()+" later").cancelled, "the later call is not cancelled")

		call := s.call(e.key())
		close(call.release)
		await(t, call.answered, "the call is not answered")
		if call.wasCancelled() {
			t.Error("the call is cancelled")
		}
		if !e.begun { // there is no event id
			return
		}
		ids := regexp.MustCompile(`(?m)^id: (\S+)`).FindAllStringSubmatch(seen, -1)
		if ids == nil {
			t.Fatalf("no event id:\n%s", seen)
		}
		r := dialEnding(t, d, later)
		io.WriteString(r, "GET /mcp/"+e.server+" HTTP/1.1\r\nHost: "+r.host+"\r\nAccept: text/event-stream\r\nMcp-Session-Id: "+session+
			"\r\nLast-Event-Id: "+ids[len(ids)-1][1]+"\r\n\r\n")
		r.read("answer of " + e.key())
	})
}

// open opens a session.
func (c *endingClient) open(e endingCase) string {
	c.t.Helper()
	e.how = ending{}
	c.post(e, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"ending","version":"1"}}}`)
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	id := resp.Header.Get("Mcp-Session-Id")
	if err = errors.Join(err, resp.Body.Close()); err != nil || id == "" {
		c.t.Fatalf("no session: %s, %v", resp.Status, err)
	}
	return id
}
