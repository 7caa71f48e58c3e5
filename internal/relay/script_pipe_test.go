package relay

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/trust/wire"
)

// startPipe serves children: each is a pump to our socket.
func (s *script) startPipe() {
	dir, err := os.MkdirTemp("", "dw")
	if err != nil {
		s.t.Fatal(err)
	}
	s.address = filepath.Join(dir, "s")
	l, err := net.Listen("unix", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		l.Close()
		for _, c := range s.open() {
			c.close()
		}
		os.RemoveAll(dir)
	})
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go s.pipe(nc)
		}
	}()
}

func (s *script) pipe(nc net.Conn) {
	var writing sync.Mutex
	c := s.connect("", func(msg []byte) {
		writing.Lock()
		defer writing.Unlock()
		nc.Write(append(msg, '\n'))
	}, func() { nc.Close() })
	defer s.gone(c)
	defer nc.Close()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	for in := bufio.NewReaderSize(nc, 1<<20); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		s.line(ctx, c, bytes.TrimSuffix(line, []byte("\n")))
	}
}

func (s *script) line(ctx context.Context, c *conn, line []byte) {
	m, err := wire.Parse(line, wire.FromClient)
	if err != nil {
		s.t.Errorf("server %s was sent %q: %v", s.name, line, err)
		return
	}
	q := &query{conn: c, Message: m, raw: string(line), ctx: ctx, emit: c.say}
	if m.Kind != wire.Request {
		s.take(q)
		return
	}
	c.in(q)
	go func() {
		defer c.out(q)
		s.take(q)
	}()
}

// in makes a request one that can be cancelled.
func (c *conn) in(q *query) {
	ctx, cancel := context.WithCancel(q.ctx)
	q.ctx = ctx
	c.mu.Lock()
	c.calls[q] = cancel
	c.mu.Unlock()
}

func (c *conn) out(q *query) {
	c.mu.Lock()
	cancel := c.calls[q]
	delete(c.calls, q)
	c.mu.Unlock()
	cancel()
}

func contains(t testing.TB, what, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%s: %s\nlacks %s", what, text, p)
		}
	}
}
