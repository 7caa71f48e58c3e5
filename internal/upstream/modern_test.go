package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

func TestHTTPModernHeadersRepeatTheBody(t *testing.T) {
	t.Parallel()
	f := modernWeb(t, nil)
	s := f.server(func(d *Definition, _ *Deps) { d.Headers = http.Header{"Authorization": {"Bearer s"}} })
	c := dialModern(t, s, nil)
	meta := `"_meta":` + modernMeta
	for _, tc := range []struct {
		method, params, name string
	}{
		{"tools/call", `{"name":"get\u005fweather",` + meta + `}`, "get_weather"},
		{"tools/call", `{"name":"wétter",` + meta + `}`, protocol.EncodeHeader("wétter")},
		{"prompts/get", `{"name":" padded ",` + meta + `}`, protocol.EncodeHeader(" padded ")},
		{"resources/read", `{"uri":"file:///a b",` + meta + `}`, "file:///a b"},
		{"tasks/cancel", `{"taskId":"t1",` + meta + `}`, "t1"},
		{"tools/list", `{"name":"no",` + meta + `}`, ""},
	} {
		mustCall(t, c, &Request{Method: tc.method, Params: []byte(tc.params), Headers: http.Header{
			"Mcp-Param-City": {"Bern"}, "mcp-param-zip": {"3000"}, "Authorization": {"Bearer client"}, "Cookie": {"c=1"}, "Mcp-Name": {"forged"}, "X-Forwarded-For": {"1.2.3.4"},
		}}, nil)
		got := f.methods(tc.method)
		h := got[len(got)-1].header
		want := http.Header{
			headerVersion: {"2026-07-28"}, headerMethod: {tc.method}, "Mcp-Param-City": {"Bern"}, "Mcp-Param-Zip": {"3000"},
			"Authorization": {"Bearer s"}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "User-Agent": {"doorward/1.0"},
		}
		if tc.name != "" {
			want[headerName] = []string{tc.name}
		}
		delete(h, "Content-Length")
		if fmt.Sprint(h) != fmt.Sprint(want) {
			t.Errorf("%s: header %v\nwant %v", tc.method, h, want)
		}
	}
	if probe := f.methods(methodDiscover)[0]; probe.header.Get(headerVersion) != protocol.V20260728 || string(rawjson.Get(probe.Params, "_meta")) != modernMeta {
		t.Errorf("the probe: %+v", probe)
	}
}

func TestHTTPModernProbe(t *testing.T) {
	t.Parallel()
	reply := func(code int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":$ID,"error":{"code":%d,"message":"m","data":{"supported":["2027-01-01"]}}}`, code)
	}
	offers := func(supported string) string {
		return strings.Replace(reply(-32022), `["2027-01-01"]`, supported, 1)
	}
	null := func(code int) string { return strings.ReplaceAll(reply(code), "$ID", "null") }
	for _, tc := range []struct {
		name   string
		status int
		body   string
		want   error
	}{
		{"legacy versions only", 200, `{"jsonrpc":"2.0","id":$ID,"result":{"supportedVersions":["2025-11-25"]}}`, ErrEra},
		{"no versions", 200, `{"jsonrpc":"2.0","id":$ID,"result":{}}`, ErrEra},
		{"header mismatch", 400, reply(-32020), ErrProtocol},
		{"capability missing", 400, reply(-32021), ErrProtocol},
		{"another modern version", 400, reply(-32022), ErrProtocol},
		{"another modern version, no id", 400, null(-32022), ErrProtocol},
		{"a legacy version", 400, offers(`["2027-01-01","2025-06-18"]`), ErrEra},
		{"versions unknown", 400, offers(`[]`), ErrEra},
		{"versions that are none", 400, offers(`7`), ErrEra},
		{"no such method", 404, reply(-32601), ErrEra},
		{"another error", 200, reply(-32603), ErrEra},
		{"old server", 400, null(-32000), ErrEra},
		{"foreign body", 400, `no session`, ErrEra},
		{"empty", 400, ``, ErrEra},
		{"not found", 404, `<html>`, ErrEra},
		{"method not allowed", 405, ``, ErrEra},
		{"a page", 200, `<html>`, ErrEra},
		{"credentials", 401, ``, ErrProtocol},
		{"forbidden", 403, reply(-32601), ErrProtocol},
		{"busy", 429, ``, ErrNotSent},
		{"unavailable", 503, ``, ErrNotSent},
		{"broken", 500, ``, ErrLost},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFakeWeb(t, func(f *fakeWeb) {
				f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
					writeJSON(w, tc.status, strings.ReplaceAll(tc.body, "$ID", string(m.ID)))
					return true
				}
			})
			_, _, err := f.server().DialModern(testContext(t), []byte(modernMeta), nil)
			if !errors.Is(err, tc.want) || wrapped(err) != 1 {
				t.Errorf("got %v", err)
			}
			if n := len(f.requests(func(seen) bool { return true })); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestHTTPModernErrorsAreReplies(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ status, code int }{
		{400, -32020}, {400, -32021}, {404, -32601}, {400, -32602}, {200, -32603},
	} {
		for _, id := range []string{"$ID", "null"} {
			if id == "null" && tc.status == 200 {
				continue
			}
			f := modernWeb(t, func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
				body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"m","data":{"n":1.0}}}`, id, tc.code)
				writeJSON(w, tc.status, strings.ReplaceAll(body, "$ID", string(m.ID)))
				return true
			})
			c := dialModern(t, f.server(), nil)
			reply := mustCall(t, c, tool("echo"), nil)
			if reply.Error == nil || reply.Error.Code != int64(tc.code) || string(reply.Error.Data) != `{"n":1.0}` {
				t.Errorf("%d %d: %+v", tc.status, tc.code, reply.Error)
			}
		}
	}
}

func TestHTTPModernClosingTheStreamIsTheCancellation(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := modernWeb(t, func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
		events(w)
		cancel()
		<-r.Context().Done()
		close(closed)
		return true
	})
	c := dialModern(t, f.server(), nil)
	if _, err := c.Call(ctx, tool("echo"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-closed
	mustNot := f.methods(methodCancelled)
	if len(mustNot) != 0 {
		t.Errorf("%d cancellations", len(mustNot))
	}
}

func TestHTTPModernSubscription(t *testing.T) {
	t.Parallel()
	f := modernWeb(t, func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
		meta := `"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(m.ID) + `}`
		send := events(w)
		send("id: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{%s}}\n\n", meta)
		send("data: {\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"roots/list\"}\n\n")
		send("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\",\"params\":{%s}}\n\n", meta)
		if strings.Contains(string(m.Params), "finish") {
			send("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"text\":\"complete\"}}\n\n", m.ID)
		}
		return true
	})
	s := f.server()
	c := dialModern(t, s, nil)
	var got recorder
	reply := mustCall(t, c, &Request{Method: methodListen, Params: []byte(`{"finish":1}`)}, got.on)
	if text(t, reply) != "complete" || len(got.all()) != 2 {
		t.Errorf("got %s, %+v", reply.Result, got.all())
	}
	// The stream ends without a result: lost, and not resumed in this era.
	if _, err := c.Call(testContext(t), &Request{Method: methodListen}, got.on); !errors.Is(err, ErrLost) {
		t.Errorf("got %v", err)
	}
	if n := s.Counts().Violations; n != 2 {
		t.Errorf("%d violations counted", n)
	}
	if gets := f.requests(func(s seen) bool { return s.httpMethod == "GET" }); len(gets) != 0 {
		t.Error("a GET request")
	}
}

func TestHTTPModernKnowsNoSessions(t *testing.T) {
	t.Parallel()
	f := modernWeb(t, func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
		w.Header().Set(headerSession, "surprise")
		if m.Method == "tools/call" && strings.Contains(string(m.Params), "gone") {
			w.WriteHeader(404)
			return true
		}
		return false
	})
	c := dialModern(t, f.server(), nil)
	mustCall(t, c, tool("echo"), nil)
	if _, err := c.Call(testContext(t), tool("gone"), nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("got %v", err)
	}
	mustCall(t, c, tool("echo"), nil)
	c.Listen()
	c.Close()
	waitDone(t, c)
	for _, s := range f.requests(func(seen) bool { return true }) {
		if s.header.Get(headerSession) != "" || s.httpMethod != "POST" {
			t.Errorf("request %+v", s)
		}
	}
	if err := c.Answer(context.Background(), wire.IntID(1), Reply{}); !errors.Is(err, ErrProtocol) {
		t.Errorf("Answer: %v", err)
	}
}

func TestHTTPModernProbeOfASilentServer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		accepts bool
		limit   time.Duration
		want    error
	}{{"accepts and says nothing", true, time.Minute, ErrEra}, {"does not answer", false, 300 * time.Millisecond, ErrTimeout}} {
		f := newFakeWeb(t, func(f *fakeWeb) {
			f.call = func(w http.ResponseWriter, r *http.Request, m fakeMessage) bool {
				if tc.accepts {
					events(w)
				}
				<-r.Context().Done()
				return true
			}
		})
		s := f.server(func(d *Definition, deps *Deps) {
			d.Timeout, deps.ProbeTimeout = tc.limit, 300*time.Millisecond
		})
		if _, _, err := s.DialModern(testContext(t), []byte(modernMeta), nil); !errors.Is(err, tc.want) || wrapped(err) != 1 {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
