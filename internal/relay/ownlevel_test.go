package relay

import "testing"

// talkative is a legacy server whose tools write a message at debug and one at error.
func talkative(t *testing.T) *script {
	s := stdio(t, "s", "legacy")
	s.serve = func(q *query) {
		if q.Method == "tools/call" {
			q.notify("notifications/message", `{"level":"debug","data":1}`)
			q.notify("notifications/message", `{"level":"error","data":2}`)
		}
		q.result(`{}`)
	}
	return s
}

// Of sessions that share a process, with or without capabilities, each gets the log messages
// of its calls from its own level on.
func TestEachSharingSessionHasItsOwnLevel(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"auto", "principal", "shared"} {
		for _, caps := range []string{`{}`, elicits} {
			t.Run(mode+caps, func(t *testing.T) {
				t.Parallel()
				h := build(t, []Server{talkative(t).server(instances(mode))})
				for level, want := range map[string]int{"debug": 2, "error": 1, "emergency": 0} {
					c := h.legacy("/mcp/s", "uid:1000", caps)
					h.legacy("/mcp/s", "uid:1000", caps).call("logging/setLevel", `{"level":"debug"}`)
					c.call("logging/setLevel", `{"level":"`+level+`"}`)
					r := c.begin("tools/call", `{"name":"t"}`)
					r.end()
					if len(r.before) != want {
						t.Errorf("at %s it heard %s, want %d messages", level, r.before, want)
					}
				}
			})
		}
	}
}
