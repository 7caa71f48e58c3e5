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

// A request with two lengths is the last one that its connection serves, because two
// readers could disagree about its end (request smuggling). Requests inside its body,
// directly after it and after its answer are not served.
func TestNothingIsServedAfterARequestWithTwoLengths(t *testing.T) {
	t.Parallel()
	h := open(t, Options{})
	addr := strings.TrimPrefix(h.url, "http://")
	const hello = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	chunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(hello), hello)
	codings := []string{"Transfer-Encoding: chunked", "transfer-encoding: Chunked", "Transfer-Encoding:chunked", "Transfer-Encoding:\tchunked ",
		"Transfer-Encoding : chunked", "Transfer-Encoding:\r\n chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
		"Transfer-Encoding: chunked, chunked", "Transfer-Encoding: identity, chunked", "Transfer-Encoding: chunked, identity", "Transfer-Encoding: xchunked",
		"Transfer-Encoding: chunked;q=1", "Transfer-Encoding: \x0bchunked", "Transfer-Encoding: \"chunked\"", "Transfer-Encoding: gzip, chunked",
		"Transfer-Encoding: chunked\nX: y", "X: y\rTransfer-Encoding: chunked", "Transfer_Encoding: chunked\r\nTransfer-Encoding: chunked"}
	lengths := []string{"Content-Length: %d", "content-length: %d", "Content-Length:%d", "Content-Length: +%d", "Content-Length: 0%d", "Content-Length: -%d",
		"Content-Length: %d, %[1]d", "Content-Length: %d\r\nContent-Length: %[1]d", "Content-Length: %d\r\nContent-Length: 0", "Content-Length: 0x%x", "Content-Length: %d "}
	for _, proto := range []string{"HTTP/1.1", "HTTP/1.0"} {
		for _, coding := range codings {
			for _, length := range lengths {
				for _, n := range []int{0, len(hello), len(chunk)} {
					for _, order := range []bool{true, false} {
						first, second := coding, fmt.Sprintf(length, n)
						if order {
							first, second = second, first
						}
						head := "POST /mcp " + proto + "\r\nHost: x\r\nContent-Type: application/json\r\nConnection: keep-alive\r\n" + first + "\r\n" + second + "\r\n\r\n"
						if got := answers(t, addr, head+chunk); got > 1 {
							t.Errorf("%d answers after %q", got, head)
						}
					}
				}
			}
		}
	}
	// With one length the connection serves all three requests, so the test can fail.
	plain := fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(hello), hello)
	if got := answers(t, addr, plain); got != 3 {
		t.Errorf("%d answers after a request with one length, want 3", got)
	}
}

// answers sends a request, another one directly after it and one after the first
// answer, and counts the answers until the connection ends.
func answers(t *testing.T, addr, request string) (n int) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	const more = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
	io.WriteString(c, request+more)
	r := bufio.NewReader(c)
	for {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return n
		}
		io.Copy(io.Discard, resp.Body)
		if n++; n == 1 {
			io.WriteString(c, more)
		}
		if n == 3 {
			return n
		}
		if n == 1 && !resp.Close {
			c.SetReadDeadline(time.Now().Add(2 * time.Second))
		}
	}
}
