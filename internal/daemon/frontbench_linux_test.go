package daemon

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/downstream/authn"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/downstream/listen"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
)

// atOnce is a front.Handler that answers each request at once.
type atOnce struct{}

func (atOnce) Known(*principal.Principal, string) bool { return true }

func (atOnce) Request(_ context.Context, x *front.Exchange) front.Reply {
	if x.Method == "initialize" {
		return front.Reply{Result: []byte(`{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"a","version":"1"}}`)}
	}
	return front.Reply{Result: benchResult}
}

func (atOnce) Notification(context.Context, *front.Exchange) *wire.Error { return nil }

var benchResult = []byte(`{"content":[{"type":"text","text":"` + strings.Repeat("x", 100) + `"}]}`)

// frontOf serves one listener as the daemon does, with a handler that answers at once, and
// returns a connection to it.
func frontOf(b *testing.B, s listen.Spec) net.Conn {
	b.Helper()
	arrivals, err := peer.NewArrivals()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = arrivals.Close() })
	l, err := listen.Open(b.Context(), s, listen.Credential{}, listen.Options{Holders: peer.NewHolders(-1), Arrivals: arrivals})
	if err != nil {
		b.Fatal(err)
	}
	c := &callers{auth: authn.New(authn.Options{UID: uint32(os.Geteuid())}), observer: peer.NewObserver(peer.Limits{})}
	door := front.New(front.Options{Handler: atOnce{}, Screen: screen, Holds: c.auth.Holds, Unread: listen.Unread,
		Authenticate: func(r *http.Request) (*principal.Principal, error) {
			who, err := c.identify(r)
			if err == nil && !listen.Serve(r.Context()) {
				return nil, front.ErrUnavailable
			}
			return who, err
		},
		HungUp: listen.HungUp, Await: listen.Await, Back: listen.Back, BodyBytes: 1 << 20, Sessions: 100, SessionsPerPrincipal: 100, IdleSession: time.Hour})
	srv := &http.Server{Handler: listen.Alert(l, timely(door, bodyTime)), ReadHeaderTimeout: headerTime, IdleTimeout: listen.RestAfter,
		MaxHeaderBytes: headerBytes, ConnContext: c.connContext(l), ConnState: l.ConnState, DisableGeneralOptionsHandler: true}
	go func() { _ = srv.Serve(l.Net()) }()
	b.Cleanup(func() { l.Close(); door.Close(); srv.Close() })
	network := "tcp"
	if s.Network == "unix" {
		network = "unix"
	}
	conn, err := net.Dial(network, l.Addr())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return conn
}

// benchPost returns a POST of a message.
func benchPost(session, body string) []byte {
	return fmt.Appendf(nil, "POST /mcp/notes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\nUser-Agent: bench\r\n%sContent-Length: %d\r\n\r\n%s", session, len(body), body)
}

// BenchmarkFront is an ordinary call on a kept connection, through the listener, net/http's
// server and the front.
func BenchmarkFront(b *testing.B) {
	for network, s := range map[string]listen.Spec{
		"tcp":  {Network: "tcp", Addr: "localhost:0"},
		"unix": {Network: "unix", Addr: filepath.Join(b.TempDir(), "s")},
	} {
		b.Run(network, func(b *testing.B) { benchmarkFront(b, frontOf(b, s)) })
	}
}

func benchmarkFront(b *testing.B, conn net.Conn) {
	in := bufio.NewReader(conn)
	host := ""
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		host = fmt.Sprintf("localhost:%d", tcp.Port)
	}
	send := func(session, body string) *http.Response {
		out := benchPost(session, body)
		if host != "" {
			out = bytes.Replace(out, []byte("Host: localhost"), []byte("Host: "+host), 1)
		}
		if _, err := conn.Write(out); err != nil {
			b.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			b.Fatal(err)
		}
		return resp
	}
	resp := send("", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"b","version":"1"}}}`)
	_, _ = io.Copy(io.Discard, resp.Body)
	head := "Mcp-Session-Id: " + resp.Header.Get("Mcp-Session-Id") + "\r\nMcp-Protocol-Version: 2025-11-25\r\n"
	call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add_note","arguments":{"text":"` + strings.Repeat("y", 200) + `"}}}`
	resp = send(head, call)
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(body, benchResult) {
		b.Fatalf("%d %s %v", resp.StatusCode, body, err)
	}
	out := benchPost(head, call)
	if host != "" {
		out = bytes.Replace(out, []byte("Host: localhost"), []byte("Host: "+host), 1)
	}
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		if _, err := conn.Write(out); err != nil {
			b.Fatal(err)
		}
		for {
			line, err := in.ReadSlice('\n')
			if err != nil {
				b.Fatal(err)
			}
			if len(line) == 2 {
				break
			}
		}
		if _, err := in.Discard(len(body)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// processorTime returns the processor time of this process so far, that of the client included.
func processorTime(b *testing.B) time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
