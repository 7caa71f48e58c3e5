package relay

import (
	"testing"
	"time"
)

// A client that shows its model only the text of a result, or only its structured content, tells
// it that the held call was not made and has to be made again.
func TestBothFormsOfAHeldResultSayWhatToDo(t *testing.T) {
	t.Parallel()
	s := web(t, "s", "both")
	h := build(t, []Server{s.server()}, withCounter(&counter{t: t}, "s", "", time.Millisecond))
	for era, call := range clients(h, "/mcp/s", "uid:1000") {
		out := call("tools/call", `{"name":"t"}`)
		said := text(out, "result", "structuredContent", "message")
		contains(t, era, said, "was not made yet", "Make the same call again")
		equal(t, era+", as text", field(out, "result", "content"), `[{"type":"text","text":"`+said+`"}]`)
	}
}
