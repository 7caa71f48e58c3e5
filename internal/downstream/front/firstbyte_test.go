package front

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// A stream begins with a byte of its body: a proxy that holds back a head until then shows it at
// once. What it begins with is a comment, which is no event to a client.
func TestAStreamBeginsWithABodyByte(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	first := h.sentHello()
	for path, header := range map[string]string{"/mcp": "Mcp-Session-Id: " + first, "/sse": "X: y"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n%s\r\n\r\n", path, header)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		begin := make([]byte, len(beat))
		if _, err := io.ReadFull(resp.Body, begin); err != nil || string(begin) != beat {
			t.Errorf("%s: %s, %q, %v", path, resp.Status, begin, err)
		}
	}
}

// sentHello opens a session of alice and returns its id.
func (h *house) sentHello() string {
	h.t.Helper()
	resp, err := doortest.Client().Post(h.url+"/mcp", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`))
	if err != nil {
		h.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.Header.Get("Mcp-Session-Id")
}
