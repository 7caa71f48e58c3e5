package doortest

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Echoes returns HTTP/1.1 answers by name that repeat a secret, each in another place. Few of
// them are valid. The secret is never in the content of a JSON-RPC message.
func Echoes(secret string) map[string]string {
	const fine = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	events := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	out := map[string]string{
		"header line without a colon": fine + secret + "\r\n\r\n",
		"header name":                 fine + secret + " : x\r\n\r\n",
		"header name with a space":    fine + "X " + secret + ": x\r\n\r\n",
		"header with a control":       fine + "X: " + secret + "\x01\r\n\r\n",
		"folded first line":           "HTTP/1.1 200 OK\r\n " + secret + "\r\n\r\n",
		"status line":                 secret + "\r\n\r\n",
		"version":                     "HTTP/" + secret + " 200 OK\r\n\r\n",
		"status code":                 "HTTP/1.1 " + secret + " OK\r\n\r\n",
		"transfer encoding":           fine + "Transfer-Encoding: " + secret + "\r\n\r\n",
		"content length":              fine + "Content-Length: " + secret + "\r\n\r\n",
		"two content lengths":         fine + "Content-Length: 1\r\nContent-Length: 2" + secret + "\r\n\r\n",
		"chunk size":                  fine + "Transfer-Encoding: chunked\r\n\r\n" + secret + "\r\n",
		"chunk extension":             fine + "Transfer-Encoding: chunked\r\n\r\n1;" + secret + "\r\n",
		"chunk end":                   fine + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}" + secret + "\r\n",
		"trailer":                     fine + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + secret + "\r\n\r\n",
		"announced trailer":           fine + "Trailer: " + secret + " x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + secret + ": " + secret + "\r\n\r\n",
		"interim answer":              "HTTP/1.1 103 Early Hints\r\n" + secret + "\r\n\r\n",
		"switched protocol":           "HTTP/1.1 101 " + secret + "\r\nUpgrade: " + secret + "\r\n\r\n",
		"content type":                "HTTP/1.1 200 OK\r\nContent-Type: " + secret + "\r\nContent-Length: 0\r\n\r\n",
		"session id":                  fine + "Mcp-Session-Id: " + secret + " \x7f\r\nContent-Length: 0\r\n\r\n",
		"body that is no JSON":        fine + body(secret),
		"body that is no JSON-RPC":    fine + body(`{"error":"`+secret+`"}`),
		"body of a stranger":          fine + body(`{"jsonrpc":"2.0","id":"`+secret+`","result":{}}`),
		"body with a double key":      fine + body(`{"jsonrpc":"2.0","id":1,"`+secret+`":1,"`+secret+`":2,"result":{}}`),
		"text":                        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n" + body(secret),
		"unasked":                     fine + body("{}") + secret + "\r\n\r\n",
		"event that is no JSON":       events + body("data: "+secret+"\n\n"),
		"event name":                  events + body("event: "+secret+"\nid: "+secret+"\nretry: "+secret+"\ndata: {}\n\n"),
		"stream in bad chunks":        events + "Transfer-Encoding: chunked\r\n\r\n8\r\n: hello\n\r\n" + secret + "\r\n",
		"endpoint elsewhere":          events + body("event: endpoint\ndata: http://"+secret+"/x\n\n"),
		"endpoint that is no URL":     events + body("event: endpoint\ndata: http://[%"+secret+"\n\n"),
		"close":                       "",
	}
	for _, status := range []int{302, 307, 400, 401, 403, 404, 429, 500, 503} {
		head := fmt.Sprintf("HTTP/1.1 %d %s\r\nWWW-Authenticate: Bearer realm=%q, error=%q, error_description=%q, scope=%q\r\nRetry-After: %s\r\nX: %s\r\n",
			status, secret, secret, secret, secret, secret, secret, secret)
		for what, location := range map[string]string{"": "", " and a place": "Location: https://" + secret + "/?a=" + secret + "\r\n",
			" and a bad place": "Location: http://[%zz" + secret + "\r\n", " and a place with a port": "Location: //x:" + secret + "\r\n"} {
			out["status "+strconv.Itoa(status)+what] = head + location + "Content-Type: application/json\r\n" + body(`{"error":"`+secret+`"}`)
		}
	}
	return out
}

func body(text string) string {
	return "Content-Length: " + strconv.Itoa(len(text)) + "\r\n\r\n" + text
}

// Serve answers each request on l with the bytes that answer returns, and closes the connection.
func Serve(t testing.TB, l net.Listener, answer func(*http.Request) string) {
	t.Helper()
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				req, err := http.ReadRequest(bufio.NewReader(conn))
				if err == nil {
					_, _ = conn.Write([]byte(answer(req)))
				}
			}()
		}
	}()
}

// Names returns the sorted keys of a map.
func Names(m map[string]string) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Repeats reports whether text contains the secret, in any case of its letters.
func Repeats(text, secret string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(secret))
}
