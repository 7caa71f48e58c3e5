package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/client"
)

// legacyDaemon answers a legacy client on a socket. A tools/call ends without an answer, as a
// cancelled one does, once it is cancelled; begin writes what the client gets before that.
type legacyDaemon struct {
	version   string
	begin     func(http.ResponseWriter)
	cancelled chan struct{}
	resumed   atomic.Int32 // streams that the client resumed
}

func (d *legacyDaemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
	}
	if r.Method != http.MethodPost {
		if r.Header.Get("Last-Event-Id") != "" {
			d.resumed.Add(1)
		}
		w.Header().Set("Content-Type", "text/event-stream") // it has no more events
		return
	}
	json.NewDecoder(r.Body).Decode(&m)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case m.Method == "initialize":
		w.Header().Set("Mcp-Session-Id", "s1")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":{}}}`, m.ID, d.version)
	case m.Method == "tools/call":
		d.begin(w)
		<-d.cancelled
	case m.Method == "notifications/cancelled":
		w.WriteHeader(http.StatusAccepted)
		select {
		case <-d.cancelled:
		default:
			close(d.cancelled)
		}
	case len(m.ID) == 0:
		w.WriteHeader(http.StatusAccepted)
	default:
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
	}
}

// served serves h on a socket until the test ends.
func served(t *testing.T, h http.Handler) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return socket
}

// connected serves h on a socket, and returns the ends of a client of Connect.
func connected(t *testing.T, h http.Handler) (write func(line string), read func() string) {
	t.Helper()
	socket := served(t, h)
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	go func() {
		client.Connect(context.Background(), client.New(socket, "test"),
			client.ConnectOptions{In: in, Out: out, Log: slog.New(slog.DiscardHandler)})
		out.Close()
	}()
	t.Cleanup(func() { stdin.Close(); io.Copy(io.Discard, stdout) })
	lines := bufio.NewScanner(stdout)
	return func(line string) { io.WriteString(stdin, line+"\n") }, func() string { lines.Scan(); return lines.Text() }
}

const greeting = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

// TestACancelledRequestHasNoAnswer: a client that has cancelled a request gets no answer to
// it, whatever it had of the answer before (Cancellation, "Behavior Requirements").
func TestACancelledRequestHasNoAnswer(t *testing.T) {
	t.Parallel()
	progress := "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1,\"progress\":1}}\n\n"
	stream := func(events string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, events)
			http.NewResponseController(w).Flush()
		}
	}
	for name, begin := range map[string]func(http.ResponseWriter){
		"events without ids": stream(progress),
		"events with ids":    stream("id: 1-1\n" + progress),
		"primed":             stream("id: 1-0\nretry: 500\ndata: \n\n" + "id: 1-1\n" + progress),
	} {
		for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
			t.Run(name+" "+version, func(t *testing.T) {
				t.Parallel()
				d := &legacyDaemon{version: version, begin: begin, cancelled: make(chan struct{})}
				write, read := connected(t, d)
				write(fmt.Sprintf(greeting, version))
				read()
				write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
				write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":1}}}`)
				if got := read(); !strings.Contains(got, "notifications/progress") {
					t.Fatalf("before the cancellation: %s", got)
				}
				write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
				<-d.cancelled
				quiet := time.After(time.Second) // an answer to 1 would be here soon
				for id := 2; ; id++ {
					write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, id))
					if got, want := read(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id); got != want {
						t.Fatalf("after the cancellation: %s, want %s", got, want)
					}
					select {
					case <-quiet:
						if n := d.resumed.Load(); n > 0 {
							t.Errorf("the stream of the request was resumed %d times", n)
						}
						return
					case <-time.After(50 * time.Millisecond):
					}
				}
			})
		}
	}
}

// TestAnArrayIsTakenWhereItsVersionHasArrays: each request of an array is answered in a session
// of 2025-03-26; in all others, and with an initialize in it, the array is refused as one.
func TestAnArrayIsTakenWhereItsVersionHasArrays(t *testing.T) {
	t.Parallel()
	const refused = `{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid request"}}`
	pings := `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":"b","method":"ping"}]`
	both := []string{`{"jsonrpc":"2.0","id":"b","result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`}
	for _, c := range []struct {
		version, line string
		want          []string
	}{
		{"2025-03-26", pings, both},
		{"2025-03-26", "[" + fmt.Sprintf(greeting, "2025-03-26") + "]", []string{refused}},
		{"2025-03-26", "[]", []string{refused}},
		{"2024-11-05", pings, []string{refused}},
		{"2025-06-18", pings, []string{refused}},
		{"2025-11-25", pings, []string{refused}},
	} {
		write, read := connected(t, &legacyDaemon{version: c.version})
		write(fmt.Sprintf(greeting, c.version))
		read()
		write(c.line)
		var got []string
		for range c.want {
			got = append(got, read())
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s %s: got %q, want %q", c.version, c.line, got, c.want)
		}
	}
}
