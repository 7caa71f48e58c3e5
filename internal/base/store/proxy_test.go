package store

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// proxy stands between the store and the server and can lose a COMMIT on its
// way there, or its answer on the way back.
type proxy struct {
	net.Listener
	server string
	mode   atomic.Value
	age    atomic.Int32 // connections of an earlier age carry nothing more
	lost   func()       // what happens before a lost answer is noticed
}

func newProxy(t *testing.T, dsn string) (*proxy, place) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	dir, rest, _ := strings.Cut(strings.TrimPrefix(dsn, "host="), " ")
	p := &proxy{Listener: l, server: dir + "/.s.PGSQL.5432", lost: func() {}}
	p.mode.Store("")
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p, place{dsn: fmt.Sprintf("host=127.0.0.1 port=%d password=hunter2canary %s", l.Addr().(*net.TCPAddr).Port, rest)}
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", p.server)
	if err != nil || p.mode.Load() == "gone" {
		return
	}
	defer server.Close()
	age := p.age.Load()
	var mute atomic.Bool
	go func() {
		defer client.Close()
		defer server.Close()
		_, _ = io.Copy(server, readFunc(func(b []byte) (int, error) {
			n, err := client.Read(b)
			if age < p.age.Load() {
				return 0, err
			}
			if p.mode.Load() == "lose sight" && bytes.Contains(b[:n], cancelRequest) {
				return 0, io.EOF
			}
			if bytes.Contains(b[:n], []byte("COMMIT\x00")) {
				switch p.mode.Load() {
				case "lose request":
					return 0, io.EOF
				case "lose answer":
					mute.Store(true)
				case "lose sight":
					_, _ = server.Write(b[:n])
					p.lost()
					_ = client.Close()
					time.Sleep(limit) // the server does not see it
					return 0, io.EOF
				case "lose all":
					p.mode.Store("gone")
					return 0, io.EOF
				}
			}
			return n, err
		}))
	}()
	_, _ = io.Copy(client, readFunc(func(b []byte) (int, error) {
		n, err := server.Read(b)
		if mute.Load() {
			p.lost()
			return 0, io.EOF
		}
		return n, err
	}))
}

// cancelRequest asks the server to end a statement, as pgx does when it loses a
// connection.
var cancelRequest = []byte{0, 0, 0, 16, 4, 210, 22, 46}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }
