package relay

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

const future = "notifications/future"

// inform sends a notification as a client of either era does, and returns the answer.
func inform(h *house, era, path, who, method, params string) *reply {
	if era == "legacy" {
		return h.legacy(path, who, `{}`).post(notification(method, params))
	}
	params = string(rawjson.SetIn([]byte(params), "_meta", rawjson.Edit{Key: wire.MetaVersion, Value: []byte(`"2026-07-28"`)}, rawjson.Edit{Key: wire.MetaCapabilities, Value: rawjson.Empty}))
	return h.send("POST", path, who, notification(method, params), "Mcp-Protocol-Version", "2026-07-28")
}

// A notification that Doorward does not know reaches the server that it is for, in all
// eras, also as the first message to that server; or its sender is told that it did not.
func TestUnknownNotifications(t *testing.T) {
	t.Parallel()
	for kind, start := range transports {
		for _, eras := range []string{"legacy legacy", "legacy modern", "modern legacy", "modern modern"} {
			var client, server string
			fmt.Sscan(eras, &client, &server)
			t.Run(kind+" "+eras, func(t *testing.T) {
				t.Parallel()
				s, other := start(t, "s", server), start(t, "other", server)
				h := build(t, []Server{s.server(), other.server()})
				for i, c := range []struct{ path, params, got string }{
					{"/mcp/s", `{"x":1.0}`, `1.0`}, {"/mcp", `{"x":2.0,"name":"s__tool"}`, `2.0"tool"`}, {"/mcp", `{"x":3.0,"uri":"doorward://s/file:///a"}`, `3.0"file:///a"`},
				} {
					equal(t, c.params, fmt.Sprint(inform(h, client, c.path, "uid:1000", future, c.params).status), "202")
					eventually(t, "it arrives", func() bool { return len(s.got(future)) == i+1 })
					p := string(s.last(future).Params)
					equal(t, c.params, field(p, "x")+field(p, "name")+field(p, "uri"), c.got)
					version := field(p, "_meta", wire.MetaVersion)
					equal(t, "the version in _meta", version, map[string]string{"legacy": "", "modern": `"2026-07-28"`}[server])
				}
				for _, params := range []string{`{}`, `{"name":"s"}`, `{"name":"gone__tool"}`, `{"name":"s__a","uri":"doorward://s/x:"}`} {
					r := inform(h, client, "/mcp", "uid:1000", future, params)
					equal(t, params, fmt.Sprint(r.status)+code(r.next()), "400-32601")
				}
				equal(t, "another caller", fmt.Sprint(inform(h, client, "/mcp", "uid:1000", future, `{"name":"other__x"}`).status), "202")
				h.obey(`forbid (principal == Principal::"token:bob", action, resource == Server::"s");`)
				r := inform(h, client, "/mcp", "token:bob", future, `{"name":"s__tool"}`)
				equal(t, "denied", fmt.Sprint(r.status)+code(r.next()), "400-32601")
				eventually(t, "it arrives", func() bool { return len(other.got(future)) == 1 })
				equal(t, "arrived", fmt.Sprint(len(s.got(future))), "3")
				equal(t, "on record", h.outcome(h.decided(future, "s")), "ok")
			})
		}
	}
}

// Notifications that the protocol defines are not carried where they have no meaning,
// and are no error there.
func TestKnownNotificationsThatMeanNothing(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "modern")
	h := build(t, []Server{s.server()})
	for _, method := range []string{"notifications/cancelled", "notifications/initialized", "notifications/progress", protocol.RootsChanged} {
		for _, era := range []string{"legacy", "modern"} {
			equal(t, method, fmt.Sprint(inform(h, era, "/mcp/s", "uid:1000", method, `{"requestId":1}`).status), fmt.Sprint(http.StatusAccepted))
		}
		if n := len(s.got(method)); n != 0 {
			t.Errorf("%s arrived %d times", method, n)
		}
	}
}
