//go:build linux

package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// peerThat returns a connection whose peer answers each request with raw bytes.
func peerThat(t *testing.T, answer string) *rawConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			io.Copy(io.Discard, r.Body)
			io.WriteString(c, answer)
		}
	}()
	conn, err := dialRaw(l.Addr().String(), 4<<10)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.close)
	conn.patience(10 * time.Second)
	return conn
}

func TestAnswersAreFramed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("y", 100_000)
	for name, tt := range map[string]struct {
		answer  string
		status  int
		body    string
		session string
	}{
		"length":       {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nMcp-Session-Id: abc\r\n\r\n{}", 200, "{}", "abc"},
		"empty":        {"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", 202, "", ""},
		"none":         {"HTTP/1.1 204 No Content\r\n\r\n", 204, "", ""},
		"interim":      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", 200, "{}", ""},
		"chunks":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\n{\r\n1\r\n}\r\n0\r\nT: v\r\n\r\n", 200, "{}", ""},
		"long":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n" + long + "\r\n0\r\n\r\n", 200, long, ""},
		"event":        {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 31\r\n\r\nid: 1\ndata: {}\n\nevent: x\nid: 2\n", 200, "{}", ""},
		"priming":      {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 26\r\n\r\nid: 1\ndata: \n\ndata: {\"a\"}\n", 200, `{"a"}`, ""},
		"notification": {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 24\r\n\r\ndata: {1}\r\n\r\ndata:{2}\r\n\r", 200, "{2}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := peerThat(t, tt.answer)
			for range 2 { // the second exchange shows that the first read its whole answer
				a, err := conn.post([]byte("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: "), []byte("{}"))
				if err != nil {
					t.Fatal(err)
				}
				if a.Status != tt.status || string(a.Body) != tt.body || a.Session != tt.session {
					t.Errorf("got %.200v, session %q", a, a.Session)
				}
			}
		})
	}
}

func TestAnswersWithoutFramesAreRefused(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
		"ICY 200 OK\r\n\r\n",
	} {
		if a, err := peerThat(t, answer).exchange([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err == nil {
			t.Errorf("%q was taken for %s", answer, a)
		}
	}
}

func TestOnlyTheOwnAnswerCounts(t *testing.T) {
	t.Parallel()
	s := &session{number: 7, calls: 12, text: []byte("session 7 asks for the 12th time")}
	const own = `{"jsonrpc":"2.0","id":12,"result":{"content":[{"type":"text","text":"session 7 asks for the 12th time"}]}}`
	if err := s.check(answer{Status: 200, Body: []byte(own)}, "echo"); err != nil {
		t.Errorf("the own answer: %v", err)
	}
	for name, a := range map[string]answer{
		"another id":    {Status: 200, Body: []byte(strings.Replace(own, `"id":12`, `"id":123`, 1))},
		"no id":         {Status: 200, Body: []byte(strings.Replace(own, `"id":12,`, ``, 1))},
		"another text":  {Status: 200, Body: []byte(strings.Replace(own, "12th", "11th", 1))},
		"a longer text": {Status: 200, Body: []byte(strings.Replace(own, "time", "time!", 1))},
		"an error":      {Status: 200, Body: []byte(`{"jsonrpc":"2.0","id":12,"error":{"code":1503,"message":"busy"}}`)},
		"a bad status":  {Status: 503, Body: []byte(own)},
	} {
		if s.check(a, "echo") == nil {
			t.Errorf("%s was taken for the answer", name)
		}
	}
	if s.check(answer{Status: 200, Body: []byte(own)}, "big") == nil {
		t.Error("a small result was taken for a big one")
	}
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	t.Parallel()
	// The machine was three times as fast in the second round; the path was twice as fast in each.
	base := &cell{Rounds: []window{{PerSecond: 100}, {PerSecond: 300}, {PerSecond: 110}}}
	twice := &cell{Rounds: []window{{PerSecond: 200}, {PerSecond: 600}, {PerSecond: 220}}}
	if got := twice.ratio(base, perSecond); got != 2 {
		t.Errorf("ratio %v, want 2", got)
	}
	if got := twice.ratio(nil, perSecond); got != 0 {
		t.Errorf("ratio to nothing %v, want 0", got)
	}
	if got := twice.median(perSecond); got != 220 {
		t.Errorf("median %v, want 220", got)
	}
}

func TestTargetsAreMissedPassedOrUnknown(t *testing.T) {
	t.Parallel()
	res := &results{
		Load: []cell{
			{Path: pathReverse, Sessions: 64, Rounds: []window{{PerSecond: 100, P50: 10, Proxy: 1, Upstream: 1}}},
			{Path: pathRelay, Sessions: 64, Rounds: []window{{PerSecond: 150}}},
			{Path: pathHTTP, Sessions: 64, Rounds: []window{{PerSecond: 144, P50: 12, Proxy: 0.58, Upstream: 1.5}}},
			{Path: pathShared, Sessions: 64, Rounds: []window{{PerSecond: 220, P50: 5, Proxy: 0.43, Upstream: 0.4}}},
		},
		Openings: []opening{{Path: pathHTTP, Samples: []time.Duration{time.Millisecond}}},
		Idle:     []idleCost{{Path: pathHTTP, Sessions: 1000, Start: memory{RSS: 19_532}, Open: memory{RSS: 19_532 + 30_000}}},
	}
	var report strings.Builder
	printVerdicts(&report, res.judge())
	for _, want := range []string{
		"| HTTP upstream, calls per second, 64 sessions | at least 1.45 | 1.44 | MISS |",
		"| HTTP upstream, calls per second, 64 sessions, of the bare relay | at least 0.98 | 0.96 | MISS |",
		"| HTTP upstream, CPU of the proxy per call, 64 sessions | at most 0.58 | 0.58 | pass |",
		"| stdio upstream, one server for all sessions, calls per second, 64 sessions | at least 2.2 | 2.20 | pass |",
		"| stdio upstream, one server for all sessions, CPU of the proxy per call, 64 sessions | at most 0.42 | 0.43 | MISS |",
		"| opening a session, HTTP upstream | at most 1 ms | 1.00 ms | pass |",
		"| resident memory at rest, HTTP upstream | at most 20 MB | 20.00 MB | MISS |",
		"| resident memory of an idle session with its stream, HTTP upstream | at most 30 KiB | 30.00 KiB | pass |",
		"\n32 targets were not measured in this run.\n",
	} {
		if !strings.Contains(report.String(), want) {
			t.Errorf("no %q in\n%s", want, report.String())
		}
	}
	if n := strings.Count(report.String(), "MISS") + strings.Count(report.String(), "pass"); n != 8 {
		t.Errorf("%d verdicts, want 8", n)
	}
}

// TestReverseProxyPassesBothWaysAtOnce: the reverse proxy of the comparison runs in full duplex, so an answer
// may begin before the request has ended. Without that, calls to fast upstreams fail now and then.
func TestReverseProxyPassesBothWaysAtOnce(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		http.NewResponseController(w).Flush()
		io.Copy(w, r.Body)
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(newReverseProxy(target))
	defer proxy.Close()
	conn, err := dialRaw(proxy.Listener.Addr().String(), 4<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	conn.patience(10 * time.Second)
	io.WriteString(conn.c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
	h, err := conn.readHead()
	if err != nil {
		t.Fatalf("no answer before the end of the request: %v", err)
	}
	io.WriteString(conn.c, "cd")
	if err := conn.readBody(h); err != nil || string(conn.body) != "abcd" {
		t.Errorf("the answer is %q, %v", conn.body, err)
	}
}

func TestStallsAreReported(t *testing.T) {
	t.Parallel()
	var report strings.Builder
	printStalls(&report, []cell{{Path: pathStdio, Sessions: 1, Tool: "echo", Rounds: []window{{Longest: time.Second}, {Longest: 59 * time.Second}}}})
	if got, want := report.String(), "\nSTALL: doorward stdio, 1 sessions, echo, round 2: an answer took 59s.\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestClocksCountOwnWork(t *testing.T) {
	t.Parallel()
	before, err := cpuTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	spent := before
	for deadline := time.Now().Add(10 * time.Second); spent-before < 20*time.Millisecond; {
		if time.Now().After(deadline) {
			t.Fatalf("ten seconds of work count as %v", spent-before)
		}
		if spent, err = cpuTime(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := cpuTime(1 << 27); err == nil {
		t.Error("a process that does not exist has a clock")
	}
}

func TestEndedStreamsAreNoticed(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	s := &session{stream: &rawConn{c: ours, in: bufio.NewReader(ours)}}
	if !s.streamAlive() {
		t.Error("an open stream counts as ended")
	}
	theirs.Close()
	if s.streamAlive() {
		t.Error("an ended stream counts as open")
	}
	if stillServed([]*session{s}) == nil {
		t.Error("sessions whose stream has ended count as served")
	}
}
