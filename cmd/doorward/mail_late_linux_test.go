package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// startMailTLS starts a daemon with a Unix socket, a TCP listener and one with TLS, and returns a
// function that makes a client of one of them and counts its connections.
func startMailTLS(t *testing.T) (d *mailDaemon, client func(via string) (*mailClient, *conns)) {
	config := strings.Replace(mailConfig("one", "", roomy), `"127.0.0.1:0"}]`, `"127.0.0.1:0"}, {addr: "127.0.0.1:0", tls: {cert: cert.pem, key: key.pem}, hosts: [localhost]}]`, 1)
	d = newMailDir(t, "one", config)
	if err := makeCertIn(d.dir); err != nil {
		t.Fatal(err)
	}
	d.start()
	return d, func(via string) (*mailClient, *conns) {
		n := new(conns)
		c := d.client(via)
		h := c.http.Transport.(*http.Transport)
		dial := h.DialContext
		if via == "tls" {
			dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
				raw, err := new(net.Dialer).DialContext(ctx, network, d.secure())
				if err != nil {
					return nil, err
				}
				return tls.Client(raw, &tls.Config{InsecureSkipVerify: true}), nil // the certificate is the test's own
			}
		}
		h.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			n.opened.Add(1)
			c, err := dial(ctx, network, addr)
			return &countedConn{c, n}, err
		}
		return c, n
	}
}

// conns counts the connections of a client.
type conns struct{ opened, closed atomic.Int32 }

type countedConn struct {
	net.Conn
	n *conns
}

func (c *countedConn) Close() error {
	defer c.n.closed.Add(1)
	return c.Conn.Close()
}

// secure returns the address of the listener with TLS.
func (d *mailDaemon) secure() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, line := range d.proc.log.seen() {
		if addr, ok := strings.CutPrefix(line, "listening https://"); ok {
			return strings.TrimSuffix(addr, "/")
		}
	}
	return ""
}

// A connection serves further requests after a call on it has waited, whatever ended the wait and
// whether its client asked for progress.
func TestMailAWaitLeavesItsConnectionOpen(t *testing.T) {
	t.Parallel()
	d, client := startMailTLS(t)
	for _, via := range []string{"unix", "tcp", "tls"} {
		c, dials := client(via)
		c = c.mustOpen()
		c.register(via)
		writer, _ := client(via)
		writer = writer.mustOpen()
		writer.register("writer-" + via)
		for i := range 6 {
			body, got := fmt.Sprint("message ", i), make(chan *mailReply, 1)
			call := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"inbox","arguments":{"wait_ms":%d,"format":"json"}%s}}`,
				mailIDs.Add(1), []int{50_000, 20}[i/4], []string{"", `,"_meta":{"progressToken":"p"}`}[i%2])
			go func() { got <- c.post(t.Context(), "/mcp/agent", call, "", nil) }()
			if i < 4 {
				d.begun(1)
				writer.send(via, body)
			}
			r := <-got
			var b mailBatch
			r.into(t, &b)
			if i < 4 && (len(b.Messages) != 1 || b.Messages[0].Body != body) || i >= 4 && len(b.Messages) != 0 {
				t.Errorf("%s, call %d: %s", via, i, r)
			}
			if events := strings.Count(string(r.raw), "notifications/progress"); events != i%2 {
				t.Errorf("%s, call %d: %d events of progress", via, i, events)
			}
		}
		if n := dials.opened.Load(); n != 1 {
			t.Errorf("%s: %d connections", via, n)
		}
	}
	d.sound()
}

// Every message is given, and none again after the inbox call that confirms it, whatever ends the
// waits of an agent that passes no cursor: mail, time, a cancellation, a client that is gone, a
// session that is ended, a daemon that is stopped.
func TestMailWaitsLoseNothing(t *testing.T) {
	t.Parallel()
	d, client := startMailTLS(t)
	for _, via := range []string{"unix", "tcp", "tls"} {
		seed := time.Now().UnixNano()
		random := rand.New(rand.NewPCG(uint64(seed), 1))
		c, n := client(via)
		r := &readMail{t: t, d: d, conns: n, via: via, what: fmt.Sprint(via, ", seed ", seed), c: c, writer: c.mustOpen(), given: make(map[string]bool), confirmed: make(map[string]bool)}
		r.open()
		r.writer.register("writer-" + via)
		ends := []string{"mail", "mails", "time", "cancel", "gone", "session", "stop"}
		for i := range 40 {
			end := ends[random.IntN(len(ends))]
			if end == "stop" && (i%8 != 0 || via == "unix") { // a session of the socket ends with the daemon
				end = "mails"
			}
			r.round(end)
		}
		for range 3 {
			r.take(r.c.call("inbox", obj{}))
		}
		if len(r.given) != r.sent || len(r.confirmed) != r.sent {
			t.Errorf("%s: %d sent, %d given, %d confirmed", r.what, r.sent, len(r.given), len(r.confirmed))
		}
	}
	d.sound()
}

// readMail is what an agent has read.
type readMail struct {
	t                testing.TB
	d                *mailDaemon
	via, what        string
	c, writer        *mailClient
	conns            *conns
	sent             int
	last             []string // bodies of the last answer
	given, confirmed map[string]bool
}

// take notes an answer, which confirms the one before.
func (r *readMail) take(a *mailReply) {
	r.t.Helper()
	var b mailBatch
	a.into(r.t, &b)
	for _, body := range r.last {
		r.confirmed[body] = true
	}
	r.last = nil
	for _, m := range b.Messages {
		if r.confirmed[m.Body] {
			r.t.Errorf("%s: %q was confirmed and is given again", r.what, m.Body)
		}
		r.given[m.Body] = true
		r.last = append(r.last, m.Body)
	}
}

// open opens the session of the reader.
func (r *readMail) open() {
	r.t.Helper()
	r.c, r.last = r.c.mustOpen(), nil
	r.c.register(r.via)
}

// mail sends n messages.
func (r *readMail) mail(n int) {
	r.t.Helper()
	for range n {
		r.writer.send(r.via, fmt.Sprint("message ", r.sent))
		r.sent++
	}
}

// wait begins a call that waits, after the calls that find something.
func (r *readMail) wait(end string) (got chan *mailReply, cancel func()) {
	r.t.Helper()
	for again := true; again; again = len(r.last) > 0 {
		r.take(r.c.call("inbox", obj{}))
	}
	got = make(chan *mailReply, 1)
	switch end {
	case "time":
		return got, r.c.start(got, "inbox", obj{"wait_ms": 20})
	case "gone":
		ctx, leave := context.WithCancel(r.t.Context())
		go func() { got <- r.c.try(ctx, "inbox", obj{"wait_ms": 50_000}) }()
		cancel = leave
	default:
		cancel = r.c.start(got, "inbox", obj{"wait_ms": 50_000})
	}
	r.d.begun(1)
	return got, cancel
}

// round makes a call that waits, and ends the wait.
func (r *readMail) round(end string) {
	r.t.Helper()
	got, cancel := r.wait(end)
	answered := true
	switch end {
	case "mail":
		r.mail(1)
	case "mails":
		r.mail(3)
	case "gone":
		closed := r.conns.closed.Load()
		cancel()
		if answered = false; !poll(mailSoon, func() bool { return r.conns.closed.Load() > closed }) {
			r.t.Fatal("the connection is not closed")
		}
	case "cancel":
		cancel()
		answered = false
	case "session":
		if err := r.c.end(); err != nil {
			r.t.Error(err)
		}
		answered = false
	case "stop":
		r.d.stop()
		r.d.start()
	}
	if a := <-got; answered {
		r.take(a)
	} else if end != "gone" && a.status != http.StatusAccepted {
		r.t.Errorf("%s: %s: %s", r.what, end, a)
	}
	switch end {
	case "session":
		r.open()
	case "stop":
		r.last = nil // what an answer before the stop gave is given again
	}
	r.mail(1) // which a call without a client may take, and does not confirm
	r.d.begun(0)
	if r.take(r.c.call("inbox", obj{"wait_ms": 20_000})); len(r.last) == 0 {
		r.t.Fatalf("%s: a message is lost after: %s", r.what, end)
	}
}
