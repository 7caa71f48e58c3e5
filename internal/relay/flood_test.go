package relay

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
)

// flood is the number of questions that a hostile server asks, and crowd is more goroutines
// than one such server costs, together with the tests that run in parallel.
const flood, crowd = 8000, 4000

// ask returns the n-th question of a flood.
func ask(method string, n int) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"message":"m"}}`, n, method)
}

// flooder starts a program that, once it is connected, asks without end, and reads the answers
// with read. done is closed when it has asked everything, or its pipe is gone.
func flooder(t *testing.T, method string, read func(*bufio.Reader)) (s *script, done chan struct{}) {
	s, done = &script{t: t, name: "s", kind: "stdio", address: filepath.Join(t.TempDir(), "s")}, make(chan struct{})
	l, err := net.Listen("unix", s.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		defer close(done)
		nc, err := l.Accept()
		if err != nil {
			return
		}
		t.Cleanup(func() { nc.Close() })
		in := bufio.NewReader(nc)
		greet(nc, in)
		go read(in)
		for n := range flood {
			if _, err := nc.Write(append(ask(method, n), '\n')); err != nil {
				return
			}
		}
	}()
	return s, done
}

// greet answers a handshake of the legacy era.
func greet(nc net.Conn, in *bufio.Reader) {
	for {
		line, err := in.ReadBytes('\n')
		m, _ := wire.Parse(line, wire.FromClient)
		switch {
		case err != nil || m.Method == "notifications/initialized":
			return
		case m.Method == "initialize":
			fmt.Fprintf(nc, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}`+"\n", m.ID)
		default:
			fmt.Fprintf(nc, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", m.ID)
		}
	}
}

// holder starts a server over HTTP that asks without end during a call, and leaves the POSTs
// of the answers without a response.
func holder(t *testing.T, method string) (s *script, done chan struct{}) {
	s, done = web(t, "s", "legacy"), make(chan struct{})
	s.status = func(q *query) int {
		if q.Kind == wire.Response {
			<-q.ctx.Done()
		}
		return 0
	}
	var once sync.Once
	s.serve = func(q *query) {
		for n := range flood {
			q.emit(ask(method, n))
		}
		once.Do(func() { close(done) })
	}
	return s, done
}

// A server that asks without reading the answers costs a bounded number of goroutines and loses
// its connection, and other servers are served meanwhile.
func TestServerThatAsksWithoutReading(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(*testing.T, string) (*script, chan struct{}){
		"reads nothing": func(t *testing.T, method string) (*script, chan struct{}) {
			return flooder(t, method, func(*bufio.Reader) {})
		},
		"reads slowly": func(t *testing.T, method string) (*script, chan struct{}) {
			return flooder(t, method, func(in *bufio.Reader) {
				for {
					if _, err := in.ReadBytes('\n'); err != nil {
						return
					}
					time.Sleep(5 * time.Millisecond)
				}
			})
		},
		"holds POSTs": holder,
	}
	for kind, start := range kinds {
		for _, method := range []string{"x/y", policy.AskElicitation} {
			for _, client := range []string{"legacy {}", "legacy " + elicits, "modern " + elicits} {
				// One case at a time, because the goroutines of the whole program are counted.
				t.Run(kind+" "+method+" "+client, func(t *testing.T) {
					s, done := start(t, method)
					h := build(t, []Server{s.server(), web(t, "other", "legacy").server()})
					era, caps, _ := strings.Cut(client, " ")
					r := callAs(h, era, caps)
					for asking := true; asking; {
						if n := runtime.NumGoroutine(); n > crowd {
							t.Fatalf("%d goroutines", n)
						}
						select {
						case <-done:
							asking = false
						case <-time.After(5 * time.Millisecond):
						}
					}
					other := h.legacy("/mcp/other", "uid:1000", `{}`)
					equal(t, "another server", code(other.tool("t", "")), "")
					if end := r.end(); code(end) == "" && text(end, "result", "resultType") != "input_required" {
						t.Errorf("the call ended with %s", end)
					}
				})
			}
		}
	}
}

// callAs begins a call of a tool of the server s.
func callAs(h *house, era, caps string) *reply {
	if era == "legacy" {
		return h.legacy("/mcp/s", "uid:1000", caps).begin("tools/call", `{"name":"t"}`)
	}
	m := h.modern("/mcp/s", "uid:1000")
	m.caps = caps
	return m.begin("tools/call", `{"name":"t"}`)
}

// A server that asks many questions at once and reads gets an answer to each.
func TestManyQuestionsAtOnceAreAllAnswered(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		for _, client := range []string{"legacy {}", `modern {"sampling":{}}`} {
			t.Run(kind+" "+client, func(t *testing.T) {
				t.Parallel()
				s := start(t, "s", "legacy")
				s.serve = func(q *query) {
					var all sync.WaitGroup
					for range 200 {
						all.Go(func() { q.ask(policy.AskElicitation, `{"message":"m"}`) })
					}
					all.Wait()
					q.result(`{"answered":true}`)
				}
				h := build(t, []Server{s.server()})
				era, caps, _ := strings.Cut(client, " ")
				equal(t, "all", field(callAs(h, era, caps).end(), "result", "answered"), "true")
			})
		}
	}
}
