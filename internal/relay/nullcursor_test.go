package relay

import "testing"

// A cursor null asks for a list from its start, where Doorward reads the cursor.
func TestACursorNullIsNone(t *testing.T) {
	t.Parallel()
	s, other := stdio(t, "s", "legacy"), web(t, "other", "both")
	paging(s)
	h := build(t, []Server{s.server(), other.server()})
	for era, call := range clients(h, "/mcp", "uid:1000") {
		equal(t, era+" on the aggregate", join(names(call("tools/list", `{"cursor":null}`), "tools", "name")), "other__echo s__a")
	}
	equal(t, "where cursors are sealed", join(names(h.modern("/mcp/s", "uid:1000").call("tools/list", `{"cursor":null}`), "tools", "name")), "a")
}

// A server that says nextCursor null has no further page.
func TestANextCursorNullIsNone(t *testing.T) {
	t.Parallel()
	s := stdio(t, "s", "legacy")
	s.setList("tools/list", `{"tools":[{"name":"a"}],"nextCursor":null}`)
	h := build(t, []Server{s.server()})
	for _, path := range []string{"/mcp", "/mcp/s"} {
		for era, call := range clients(h, path, "uid:1000") {
			list := call("tools/list", `{}`)
			if next := field(list, "result", "nextCursor"); len(names(list, "tools", "name")) != 1 || next != "" && next != "null" {
				t.Errorf("%s on %s: %s", era, path, list)
			}
		}
	}
}
