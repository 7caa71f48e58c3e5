package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// tarpit is a proxy in front of a server that carries nothing more of a connection once a
// client has sent a text, as when the server's machine fails at that moment.
type tarpit struct {
	text  atomic.Value // empty: carries all
	stuck atomic.Int32 // connections that have sent the text
	over  chan struct{}
	free  func() // ends the connections that are stuck
}

func newTarpit(t *testing.T, dsn string) (*tarpit, place) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	dir, rest, _ := strings.Cut(strings.TrimPrefix(dsn, "host="), " ")
	pit := &tarpit{over: make(chan struct{})}
	pit.free = sync.OnceFunc(func() { close(pit.over) })
	pit.text.Store("")
	t.Cleanup(func() { l.Close(); pit.free() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go pit.serve(c, dir+"/.s.PGSQL.5432")
		}
	}()
	return pit, place{dsn: fmt.Sprintf("host=127.0.0.1 port=%d connect_timeout=1 %s", l.Addr().(*net.TCPAddr).Port, rest)}
}

func (p *tarpit) serve(client net.Conn, path string) {
	defer client.Close()
	server, err := net.Dial("unix", path)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(client, server)
		client.Close()
	}()
	_, _ = io.Copy(server, readFunc(func(b []byte) (int, error) {
		n, err := client.Read(b)
		if text := p.text.Load().(string); text != "" && bytes.Contains(b[:n], []byte(text)) {
			p.stuck.Add(1)
			go func() { <-p.over; client.Close() }()
			_, _ = io.Copy(io.Discard, client) // until the client gives up
			return 0, io.EOF
		}
		return n, err
	}))
}

func (p *tarpit) waits(t *testing.T, n int32) {
	t.Helper()
	if !doortest.Becomes(limit, func() bool { return p.stuck.Load() >= n }) {
		p.free() // so that the store can be closed
		t.Fatalf("%d connections hung, want %d", p.stuck.Load(), n)
	}
}

// A server that hangs after a connection is made is given up like one that hangs before.
func TestAConnectionThatHangsWhileItIsSetUpIsGivenUp(t *testing.T) {
	t.Parallel()
	pit, p := newTarpit(t, doortest.Postgres(t))
	pit.text.Store("idle_in_transaction_session_timeout")
	opened := make(chan error, 1)
	go func() {
		_, err := Open(t.Context(), p.options(Options{}))
		opened <- err
	}()
	select {
	case err := <-opened:
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("a server that hangs: %v", err)
		}
	case <-time.After(limit):
		t.Error("the store waits for a server that hangs")
	}
}

// A listener whose new connection hangs makes another one.
func TestAListenerThatHangsConnectsAgain(t *testing.T) {
	t.Parallel()
	pit, p := newTarpit(t, doortest.Postgres(t))
	db := p.open(t, Options{Node: "host"})
	engine := db.engine.(*postgres)
	engine.beginLimit = 200 * time.Millisecond
	pit.text.Store("pg_advisory_lock")
	number(t, db, `SELECT count(pg_terminate_backend(CAST(?1 AS INTEGER)))`, engine.backend)
	pit.waits(t, 2)
}
