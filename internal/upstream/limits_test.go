package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/overload"
)

// Each time limit ends the waiting that it is for, as a timeout, cancels the call at the server and does not
// open the circuit. A slow answer that is heard of in time is not ended.
func TestTimeLimits(t *testing.T) {
	t.Parallel()
	const short, long = 1600 * time.Millisecond, 30 * time.Second
	change := func(f *fakeWeb) {
		f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
			if m.Method != "tools/call" {
				return false
			}
			switch string(m.Params) {
			case `{"name":"silent","arguments":{}}`: // a header, and nothing more
				events(w)
				<-r.Context().Done()
			case `{"name":"half","arguments":{}}`:
				w.Header().Set("Content-Type", "application/json")
				w.Write([]byte(`{"jsonrpc":`))
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			case `{"name":"alive","arguments":{}}`: // slow, and heard of all the time
				write := events(w)
				for range 10 {
					time.Sleep(short / 4)
					write(": still here\n\n")
				}
				write("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"text\":\"done\"}}\n\n", m.ID)
			default:
				<-r.Context().Done()
			}
			return true
		}
	}
	for name, c := range map[string]struct {
		set  func(*Definition)
		tool string
		ok   bool
	}{
		"first byte":                   {func(d *Definition) { d.FirstByte = short }, "hang", false},
		"first byte of one that began": {func(d *Definition) { d.FirstByte = short }, "alive", true},
		"idle stream":                  {func(d *Definition) { d.Idle = short }, "silent", false},
		"idle body":                    {func(d *Definition) { d.Idle = short }, "half", false},
		"slow and heard of":            {func(d *Definition) { d.Idle = short }, "alive", true},
		"total":                        {func(d *Definition) { d.Timeout, d.Idle = short, long }, "alive", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeWeb(t, change)
			s := f.server(func(d *Definition, _ *Deps) { c.set(d) })
			conn := dialInTime(t, s)
			start := time.Now()
			_, err := conn.Call(testContext(t), tool(c.tool), nil)
			for tries := 1; c.ok && err != nil && tries < 4; tries++ { // a busy machine lets nothing be heard for longer
				start = time.Now()
				_, err = conn.Call(testContext(t), tool(c.tool), nil)
			}
			if c.ok && err != nil || !c.ok && (!errors.Is(err, ErrTimeout) || wrapped(err) != 1) || time.Since(start) > long/2 {
				t.Errorf("%v after %s", err, time.Since(start))
			}
			if !c.ok { // the server is told
				eventually(t, "the cancellation", func() bool { return len(f.methods(methodCancelled)) == 1 })
				if call, told := f.methods("tools/call")[0], f.methods(methodCancelled)[0]; !bytes.Contains(told.Params, append([]byte(`"requestId":`), call.ID...)) {
					t.Errorf("cancelled %s, of %s", told.Params, call.ID)
				}
			}
			if open, _ := s.Circuit(); open {
				t.Error("the circuit is open")
			}
		})
	}
}

// A connection whose TLS handshake is not answered fails in its time, and counts as a failure to connect.
func TestConnectLimit(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	s := webServer(t, "https://"+silent.Addr().String()+"/mcp", func(d *Definition, _ *Deps) { d.Connect = 50 * time.Millisecond })
	start := time.Now()
	if _, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil); !errors.Is(err, ErrNotSent) || time.Since(start) > 5*time.Second+overload.Late() {
		t.Errorf("%v after %s", err, time.Since(start))
	}
	if n, _, _ := s.circuit.open(time.Now()); n != 1 {
		t.Errorf("%d failures to connect", n)
	}
}

// On a stream that calls share, the limit for silence holds for each call. A message of the server about the
// call begins the time anew.
func TestSilenceOnASharedStream(t *testing.T) {
	t.Parallel()
	s := fake(t, "plain", func(d *Definition, _ *Deps) { d.Idle = 6 * slowProgress / 2 })
	c := dialInTime(t, s)
	if _, err := c.Call(testContext(t), tool("hang"), nil); !errors.Is(err, ErrTimeout) {
		t.Errorf("a silent call: %v", err)
	}
	r := tool("slow-progress")
	r.ProgressToken = []byte(`"p"`)
	slow := func() (heard int, err error) {
		var all recorder
		_, err = c.Call(testContext(t), r, all.on)
		return all.count(methodProgress), err
	}
	heard, err := slow()
	for tries := 1; err != nil && tries < 4; tries++ { // a busy machine lets nothing be heard for longer
		heard, err = slow()
	}
	if err != nil || heard != 6 {
		t.Errorf("a call that is heard of: %v after %d", err, heard)
	}
}

// Streams held open beside the calls have a limit of their own: a dial beyond it is refused at once, and a
// listen beyond it opens none.
func TestCapOnStreams(t *testing.T) {
	t.Parallel()
	f := newFakeEvents(t, announced)
	s := f.server(func(d *Definition, _ *Deps) { d.MaxStreams = 2 })
	one, _ := dialLegacy(t, s, nil), dialLegacy(t, s, nil)
	if _, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil); !errors.Is(err, ErrStreams) || wrapped(err) != 1 {
		t.Errorf("a third: %v", err)
	}
	one.Close()
	waitDone(t, one)
	dialLegacy(t, s, nil)

	g := newFakeWeb(t, func(f *fakeWeb) {
		f.stream = func(w http.ResponseWriter, r *http.Request) {
			events(w)
			<-r.Context().Done()
		}
	})
	var log safeBuffer
	w := g.server(func(d *Definition, deps *Deps) { d.MaxStreams, deps.Log = 2, slog.New(slog.NewTextHandler(&log, nil)) })
	for range 5 {
		dialLegacy(t, w, nil).Listen()
	}
	opened := func() int { return len(g.requests(func(s seen) bool { return s.httpMethod == http.MethodGet })) }
	eventually(t, "two streams and three refusals", func() bool {
		return w.streams.Load() == 2 && opened() >= 2 && strings.Count(log.String(), "no stream for messages") == 3
	})
	if n := opened(); n != 2 {
		t.Errorf("%d streams were opened", n)
	}
}

// A standing stream on which nothing comes is opened again.
func TestIdleStandingStream(t *testing.T) {
	t.Parallel()
	g := newFakeWeb(t, func(f *fakeWeb) {
		f.stream = func(w http.ResponseWriter, r *http.Request) {
			write := events(w)
			write("retry: %d\nid: 7\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n", minRetry.Milliseconds())
			<-r.Context().Done()
		}
	})
	s := g.server(func(d *Definition, _ *Deps) { d.Idle = 50 * time.Millisecond })
	dialLegacy(t, s, nil).Listen()
	opened := func() []seen { return g.requests(func(s seen) bool { return s.httpMethod == http.MethodGet }) }
	eventually(t, "a third stream", func() bool { return len(opened()) >= 3 })
	if got := fmt.Sprint(opened()[1].header[headerLastEvent]); got != "[7]" {
		t.Errorf("it resumed behind %s", got)
	}
}

// The time that the answer to a question takes counts against no limit of the call. Afterwards the limits
// hold again.
func TestAnswersTakeNoTimeOfACall(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	change := func(f *fakeWeb) {
		answered := make(chan struct{}, 8)
		f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
			switch {
			case m.Method == "" && m.ID != nil:
				answered <- struct{}{}
			case m.Method == "tools/call":
				send := events(w)
				send("data: {\"jsonrpc\":\"2.0\",\"id\":\"e-1\",\"method\":\"elicitation/create\",\"params\":{\"message\":\"who?\"}}\n\n")
				<-answered
				if bytes.Contains(m.Params, []byte(`elicit-hang`)) {
					<-r.Context().Done()
					return true
				}
				send("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"text\":\"done\"}}\n\n", m.ID)
				return true
			}
			return false
		}
	}
	for name, set := range map[string]func(*Definition, *Deps){
		"total":   func(d *Definition, _ *Deps) { d.Timeout = limit },
		"silence": func(d *Definition, _ *Deps) { d.Idle = limit },
		"both":    func(d *Definition, _ *Deps) { d.Timeout, d.Idle = 2*limit, limit },
	} {
		for kind, s := range map[string]*Server{"stdio": fake(t, "plain", set), "http": newFakeWeb(t, change).server(set)} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				c := dialInTime(t, s)
				answer := func(ev Event) {
					go func() {
						time.Sleep(2*limit + limit/2) // longer than each of the limits
						if err := c.Answer(context.Background(), ev.ID, Reply{Result: []byte(`{"action":"accept"}`)}); err != nil {
							t.Error(err)
						}
					}()
				}
				if _, err := c.Call(testContext(t), tool("elicit"), answer); err != nil {
					t.Errorf("a slow answer: %v", err)
				}
				hang := tool("elicit-hang")
				if _, err := c.Call(testContext(t), hang, answer); !errors.Is(err, ErrTimeout) {
					t.Errorf("a call that hangs behind its answer: %v", err)
				}
			})
		}
	}
}
