package upstream

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/upstream/egress"
)

// The benchmarks compare a call through this package with the least that any
// client must do: the same server, the same bytes. Servers are processes of
// their own, so that cpu-ns/op is the client's work alone.

// quickServer answers each line at once, without looking at more than the id.
func quickServer() int {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<16), bufio.NewWriterSize(os.Stdout, 1<<16)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0
		}
		switch {
		case bytes.Contains(line, []byte(`"method":"initialize"`)):
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}`+"\n", rawID(line))
		case bytes.Contains(line, []byte(`"id":`)):
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", rawID(line), quickResult)
		}
		out.Flush()
	}
}

var quickResult = `{"content":[{"type":"text","text":"` + strings.Repeat("lorem ipsum ", 20) + `"}]}`

func rawID(line []byte) []byte {
	_, rest, _ := bytes.Cut(line, []byte(`"id":`))
	id, _, _ := bytes.Cut(rest, []byte(`,`))
	return id
}

// quickWeb answers each POST at once and prints its address.
func quickWeb(mode string) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 1
	}
	fmt.Println("http://" + l.Addr().String() + "/mcp")
	go func() { // ends with the process that started it
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && mode == "quick-listen" {
			events(w)
			<-r.Context().Done()
			return
		}
		body, _ := io.ReadAll(r.Body)
		result := quickResult
		switch {
		case bytes.Contains(body, []byte(`"method":"initialize"`)):
			w.Header()[headerSession] = []string{"s"}
			result = `{"protocolVersion":"2025-11-25","capabilities":{}}`
		case bytes.Contains(body, []byte(`"method":"server/discover"`)):
			result = `{"supportedVersions":["2026-07-28"]}`
		case !bytes.Contains(body, []byte(`"id":`)):
			w.WriteHeader(202)
			return
		}
		answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, rawID(body), result)
		if mode == "quick-events" {
			w.Header()["Content-Type"] = []string{"text/event-stream"}
			answer = "event: message\ndata: " + answer + "\n\n"
		} else {
			w.Header()["Content-Type"] = []string{"application/json"}
		}
		io.WriteString(w, answer)
	}))
	return 0
}

func startQuickWeb(b testing.TB, mode string) (url string) {
	cmd := exec.Command(self(b), "fake-server", mode)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// cpuTime is what this process has used, user and system.
func cpuTime() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

func measure(b *testing.B, f func()) {
	b.Helper()
	f()
	runtime.GC()
	b.ReportAllocs()
	b.ResetTimer()
	start := cpuTime()
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64(cpuTime()-start)/float64(b.N), "cpu-ns/op")
}

const benchParams = `{"name":"echo","arguments":{"city":"Bern","days":3,"units":"metric"},"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}`

func BenchmarkStdioBarePipes(b *testing.B) {
	cmd := exec.Command(self(b), "fake-server", "quick")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { in.Close(); cmd.Wait() }()
	r := bufio.NewReaderSize(out, 1<<16)
	line := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":` + benchParams + "}\n")
	measure(b, func() {
		if _, err := in.Write(line); err != nil {
			b.Fatal(err)
		}
		if _, err := r.ReadSlice('\n'); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkStdioCall(b *testing.B) {
	for _, limit := range []time.Duration{0, time.Minute} {
		b.Run("timeout="+limit.String(), func(b *testing.B) {
			s := fake(b, "quick", func(d *Definition, _ *Deps) { d.Timeout = limit })
			c := dialLegacy(b, s, nil)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			r := &Request{Method: "tools/call", Params: []byte(benchParams)}
			measure(b, func() {
				if _, err := c.Call(ctx, r, nil); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

func BenchmarkHTTPBareClient(b *testing.B) {
	for _, mode := range []string{"quick-web", "quick-events"} {
		b.Run(mode, func(b *testing.B) {
			url := startQuickWeb(b, mode)
			client := egress.NewClient(egress.Options{AllowPrivate: true})
			defer client.CloseIdleConnections()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			line := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":` + benchParams + "}")
			measure(b, func() {
				req, err := http.NewRequestWithContext(ctx, "POST", url, bytes.NewReader(line))
				if err != nil {
					b.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Accept", "application/json, text/event-stream")
				req.Header.Set("Mcp-Session-Id", "s")
				req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
				resp, err := client.Do(req)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadAll(resp.Body); err != nil {
					b.Fatal(err)
				}
				resp.Body.Close()
			})
		})
	}
}

func BenchmarkHTTPCall(b *testing.B) {
	for _, mode := range []string{"quick-web", "quick-events"} {
		for _, era := range []string{"legacy", "modern"} {
			b.Run(mode+"/"+era, func(b *testing.B) {
				s := webServer(b, startQuickWeb(b, mode), func(d *Definition, _ *Deps) { d.Timeout = time.Minute })
				dial, params := dialLegacy, benchParams
				if era == "modern" {
					dial = dialModern
					params = strings.Replace(params, `"_meta":{`, `"_meta":`+modernMeta[:len(modernMeta)-1]+`,`, 1)
				}
				c := dial(b, s, nil)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				r := &Request{Method: "tools/call", Params: []byte(params)}
				measure(b, func() {
					if _, err := c.Call(ctx, r, nil); err != nil {
						b.Fatal(err)
					}
				})
			})
		}
	}
}
