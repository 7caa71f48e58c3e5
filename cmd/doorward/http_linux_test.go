package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// request is one HTTP request, written byte for byte as the script says: no
// cleaned path, no redirect followed, no header that it did not ask for but
// Host, Connection and, with a body, its type and length.
type request struct {
	method, path string
	base         *url.URL
	socket       string // Unix socket; empty: TCP
	via          string // a proxy that makes the connection; empty: this process does
	headers      []header
	body         []byte
	hasBody      bool
	stream       string // name of the conversation that reads the answer's body
	later        string // and of the one that gets all of it, whenever it comes
	within       time.Duration
}

type header struct{ name, value string }

// cmdHTTP sends one request and prints the answer: status line, headers in
// alphabetical order without the date, an empty line, the body.
//
//	http METHOD PATH|URL [flags]
//	  -H 'Name: value'   add a header; without a value leave the default out
//	  -d BODY            $NAME is replaced     -f FILE  the same from a file, as it is
//	  -size N            a body of N spaces
//	  -raw FILE          send the file instead of a request; line ends as CR LF, $NAME replaced
//	  -unix              over $SOCK
//	  -via NAME          from the process `fakemcp proxy NAME …`
//	  -bearer TOKEN      -session ID     -delivery TOKEN
//	  -modern            the headers that repeat a body of 2026-07-28
//	  -stream NAME       leave the answer's body to `mcp NAME expect`
//	  -later NAME        do not wait: leave all of the answer to `mcp NAME expect`
//	  -time LIMIT        how long the answer may take; default 30s
func cmdHTTP(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) >= 2, "http METHOD PATH|URL [FLAG…]")
	send(ts, ts.Stdout(), args)
}

// send sends one request and writes the answer to w. nil: there was none.
func send(ts *testscript.TestScript, w io.Writer, args []string) *http.Response {
	r := &request{method: args[0], within: 30*time.Second + late()}
	r.target(ts, args[1])
	raw := r.flags(ts, args[2:])
	conn := r.dial(ts)
	ts.Check(conn.SetDeadline(time.Now().Add(r.within)))
	text := r.bytes()
	if raw != nil {
		text = raw
	}
	// The answer may come before everything is written: 413.
	go func() { _, _ = conn.Write(text) }()
	if r.later != "" {
		r.leave(ts, conn)
		return nil
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: r.method})
	if err != nil {
		conn.Close()
		fmt.Fprintf(w, "no answer: %v\n", err)
		return nil
	}
	printHead(w, resp)
	if r.stream != "" {
		r.listen(ts, conn, resp)
		return resp
	}
	defer conn.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Fprintf(w, "%s\n", body)
	if err != nil {
		ts.Fatalf("reading the body: %v", err)
	}
	return resp
}

func (r *request) target(ts *testscript.TestScript, target string) {
	base := ts.Getenv("URL")
	r.path = target
	if !strings.HasPrefix(target, "/") && strings.Contains(target, "://") {
		scheme, rest, _ := strings.Cut(target, "://")
		host, path, _ := strings.Cut(rest, "/")
		base, r.path = scheme+"://"+host, "/"+path
	}
	u, err := url.Parse(base)
	ts.Check(err)
	r.base = u
}

// flags reads the rest of the command line.
func (r *request) flags(ts *testscript.TestScript, args []string) (raw []byte) {
	modern := false
	for len(args) > 0 {
		flag := args[0]
		if args = args[1:]; flag == "-unix" || flag == "-modern" {
			modern = modern || flag == "-modern"
			if flag == "-unix" {
				r.socket = ts.Getenv("SOCK")
			}
			continue
		}
		if len(args) == 0 {
			ts.Fatalf("http: %s needs a value", flag)
		}
		value := args[0]
		args = args[1:]
		switch flag {
		case "-raw":
			raw = []byte(strings.ReplaceAll(fill(ts, ts.ReadFile(value)), "\n", "\r\n"))
		case "-H":
			name, text, _ := strings.Cut(value, ":")
			r.headers = append(r.headers, header{name, strings.TrimSpace(text)})
		default:
			r.value(ts, flag, value)
		}
	}
	if modern {
		r.modern(ts)
	}
	return raw
}

func (r *request) value(ts *testscript.TestScript, flag, value string) {
	switch flag {
	case "-d":
		r.body, r.hasBody = []byte(fill(ts, value)), true
	case "-f":
		r.body, r.hasBody = []byte(strings.TrimSuffix(ts.ReadFile(value), "\n")), true
	case "-size":
		n, err := strconv.Atoi(value)
		ts.Check(err)
		r.body, r.hasBody = bytes.Repeat([]byte(" "), n), true
	case "-bearer":
		r.headers = append(r.headers, header{"Authorization", "Bearer " + value})
	case "-delivery":
		r.headers = append(r.headers, header{"Doorward-Session", value})
	case "-session":
		r.headers = append(r.headers, header{"Mcp-Session-Id", value})
	case "-stream":
		r.stream = value
	case "-later":
		r.later = value
	case "-via":
		r.via = "@" + value
	case "-time":
		r.within = limit(ts, value)
	default:
		ts.Fatalf("http: unknown flag %s", flag)
	}
}

// modern adds the headers that repeat the body, unless they were given.
func (r *request) modern(ts *testscript.TestScript) {
	var m struct {
		Method string
		Params struct{ Name, URI string }
	}
	ts.Check(json.Unmarshal(r.body, &m))
	add := func(name, value string) {
		if value != "" && !r.gives(name) {
			r.headers = append(r.headers, header{name, value})
		}
	}
	add("MCP-Protocol-Version", "2026-07-28")
	add("Mcp-Method", m.Method)
	name := m.Params.Name + m.Params.URI
	if strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' }) {
		name = "=?base64?" + base64.StdEncoding.EncodeToString([]byte(name)) + "?="
	}
	add("Mcp-Name", name)
}

func (r *request) gives(name string) bool {
	return slices.ContainsFunc(r.headers, func(h header) bool { return strings.EqualFold(h.name, name) })
}

func (r *request) dial(ts *testscript.TestScript) net.Conn {
	var d net.Dialer
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second+late())
	defer cancel()
	network, addr := "tcp", r.base.Host
	if r.socket != "" {
		network, addr = "unix", r.socket
	}
	if r.via != "" {
		network, addr = "unix", r.via
	}
	conn, err := d.DialContext(ctx, network, addr)
	ts.Check(err)
	if r.socket == "" && r.base.Scheme == "https" {
		t := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // the certificate is the script's own
		ts.Check(t.HandshakeContext(ctx))
		return t
	}
	return conn
}

func (r *request) bytes() []byte {
	host := r.base.Host
	if r.socket != "" {
		host = "localhost"
	}
	defaults := []header{{"Host", host}, {"Connection", "close"}}
	if r.method == http.MethodPost {
		defaults = append(defaults, header{"Content-Type", "application/json"}, header{"Accept", "application/json, text/event-stream"})
	}
	if r.hasBody || r.method == http.MethodPost {
		defaults = append(defaults, header{"Content-Length", strconv.Itoa(len(r.body))})
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", r.method, r.path)
	for _, h := range defaults {
		if !r.gives(h.name) {
			fmt.Fprintf(&b, "%s: %s\r\n", h.name, h.value)
		}
	}
	for _, h := range r.headers {
		if h.value != "" {
			fmt.Fprintf(&b, "%s: %s\r\n", h.name, h.value)
		}
	}
	b.WriteString("\r\n")
	b.Write(r.body)
	return b.Bytes()
}

func printHead(w io.Writer, resp *http.Response) {
	fmt.Fprintln(w, resp.Status)
	var names []string
	for name := range resp.Header {
		if name == "Date" {
			continue // it would make equal answers differ
		}
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, v := range resp.Header[name] {
			fmt.Fprintf(w, "%s: %s\n", name, v)
		}
	}
	fmt.Fprintln(w)
}

// listen leaves the body to a conversation.
func (r *request) listen(ts *testscript.TestScript, conn net.Conn, resp *http.Response) {
	ts.Check(conn.SetDeadline(time.Time{}))
	t := &talk{out: newLines("")}
	stageOf(ts).talks[r.stream] = t
	ts.Defer(func() { conn.Close() })
	go func() {
		_, _ = io.Copy(t.out, resp.Body) // a cut stream is an ended one
		t.out.close()
	}()
}

// leave leaves the answer to a conversation, when it comes.
func (r *request) leave(ts *testscript.TestScript, conn net.Conn) {
	ts.Check(conn.SetDeadline(time.Time{}))
	t := &talk{out: newLines("")}
	stageOf(ts).talks[r.later] = t
	ts.Defer(func() { conn.Close() })
	go func() {
		defer t.out.close()
		resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: r.method})
		if err != nil {
			fmt.Fprintf(t.out, "no answer: %v\n", err)
			return
		}
		printHead(t.out, resp)
		_, _ = io.Copy(t.out, resp.Body) // a cut stream is an ended one
		fmt.Fprintln(t.out)
	}()
}

// cmdSession opens a session of a legacy client: initialize, and then
// notifications/initialized. More flags go to both requests.
func cmdSession(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) >= 2, "session VAR PATH [-version V] [http FLAG…]")
	version, more := "2025-11-25", args[2:]
	if len(more) > 1 && more[0] == "-version" {
		version, more = more[1], more[2:]
	}
	hello := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + version + `","capabilities":{},"clientInfo":{"name":"script","version":"1"}}}`
	resp := send(ts, ts.Stdout(), append([]string{"POST", args[1], "-d", hello}, more...))
	if resp == nil || resp.Header.Get("Mcp-Session-Id") == "" {
		ts.Fatalf("no session was opened")
	}
	id := resp.Header.Get("Mcp-Session-Id")
	ts.Setenv(args[0], id)
	send(ts, ts.Stdout(), append([]string{"POST", args[1], "-session", id, "-d", `{"jsonrpc":"2.0","method":"notifications/initialized"}`}, more...))
}
