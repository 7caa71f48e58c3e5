package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/test/doortest"
)

func TestHTTPLegacySession(t *testing.T) {
	t.Parallel()
	f := newFakeWeb(t, nil)
	s := f.server(func(d *Definition, _ *Deps) {
		d.Headers = http.Header{"authorization": {"Bearer secret"}, "X-Two": {"a", "b"}, "Mcp-Session-Id": {"forged"}, "Mcp-Name": {"forged"}}
	})
	c, result, err := s.DialLegacy(testContext(t), []byte(initParams), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if v, _ := rawjson.GetString(result, "protocolVersion"); v != protocol.V20251125 {
		t.Errorf("result %s", result)
	}
	params := `{"name":"echo", "arguments":{"n":9007199254740993,"f":1.0,"z":{"b":1,"a":2}}}`
	reply := mustCall(t, c, &Request{
		Method: "tools/call", Params: []byte(params),
		Headers: http.Header{"Mcp-Param-City": {"Bern"}, "Cookie": {"c=1"}},
	}, nil)
	if string(reply.Result) != params {
		t.Errorf("got  %s\nwant %s", reply.Result, params)
	}
	if init := f.methods(methodInitialize); len(init) != 1 || string(init[0].Params) != initParams || init[0].header.Get(headerSession) != "" || init[0].header.Get(headerVersion) != "" {
		t.Errorf("initialize: %+v", init)
	}
	for _, method := range []string{methodInitialized, "tools/call"} {
		got := f.methods(method)
		if len(got) != 1 {
			t.Fatalf("%d × %s", len(got), method)
		}
		want := http.Header{
			"Authorization": {"Bearer secret"}, "X-Two": {"a", "b"}, headerSession: {"session-1"}, headerVersion: {"2025-11-25"},
			"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "User-Agent": {"doorward/1.0"},
		}
		delete(got[0].header, "Content-Length")
		if fmt.Sprint(got[0].header) != fmt.Sprint(want) {
			t.Errorf("%s: header %v\nwant %v", method, got[0].header, want)
		}
	}
}

func TestHTTPEventStreamAnswer(t *testing.T) {
	t.Parallel()
	var c Conn
	var token atomic.Value
	answered := make(chan string, 2)
	f := newFakeWeb(t, func(f *fakeWeb) {
		f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
			switch {
			case m.Method == "":
				answered <- string(m.ID)
			case m.Method == "tools/call":
				token.Store(rawjson.GetPath(m.Params, "_meta", "progressToken"))
				send := events(w)
				send("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\ndata: \"params\":{\"progressToken\":%s,\"progress\":1}}\n\n", token.Load())
				send("event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"sampling/createMessage\",\"params\":{}}\n\n")
				send("data: {\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}\n\n")
				<-answered
				<-answered
				send("event: other\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"text\":\"no\"}}\n\n", m.ID)
				send("data: {\"jsonrpc\":\"2.0\",\"id\":987654,\"result\":{\"text\":\"no\"}}\n\n")
				send("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"text\":\"yes\"}}\n\n", m.ID)
				return true
			}
			return false
		}
	})
	s := f.server()
	c = dialLegacy(t, s, func(ev Event) { t.Errorf("on the connection: %+v", ev) })
	var got recorder
	r := tool("echo")
	r.ProgressToken = []byte(`"mine"`)
	reply := mustCall(t, c, r, func(ev Event) {
		got.on(ev)
		if ev.ID != nil {
			if err := c.Answer(context.Background(), ev.ID, Reply{Result: []byte(`{"model":"none"}`)}); err != nil {
				t.Error(err)
			}
		}
	})
	if text(t, reply) != "yes" {
		t.Errorf("reply %s", reply.Result)
	}
	all := got.all()
	if len(all) != 2 || string(all[0].Params) != "{\"progressToken\":\"mine\",\"progress\":1}" || all[1].Method != "sampling/createMessage" || string(all[1].ID) != `"q"` {
		t.Errorf("events %+v", all)
	}
	if string(token.Load().([]byte)) == `"mine"` {
		t.Error("the client's token went upstream")
	}
	if n := s.Counts().Unknown; n != 1 {
		t.Errorf("%d unknown answers counted", n)
	}
}

// TestHTTPAfterDone: a function that waits for the end of a connection is called once, whether the connection is closed,
// its session is gone, or it had ended before.
func TestHTTPAfterDone(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(Conn){
		"closed":           func(c Conn) { c.Close() },
		"the session ends": func(c Conn) { c.(*httpConn).fail(errClosed) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _, err := newFakeWeb(t, nil).server().DialLegacy(testContext(t), []byte(initParams), nil)
			if err != nil {
				t.Fatal(err)
			}
			called := make(chan string, 9)
			c.(*httpConn).AfterDone(func() { called <- "before" })
			select {
			case <-called:
				t.Fatal("called while the connection is open")
			default:
			}
			end(c)
			c.Close()
			if got := <-called; got != "before" {
				t.Errorf("got %q", got)
			}
			<-c.Done()
			c.(*httpConn).AfterDone(func() { called <- "after" })
			if got := <-called; got != "after" || len(called) > 0 {
				t.Errorf("got %q and %d more", got, len(called))
			}
		})
	}
}

// A caller leaves as soon as it has its answer, and a server ends the stream of the answer a moment later. The connection
// is used again all the same.
func TestHTTPConnectionOfAnAnswerIsKept(t *testing.T) {
	t.Parallel()
	left := make(chan bool)
	f := newFakeWeb(t, func(f *fakeWeb) {
		f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
			if m.Method != "tools/call" {
				return false
			}
			events(w)("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", m.ID)
			<-left // then the stream ends
			return true
		}
	})
	server := f.server()
	c, _, err := server.DialLegacy(testContext(t), []byte(initParams), nil)
	if err != nil {
		t.Fatal(err)
	}
	before := f.connections()
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := c.Call(ctx, &Request{Method: "tools/call", Params: []byte(`{}`)}, nil); err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(5 * time.Millisecond) // what the caller's leaving does has been done
		left <- true
	}
	if n := f.connections() - before; n > 4 { // a call may come before the end of the stream before it
		t.Errorf("%d new connections for 10 calls", n)
	}
}

func TestHTTPStatuses(t *testing.T) {
	t.Parallel()
	own := `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32602,"message":"own"}}`
	foreign := `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"foreign"}}`
	old := `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`
	for _, tc := range []struct {
		status  int
		body    string
		session string
		want    error // nil: a reply with the error
	}{
		{400, own, "s", nil},
		{500, own, "s", nil},
		{400, foreign, "s", ErrProtocol},
		{400, "text", "s", ErrProtocol},
		{401, own[:0], "s", ErrProtocol},
		{403, foreign, "s", ErrProtocol},
		{404, "", "s", ErrSession},
		{404, foreign, "s", ErrSession},
		{404, "", "", ErrProtocol},
		{400, old, "s", ErrSession},
		{400, old, "", ErrProtocol},
		{409, "", "s", ErrProtocol},
		{429, "", "s", ErrNotSent},
		{503, foreign, "s", ErrNotSent},
		{500, "", "s", ErrLost},
		{502, "", "s", ErrLost},
		{202, "", "s", ErrProtocol},
		{200, "", "s", ErrProtocol},
		{200, `{"jsonrpc":"2.0","id":$ID,"result":{"a":1,"a":2}}`, "s", ErrProtocol},
		{200, `{"jsonrpc":"2.0","id":4242,"result":{}}`, "s", ErrProtocol},
		{200, `[{"jsonrpc":"2.0","id":$ID,"result":{}}]`, "s", ErrProtocol},
	} {
		t.Run(fmt.Sprint(tc.status, tc.body, tc.session), func(t *testing.T) {
			t.Parallel()
			f := newFakeWeb(t, func(f *fakeWeb) {
				f.session = tc.session
				f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
					if m.Method != "tools/call" {
						return false
					}
					writeJSON(w, tc.status, strings.ReplaceAll(tc.body, "$ID", string(m.ID)))
					return true
				}
			})
			c := dialLegacy(t, f.server(), nil)
			reply, err := c.Call(testContext(t), tool("echo"), nil)
			if tc.want == nil {
				if err != nil || reply.Error == nil || reply.Error.Code != codeInvalidParams {
					t.Errorf("got %+v, %v", reply, err)
				}
				return
			}
			if !errors.Is(err, tc.want) || wrapped(err) != 1 {
				t.Errorf("got %v", err)
			}
			if tc.want == ErrSession {
				waitDone(t, c)
				if _, err := c.Call(testContext(t), tool("echo"), nil); !errors.Is(err, ErrSession) {
					t.Errorf("afterwards: %v", err)
				}
			}
		})
	}
}

// wrapped counts the sentinels that err wraps: callers switch on them.
func wrapped(err error) (n int) {
	for _, s := range []error{ErrNotSent, ErrLost, ErrSession, ErrEra, ErrBusy, ErrProtocol, ErrTooLarge, ErrTimeout, ErrOpen, ErrSignIn, ErrStreams} {
		if errors.Is(err, s) {
			n++
		}
	}
	return n
}

func TestHTTPNotificationStatuses(t *testing.T) {
	t.Parallel()
	var status atomic.Int32
	f := newFakeWeb(t, func(f *fakeWeb) {
		f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
			if s := status.Load(); s != 0 {
				w.WriteHeader(int(s))
			}
			return status.Load() != 0
		}
	})
	c := dialLegacy(t, f.server(), nil)
	for s, want := range map[int32]error{202: nil, 200: nil, 204: nil, 503: ErrNotSent, 500: ErrLost, 302: ErrProtocol} {
		status.Store(s)
		err := c.Notify(testContext(t), "notifications/roots/list_changed", nil)
		if !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%d: %v", s, err)
		}
	}
}

func TestHTTPRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer other.Close()
	f := newFakeWeb(t, func(f *fakeWeb) {
		f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
			return true
		}
	})
	_, _, err := f.server(func(d *Definition, _ *Deps) { d.Headers = http.Header{"Authorization": {"Bearer s"}} }).DialLegacy(testContext(t), []byte(initParams), nil)
	if !errors.Is(err, ErrProtocol) || hits.Load() != 0 {
		t.Errorf("%v, %d requests at the other host", err, hits.Load())
	}
}

func TestHTTPSessionIDThatChanges(t *testing.T) {
	t.Parallel()
	f := newFakeWeb(t, func(f *fakeWeb) {
		f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
			if m.Method == "tools/call" {
				w.Header().Set(headerSession, "session-2")
			}
			return false
		}
	})
	c := dialLegacy(t, f.server(), nil)
	if _, err := c.Call(testContext(t), tool("echo"), nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("got %v", err)
	}
	waitDone(t, c)
}

func TestHTTPSessionIDThatIsUnusable(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"with space", "tab\there", "é", strings.Repeat("x", maxSessionID+1)} {
		f := newFakeWeb(t, func(f *fakeWeb) { f.session = id })
		if _, _, err := f.server().DialLegacy(testContext(t), []byte(initParams), nil); !errors.Is(err, ErrProtocol) {
			t.Errorf("%.20q: %v", id, err)
		}
	}
	for _, id := range []string{"a.b.c", "!~", strings.Repeat("x", maxSessionID)} {
		f := newFakeWeb(t, func(f *fakeWeb) { f.session = id })
		c := dialLegacy(t, f.server(), nil)
		mustCall(t, c, tool("echo"), nil)
		if got := f.methods("tools/call")[0].header.Get(headerSession); got != id {
			t.Errorf("sent %q", got)
		}
	}
}

func TestHTTPSizes(t *testing.T) {
	t.Parallel()
	const limit = 2 << 20
	body := func(id string, n int) string {
		head, tail := `{"jsonrpc":"2.0","id":`+id+`,"result":{"text":"`, `"}}`
		return head + strings.Repeat("a", n-len(head)-len(tail)) + tail
	}
	for _, n := range []int{1000, trusted, trusted + 1, limit - 1, limit, limit + 1} {
		for _, how := range []string{"length", "chunked", "events"} {
			t.Run(fmt.Sprint(how, n), func(t *testing.T) {
				t.Parallel()
				f := newFakeWeb(t, func(f *fakeWeb) {
					f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
						if m.Method != "tools/call" {
							return false
						}
						b := body(string(m.ID), n)
						switch how {
						case "length":
							w.Header().Set("Content-Length", fmt.Sprint(n))
							writeJSON(w, 200, b)
						case "chunked":
							w.Header().Set("Content-Type", "application/json")
							w.(http.Flusher).Flush()
							io.WriteString(w, b)
						default:
							events(w)("data: %s\n\n", b)
						}
						return true
					}
				})
				c := dialLegacy(t, f.server(func(d *Definition, _ *Deps) { d.MaxMessage = limit }), nil)
				reply, err := c.Call(testContext(t), tool("echo"), nil)
				if n > limit {
					if !errors.Is(err, ErrTooLarge) {
						t.Errorf("got %v", err)
					}
					return
				}
				if err != nil || len(reply.Result)+len(body("2", 100))-len(`{"text":""}`)-(100-len(body("2", 100))) < n-100 {
					t.Errorf("%d bytes, %v", len(reply.Result), err)
				}
			})
		}
	}
}

func TestHTTPEndlessAnswers(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"application/json", "text/event-stream"} {
		f := newFakeWeb(t, func(f *fakeWeb) {
			f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
				if m.Method != "tools/call" {
					return false
				}
				w.Header().Set("Content-Type", how)
				io.WriteString(w, "data: ")
				for r.Context().Err() == nil {
					if _, err := io.WriteString(w, strings.Repeat("x", 1<<16)); err != nil {
						break
					}
				}
				return true
			}
		})
		c := dialLegacy(t, f.server(func(d *Definition, _ *Deps) { d.MaxMessage = 1 << 20 }), nil)
		if _, err := c.Call(testContext(t), tool("echo"), nil); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", how, err)
		}
	}
}

func TestHTTPTruncatedBody(t *testing.T) {
	t.Parallel()
	f := newFakeWeb(t, func(f *fakeWeb) {
		f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
			if m.Method != "tools/call" {
				return false
			}
			conn, buf, _ := w.(http.Hijacker).Hijack()
			buf.WriteString("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"jsonrpc\":")
			buf.Flush()
			conn.Close()
			return true
		}
	})
	c := dialLegacy(t, f.server(), nil)
	if _, err := c.Call(testContext(t), tool("echo"), nil); !errors.Is(err, ErrLost) {
		t.Errorf("got %v", err)
	}
}

func TestHTTPConnectionDropped(t *testing.T) {
	t.Parallel()
	f := newFakeWeb(t, func(f *fakeWeb) {
		f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
			if m.Method != "tools/call" {
				return false
			}
			panic(http.ErrAbortHandler)
		}
	})
	c := dialLegacy(t, f.server(), nil)
	if _, err := c.Call(testContext(t), tool("echo"), nil); !errors.Is(err, ErrLost) {
		t.Errorf("got %v", err)
	}
	if n := len(f.methods("tools/call")); n != 1 {
		t.Errorf("the server ran the call %d times", n)
	}
}

func TestHTTPRefusedConnectionIsNotSent(t *testing.T) {
	t.Parallel()
	url := fmt.Sprintf("http://127.0.0.1:%d/mcp", doortest.FreePort(t))
	s := webServer(t, url)
	if _, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil); !errors.Is(err, ErrNotSent) {
		t.Errorf("legacy: %v", err)
	}
	if _, _, err := s.DialModern(testContext(t), []byte(modernMeta), nil); !errors.Is(err, ErrNotSent) {
		t.Errorf("modern: %v", err)
	}
	sse := webServer(t, url, func(d *Definition, _ *Deps) { d.Kind = KindSSE })
	if _, _, err := sse.DialLegacy(testContext(t), []byte(initParams), nil); !errors.Is(err, ErrNotSent) {
		t.Errorf("sse: %v", err)
	}
}

func TestHTTPPrivateAddressNeedsPermission(t *testing.T) {
	t.Parallel()
	f := newFakeWeb(t, nil)
	s := f.server(func(d *Definition, _ *Deps) { d.AllowPrivate = false })
	if _, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil); !errors.Is(err, ErrNotSent) {
		t.Errorf("got %v", err)
	}
	if f.connections() != 0 {
		t.Error("the server saw a connection")
	}
}

// A stream that ends before the answer is resumed behind its last event, and the call is not sent again.
func TestHTTPStreamIsResumed(t *testing.T) {
	t.Parallel()
	var id atomic.Value
	var gets atomic.Int32
	f := newFakeWeb(t, func(f *fakeWeb) {
		f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
			if m.Method != "tools/call" {
				return false
			}
			id.Store(string(m.ID))
			send := events(w)
			send("id: e1\nretry: 5\ndata:\n\n")
			send("id: e2\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":1}}\n\n")
			return true
		}
		f.stream = func(w http.ResponseWriter, r *http.Request) {
			switch gets.Add(1) {
			case 1:
				w.WriteHeader(503)
			case 2:
				if got := r.Header.Get("Last-Event-ID"); got != "e2" {
					t.Errorf("Last-Event-ID %q", got)
				}
				events(w)("id: e3\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":2}}\n\n")
			default:
				if got := r.Header.Get("Last-Event-ID"); got != "e3" {
					t.Errorf("Last-Event-ID %q", got)
				}
				events(w)("id: e4\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"text\":\"resumed\"}}\n\n", id.Load())
			}
		}
	})
	c := dialLegacy(t, f.server(), nil)
	var got recorder
	if s := text(t, mustCall(t, c, tool("echo"), got.on)); s != "resumed" {
		t.Errorf("got %q", s)
	}
	if n := got.count("notifications/message"); n != 2 {
		t.Errorf("%d events", n)
	}
	if n := len(f.methods("tools/call")); n != 1 {
		t.Errorf("the call was sent %d times", n)
	}
}

func TestHTTPStreamThatCannotBeResumed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, event string
		status      int
		gets        int
	}{
		{"no event id", "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n", 200, 0},
		{"no such stream", "id: a\nretry: 1\ndata:\n\n", 405, 1},
		{"session gone", "id: a\nretry: 1\ndata:\n\n", 404, 1},
		{"nothing ever comes", "id: a\nretry: 1\ndata:\n\n", 200, maxResumes},
		{"never back", "id: a\nretry: 1\ndata:\n\n", 502, maxResumes},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFakeWeb(t, func(f *fakeWeb) {
				f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
					if m.Method == "tools/call" {
						events(w)("%s", tc.event)
					}
					return m.Method == "tools/call"
				}
				f.stream = func(w http.ResponseWriter, r *http.Request) {
					if tc.status == 200 {
						events(w)
						return
					}
					w.WriteHeader(tc.status)
				}
			})
			c := dialLegacy(t, f.server(), nil)
			if _, err := c.Call(testContext(t), tool("echo"), nil); !errors.Is(err, ErrLost) {
				t.Errorf("got %v", err)
			}
			if n := len(f.requests(func(s seen) bool { return s.httpMethod == "GET" })); n != tc.gets {
				t.Errorf("%d attempts, want %d", n, tc.gets)
			}
			if tc.status == 404 {
				waitDone(t, c)
				if !errors.Is(c.Err(), ErrSession) {
					t.Errorf("Err: %v", c.Err())
				}
			}
		})
	}
}

func TestHTTPCancelTellsTheServer(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"caller", "timeout"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			closed := make(chan struct{})
			f := newFakeWeb(t, func(f *fakeWeb) {
				f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
					if m.Method != "tools/call" {
						return false
					}
					events(w)
					<-r.Context().Done()
					close(closed)
					return true
				}
			})
			s := f.server(func(d *Definition, _ *Deps) {
				if how == "timeout" {
					d.Timeout = time.Second
				}
			})
			c := dialLegacy(t, s, nil)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if how == "caller" {
				go func() {
					eventually(t, "the call arrives", func() bool { return len(f.methods("tools/call")) == 1 })
					cancel()
				}()
			}
			_, err := c.Call(ctx, tool("echo"), nil)
			if want := map[string]error{"caller": context.Canceled, "timeout": ErrTimeout}[how]; !errors.Is(err, want) {
				t.Errorf("got %v", err)
			}
			<-closed
			eventually(t, "the cancellation", func() bool { return len(f.methods(methodCancelled)) == 1 })
			call, cancelled := f.methods("tools/call")[0], f.methods(methodCancelled)[0]
			if got := rawjson.Get(cancelled.Params, "requestId"); string(got) != string(call.ID) {
				t.Errorf("cancelled %s, call %s", got, call.ID)
			}
		})
	}
}

func TestHTTPCloseDeletesTheSessionAndFailsCalls(t *testing.T) {
	t.Parallel()
	f := newFakeWeb(t, func(f *fakeWeb) {
		f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
			if m.Method == "tools/call" {
				<-r.Context().Done()
			}
			return m.Method == "tools/call"
		}
		f.stream = func(w http.ResponseWriter, r *http.Request) {
			events(w)
			<-r.Context().Done()
		}
	})
	c := dialLegacy(t, f.server(), nil)
	c.Listen()
	c.Listen()
	failed := make(chan error, 1)
	go func() {
		_, err := c.Call(testContext(t), tool("echo"), nil)
		failed <- err
	}()
	eventually(t, "the call and the stream", func() bool {
		return len(f.methods("tools/call")) == 1 && len(f.requests(func(s seen) bool { return s.httpMethod == "GET" })) == 1
	})
	c.Close()
	c.Close()
	if err := <-failed; !errors.Is(err, ErrLost) {
		t.Errorf("the call in flight: %v", err)
	}
	waitDone(t, c)
	deleted := f.requests(func(s seen) bool { return s.httpMethod == "DELETE" })
	if len(deleted) != 1 || deleted[0].header.Get(headerSession) != "session-1" || deleted[0].header.Get(headerVersion) != protocol.V20251125 {
		t.Errorf("deleted %+v", deleted)
	}
	if _, err := c.Call(testContext(t), tool("echo"), nil); !errors.Is(err, ErrNotSent) {
		t.Errorf("a call afterwards: %v", err)
	}
	if err := c.Notify(testContext(t), "notifications/x", nil); !errors.Is(err, ErrNotSent) {
		t.Errorf("a notification afterwards: %v", err)
	}
	if n := len(f.methods(methodCancelled)); n != 0 {
		t.Errorf("%d cancellations beside the end of the session", n)
	}
}

func TestHTTPListenReconnects(t *testing.T) {
	t.Parallel()
	var gets atomic.Int32
	asked := make(chan struct{})
	f := newFakeWeb(t, func(f *fakeWeb) {
		f.stream = func(w http.ResponseWriter, r *http.Request) {
			change := "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n"
			switch gets.Add(1) {
			case 1:
				if r.Header.Get("Accept") != "text/event-stream" || r.Header.Get(headerSession) == "" || r.Header.Get("Content-Type") != "" {
					t.Errorf("header %v", r.Header)
				}
				events(w)("id: l1\nretry: 10\n%s", change)
			case 2:
				w.WriteHeader(500)
			default:
				if got := r.Header.Get("Last-Event-ID"); got != "l1" {
					t.Errorf("Last-Event-ID %q", got)
				}
				send := events(w)
				send("%s", change)
				send("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"roots/list\"}\n\n")
				send("data: not JSON\n\n")
				send("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n")
				close(asked)
				<-r.Context().Done()
			}
		}
	})
	s := f.server()
	var got recorder
	c := dialLegacy(t, s, got.on)
	c.Listen()
	<-asked
	eventually(t, "two changes and a question", func() bool {
		return got.count("notifications/tools/list_changed") == 2 && got.count("roots/list") == 1
	})
	eventually(t, "the rest is counted", func() bool { return s.Counts().Garbage == 1 && s.Counts().Unknown == 1 })
}

func TestHTTPListenWhereThereIsNothing(t *testing.T) {
	t.Parallel()
	f := newFakeWeb(t, nil)
	c := dialLegacy(t, f.server(), nil)
	c.Listen()
	gets := func() int { return len(f.requests(func(s seen) bool { return s.httpMethod == "GET" })) }
	eventually(t, "one attempt", func() bool { return gets() == 1 })
	for range 20 {
		mustCall(t, c, tool("echo"), nil)
		c.Listen()
	}
	if gets() != 1 {
		t.Errorf("%d attempts", gets())
	}
}

func TestHTTPListenLearnsThatTheSessionIsGone(t *testing.T) {
	t.Parallel()
	f := newFakeWeb(t, func(f *fakeWeb) {
		f.stream = func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(404) }
		f.call = func(w http.ResponseWriter, _ *http.Request, m fakeMessage) bool {
			if m.Method == "ping" {
				w.WriteHeader(404)
			}
			return m.Method == "ping"
		}
	})
	c := dialLegacy(t, f.server(), nil)
	c.Listen()
	waitDone(t, c)
	if !errors.Is(c.Err(), ErrSession) {
		t.Errorf("Err: %v", c.Err())
	}
}

// Answers over event streams leave their TCP connection to the next call.
func TestHTTPConnectionsAreReused(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"json", "events"} {
		f := newFakeWeb(t, func(f *fakeWeb) {
			f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
				if how == "events" && m.Method == "tools/call" {
					events(w)("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", m.ID)
					return true
				}
				return false
			}
		})
		c := dialLegacy(t, f.server(), nil)
		for range 100 {
			mustCall(t, c, tool("echo"), nil)
		}
		if n := f.connections(); n > 10 {
			t.Errorf("%s: %d connections for 100 calls", how, n)
		}
	}
}

// A server that closes its connections costs at most the call that used one of them. The next call works.
func TestHTTPIdleConnectionClosedByTheServer(t *testing.T) {
	t.Parallel()
	f := newFakeWeb(t, nil)
	f.Config.SetKeepAlivesEnabled(true)
	c := dialLegacy(t, f.server(), nil)
	for range 20 {
		mustCall(t, c, tool("echo"), nil)
		f.CloseClientConnections()
		// The client's side may not have noticed yet: both outcomes are tried.
		if _, err := c.Call(testContext(t), tool("echo"), nil); err != nil && !errors.Is(err, ErrLost) {
			t.Errorf("got %v", err)
		}
	}
}

func TestHTTPParallelCalls(t *testing.T) {
	t.Parallel()
	f := newFakeWeb(t, nil)
	c := dialLegacy(t, f.server(), nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 25 {
				mark := fmt.Sprintf(`"mark":"%d-%d"`, i, j)
				reply, err := c.Call(testContext(t), tool("echo", mark), nil)
				if err != nil || !strings.Contains(string(reply.Result), mark) {
					t.Errorf("%s: %s %v", mark, reply.Result, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestHTTPBatchInItsRevisionOnly(t *testing.T) {
	t.Parallel()
	f := newFakeWeb(t, func(f *fakeWeb) {
		f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
			switch m.Method {
			case methodInitialize:
				answerJSON(w, m.ID, `{"protocolVersion":"2025-03-26","capabilities":{}}`)
			case "tools/call":
				writeJSON(w, 200, `[{"jsonrpc":"2.0","method":"notifications/message","params":{}},{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"text":"in a batch"}}]`)
			default:
				return false
			}
			return true
		}
	})
	c := dialLegacy(t, f.server(), nil)
	var got recorder
	if s := text(t, mustCall(t, c, tool("echo"), got.on)); s != "in a batch" || len(got.all()) != 1 {
		t.Errorf("got %q, %+v", s, got.all())
	}
}

func TestHTTPLegacyHandshakeFailures(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		status int
		body   string
		want   error
		get    bool // the older transport is tried
	}{
		{"refused in JSON-RPC", 200, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32022,"message":"m"}}`, ErrEra, false},
		{"modern body", 400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"m"}}`, ErrProtocol, false},
		{"no such method", 404, `{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"m"}}`, ErrProtocol, false},
		{"no such method, own id", 404, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32601,"message":"m"}}`, ErrEra, false},
		{"plain 404", 404, `not found`, ErrEra, true},
		{"plain 405", 405, ``, ErrEra, true},
		{"plain 400", 400, ``, ErrEra, true},
		{"credentials", 401, ``, ErrProtocol, false},
		{"broken", 500, ``, ErrLost, false},
		{"busy", 503, ``, ErrNotSent, false},
		{"unknown revision", 200, `{"jsonrpc":"2.0","id":$ID,"result":{"protocolVersion":"2026-07-28"}}`, ErrEra, false},
		{"no revision", 200, `{"jsonrpc":"2.0","id":$ID,"result":[]}`, ErrEra, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFakeWeb(t, func(f *fakeWeb) {
				f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
					writeJSON(w, tc.status, strings.ReplaceAll(tc.body, "$ID", string(m.ID)))
					return true
				}
			})
			_, _, err := f.server().DialLegacy(testContext(t), []byte(initParams), nil)
			if !errors.Is(err, tc.want) || wrapped(err) != 1 {
				t.Errorf("got %v", err)
			}
			if gets := f.requests(func(s seen) bool { return s.httpMethod == "GET" }); (len(gets) > 0) != tc.get {
				t.Errorf("%d GET requests", len(gets))
			}
			if len(f.methods(methodInitialized)) > 0 {
				t.Error("initialized was sent")
			}
		})
	}
}
