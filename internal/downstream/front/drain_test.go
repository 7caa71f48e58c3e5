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
)

// A client that sends all of a body that is too large before it reads gets 413, whatever the
// size and the form of the body. One that waits for "100 Continue" gets it at once.
func TestATooLargeBodyGetsItsAnswer(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	for _, size := range []int{1<<16 + 1, 300 << 10, 5 << 20, 20 << 20} {
		body := strings.Repeat("x", size)
		for name, rest := range map[string]string{
			"announced": fmt.Sprintf("Content-Length: %d\r\n\r\n%s", size, body),
			"chunked":   fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", size, body),
			"awaited":   fmt.Sprintf("Content-Length: %d\r\nExpect: 100-continue\r\n\r\n", size),
		} {
			c, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(20 * time.Second))
			if _, err := io.WriteString(c, "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+rest); err != nil {
				t.Errorf("%s, %d bytes: %v", name, size, err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
				t.Errorf("%s, %d bytes: %v %v", name, size, resp, err)
			} else if _, err := io.ReadAll(resp.Body); err != nil {
				t.Errorf("%s, %d bytes: %v", name, size, err)
			}
			c.Close()
		}
	}
}
