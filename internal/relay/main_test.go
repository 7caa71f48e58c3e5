package relay

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain runs pump if the first argument is "pump": a child that joins its stdio to a
// socket of the test. Otherwise it runs the tests and fails if they leave something behind.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "pump" {
		os.Exit(pump(os.Args[2], os.Args[3:]))
	}
	code := m.Run()
	if left := leaked(); code == 0 && left != "" {
		fmt.Fprintln(os.Stderr, left)
		code = 1
	}
	os.Exit(code)
}

// pump joins standard input and output with a Unix socket. If the socket ends before standard input, the program has
// an error, unless it is to end cleanly.
func pump(socket string, cleanly []string) int {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	asked := make(chan struct{})
	go func() {
		io.Copy(conn, os.Stdin)
		close(asked)
		conn.(*net.UnixConn).CloseWrite()
	}()
	io.Copy(os.Stdout, conn)
	select {
	case <-asked:
		return 0
	default:
	}
	if len(cleanly) > 0 {
		return 0
	}
	return 3
}

// leaked says what is left when every test has closed its house.
func leaked() string {
	var left string
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if left = leftovers(); left == "" {
			return ""
		}
	}
	return left
}

func leftovers() string {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for _, g := range strings.Split(string(buf), "\n\n") {
		if strings.Contains(g, "leaked()") {
			continue
		}
		for _, where := range []string{"internal/relay.", "internal/downstream/front.", "internal/upstream.", "internal/upstream/process.", "net/http."} {
			if strings.Contains(g, where) {
				return "goroutine left over:\n" + g
			}
		}
	}
	if n := openPipesAndSockets(); n > baseline {
		return fmt.Sprintf("%d pipes and sockets left over", n-baseline)
	}
	return ""
}

// baseline is what the process had before the first test.
var baseline = openPipesAndSockets()

func openPipesAndSockets() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0 // not Linux: the goroutines tell most of it
	}
	n := 0
	for _, e := range entries {
		target, _ := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		if strings.HasPrefix(target, "pipe:") || strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

// eventually polls for what another goroutine or process brings about.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("never happened: %s", what)
}
