package peer

import (
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/test/puppet"
)

func newWatcher(t testing.TB) *Watcher {
	t.Helper()
	w, err := NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func TestTheEndOfAConnectorIsToldOnce(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	ln, path := unixListener(t)
	var told [3]atomic.Int32
	var all []puppet.Puppet
	for i := range told {
		p := puppet.New(t, nil, path)
		all = append(all, p)
		creds, err := attest.OfUnix(puppet.AcceptUnix(t, ln))
		if err != nil {
			t.Fatal(err)
		}
		defer creds.Close()
		if err := w.Watch(creds, func() { told[i].Add(1) }); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			creds.Close() // ends the watch
		}
	}
	all[2].End()
	all[0].Do(t, "heir") // its child keeps the connection: the connector's end counts
	puppet.Eventually(t, "the first is told of", func() bool { return told[0].Load() == 1 })
	if told[1].Load() != 0 {
		t.Error("told of a connector that runs")
	}
	all[1].End()
	puppet.Eventually(t, "the second is told of", func() bool { return told[1].Load() == 1 })
	if told[0].Load() != 1 || told[2].Load() != 0 {
		t.Errorf("told of the first %d times, and %d times after the watch", told[0].Load(), told[2].Load())
	}
	if len(w.waits) != 0 {
		t.Errorf("%d watches are left", len(w.waits))
	}
}

func TestAnEndBeforeTheWatchIsToldToo(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	ln, path := unixListener(t)
	p := puppet.New(t, nil, path)
	creds, err := attest.OfUnix(puppet.AcceptUnix(t, ln))
	if err != nil {
		t.Fatal(err)
	}
	defer creds.Close()
	p.End()
	told := make(chan struct{})
	if err := w.Watch(creds, func() { close(told) }); err != nil {
		t.Fatal(err)
	}
	select {
	case <-told:
	case <-time.After(30 * time.Second):
		t.Error("the end was not reported")
	}
}

// A watcher uses one goroutine for any number of processes, and leaves no goroutine and no
// descriptor after Close.
func TestAWatcherLeavesNothing(t *testing.T) {
	ln, _ := unixListener(t)
	descriptors, goroutines := openDescriptors(t), runtime.NumGoroutine()
	w, err := NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	var all []*attest.Credentials
	for range 200 {
		client, err := connectRaw(ln)
		if err != nil {
			t.Fatal(err)
		}
		conn := puppet.AcceptUnix(t, ln)
		creds, err := attest.OfUnix(conn)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		unix.Close(client)
		all = append(all, creds)
		if err := w.Watch(creds, func() { t.Error("the end of a living process was reported") }); err != nil {
			t.Fatal(err)
		}
	}
	if n := runtime.NumGoroutine(); n > goroutines+1 {
		t.Errorf("%d goroutines more", n-goroutines)
	}
	for _, c := range all {
		c.Close()
	}
	if len(w.waits) != 0 {
		t.Errorf("%d watches are left", len(w.waits))
	}
	w.Close()
	puppet.Eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
	if n := openDescriptors(t); n > descriptors {
		t.Errorf("%d descriptors are left", n-descriptors)
	}
	if err := w.Watch(&attest.Credentials{}, nil); err != nil {
		t.Errorf("nothing to watch: %v", err)
	}
}

// connectRaw connects without the runtime's poller.
func connectRaw(ln net.Listener) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	return fd, unix.Connect(fd, &unix.SockaddrUnix{Name: ln.Addr().String()})
}

func openDescriptors(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
