package store

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/test/doortest"
)

// A name has one DB of a schema at a time. It is free as soon as that one is closed.
func TestANameHasOneDaemon(t *testing.T) {
	t.Parallel()
	p := place{dsn: doortest.Postgres(t)}
	for range 3 {
		first := p.openFree(t)
		for _, o := range []Options{{Node: "other"}, {Node: "host", Schema: "elsewhere"}, {}} {
			must(t, p.open(t, o).Close())
		}
		if _, err := Open(t.Context(), p.options(Options{Node: "host"})); !errors.Is(err, ErrNode) || !strings.Contains(err.Error(), "store.node") {
			t.Errorf("a second daemon of the name: %v", err)
		}
		must(t, first.Write(t.Context(), func(*Tx) error { return nil }))
		must(t, first.Close())
	}
	await(t, "daemon that has the name", func() bool { return p.openBoth(t) > 0 })
}

// openFree opens a DB of the name "host" as soon as the server has ended the session of the one
// before it.
func (p place) openFree(t *testing.T) (db *DB) {
	t.Helper()
	await(t, "free name", func() bool {
		var err error
		if db, err = Open(t.Context(), p.options(Options{Node: "host"})); !errors.Is(err, ErrNode) {
			must(t, err)
		}
		return err == nil
	})
	return db
}

// openBoth opens two DBs of the name "host" at once, and returns how many have it, which is an error
// if both do. None has it while the server still ends the session of an earlier one.
func (p place) openBoth(t *testing.T) int {
	t.Helper()
	var tried sync.WaitGroup
	tried.Add(2)
	var have atomic.Int32
	together(2, func(int) {
		db, err := Open(t.Context(), p.options(Options{Node: "host"}))
		if tried.Done(); err != nil {
			if !errors.Is(err, ErrNode) {
				t.Error(err)
			}
			return
		}
		have.Add(1)
		tried.Wait() // the other one must not get the name after this one
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if have.Load() == 2 {
		t.Error("both have the name")
	}
	return int(have.Load())
}

// A DB whose name went to another one, while the server could not be reached, writes nothing
// until it has the name again.
func TestADaemonWithoutItsNameWritesNothing(t *testing.T) {
	t.Parallel()
	dsn := doortest.Postgres(t)
	proxy, p := newProxy(t, dsn)
	a := p.open(t, Options{Node: "host"})
	must(t, a.Write(t.Context(), put("a", 1)))
	proxy.mode.Store("gone")
	direct := place{dsn: dsn}
	admin := direct.open(t, Options{})
	number(t, admin, `SELECT count(pg_terminate_backend(pid, 1000)) FROM pg_locks
		WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	b := direct.open(t, Options{Node: "host"})
	proxy.mode.Store("")
	await(t, "refusal of a write", func() bool {
		err := a.Write(t.Context(), func(*Tx) error { return nil })
		return errors.Is(err, ErrNode) && errors.Is(err, ErrUnavailable)
	})
	must(t, b.Write(t.Context(), put("b", 1)))
	must(t, b.Close())
	await(t, "write", func() bool { return a.Write(t.Context(), func(*Tx) error { return nil }) == nil })
	if got := keys(t, a); got != "a,b," {
		t.Errorf("there are %s", got)
	}
}

// A DB keeps its name over a lost connection, also when the server has not noticed the loss.
func TestANameOutlivesALostConnection(t *testing.T) {
	t.Parallel()
	wire, p := newWire(t, doortest.Postgres(t))
	db := p.open(t, Options{Node: "host"})
	var e ear
	defer db.Listen(e.hear)()
	other := p.open(t, Options{})
	for i := range 3 {
		topic := strings.Repeat("again", i+1)
		wire.cut()
		await(t, "signal", func() bool {
			_ = other.Write(t.Context(), signals(topic)) // its connections are cut too
			return e.times(topic) > 0
		})
		must(t, db.Write(t.Context(), func(*Tx) error { return nil }))
		if _, err := Open(t.Context(), p.options(Options{Node: "host"})); !errors.Is(err, ErrNode) {
			t.Errorf("a second daemon of the name: %v", err)
		}
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	doortest.Until(t, limit, what, done)
}

// wire carries connections to a server, which does not notice when they are cut.
type wire struct {
	mu      sync.Mutex
	clients []net.Conn
}

func newWire(t *testing.T, dsn string) (*wire, place) {
	p, w := &proxy{}, &wire{}
	p, at := newProxy(t, dsn)
	p.Close() // only its address of the server is used
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", p.server)
			if err != nil {
				client.Close()
				continue
			}
			t.Cleanup(func() { server.Close() })
			w.mu.Lock()
			w.clients = append(w.clients, client)
			w.mu.Unlock()
			go func() { _, _ = io.Copy(server, client) }()
			go func() { _, _ = io.Copy(client, server) }()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_, old, _ := net.SplitHostPort(p.Addr().String())
	return w, place{dsn: strings.Replace(at.dsn, "port="+old, "port="+port, 1)}
}

// cut ends all connections for their clients.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.clients {
		c.Close()
	}
	w.clients = nil
}
