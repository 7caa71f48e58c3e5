package relay

import (
	"fmt"
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/upstream"
)

// A client that is subscribed to a resource hears of its sub-resources that it may read, of both
// eras and on both routes, while other clients use the server. It hears of nothing beside them.
func TestASubscriberHearsOfSubResources(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		for route, prefix := range map[string]string{"/mcp/s": "", "/mcp": "doorward://s/"} {
			t.Run(era+" "+route, func(t *testing.T) {
				t.Parallel()
				s := stdio(t, "s", era)
				h := build(t, []Server{s.server()})
				h.forbid(`forbid (principal, action == Action::"resources/read", resource == Resource::"s/file:///dir/hidden");`)
				l := h.legacy(route, "uid:1000", `{}`)
				old := l.listen()
				equal(t, "subscribed", code(l.call("resources/subscribe", `{"uri":"`+prefix+`file:///dir"}`)), "")
				young, _ := h.modern(route, "uid:1000").subscribe(`{"resourceSubscriptions":["` + prefix + `file:///dir"]}`)
				h.legacy(route, "uid:1000", `{}`).call("resources/subscribe", `{"uri":"`+prefix+`file:///other"}`)
				for _, name := range []string{"directory", "dir/hidden", "other", "dir/a"} {
					s.change(protocol.ResourceUpdated, `{"uri":"file:///`+name+`"}`)
				}
				for who, stream := range map[string]*reply{"legacy": old, "modern": young} {
					uri := prefix + "file:///dir" // the resource itself may have changed before the subscription
					for uri == prefix+"file:///dir" {
						uri = text(stream.nextOf(protocol.ResourceUpdated), "params", "uri")
					}
					equal(t, who, uri, prefix+"file:///dir/a")
				}
			})
		}
	}
}

// A listener that is too slow for the changes of many sub-resources is told that the whole has
// changed.
func TestTooManySubResourcesAreToldAsTheWhole(t *testing.T) {
	t.Parallel()
	h := build(t, nil)
	s := &subscription{from: &h.relay.listens, x: exchangeOf("uid:1000"), wake: make(chan struct{}, 1),
		granted: &subscribe.Filter{URIs: map[string]bool{"file:///dir": true, "file:///b": true}}}
	for i := range 3 * queued {
		s.put(upstream.Event{Method: protocol.ResourceUpdated, Params: subscribe.URIParams(fmt.Sprint("file:///dir/", i))})
	}
	got := s.take()
	last, _ := rawjson.GetString(got[len(got)-1].Params, "uri")
	equal(t, "the last", last, "file:///dir")
	equal(t, "waiting and dropped", fmt.Sprint(len(got), s.cut), fmt.Sprint(queued+3, false))
}
