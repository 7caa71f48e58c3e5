//go:build !race

package upstream

import (
	"runtime"
	"strings"
	"testing"
)

// An idle connection costs no more heap and stacks of this process than its
// limit, with its pooled TCP connections. Kernel buffers and the supervisor of
// a child are not counted.
func TestMemoryOfIdleConnections(t *testing.T) {
	web := webServer(t, startQuickWeb(t, "quick-listen"))
	quick := fake(t, "quick")
	for _, tc := range []struct {
		name    string
		n       int
		limit   int // KiB each
		streams bool
		dial    func() Conn
	}{
		{"stdio", 40, 24, false, func() Conn { return dialLegacy(t, quick, nil) }},
		{"http with GET stream", 100, 60, true, func() Conn {
			c := dialLegacy(t, web, nil)
			c.Listen()
			return c
		}},
	} {
		before := inUse()
		var all []Conn
		for range tc.n {
			c := tc.dial()
			mustCall(t, c, tool("echo"), nil)
			all = append(all, c)
		}
		if tc.streams {
			eventually(t, "all streams are open", func() bool { return goroutinesIn("(*listener).follow") == tc.n })
		}
		each := (inUse() - before) / tc.n
		t.Logf("%s: %d bytes each", tc.name, each)
		if each > tc.limit<<10 {
			t.Errorf("%s: %d bytes each, limit %d KiB", tc.name, each, tc.limit)
		}
		for _, c := range all {
			c.Close()
		}
		for _, c := range all {
			waitDone(t, c)
		}
	}
}

func inUse() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapInuse + m.StackInuse)
}

func goroutinesIn(function string) int {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	return strings.Count(string(buf), function+"(")
}
