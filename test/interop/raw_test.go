//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

// peer is a connection to an MCP server that sends raw JSON-RPC and returns raw bytes,
// without a library that could change them.
type peer interface {
	// call sends one request and returns the bytes of its result, or of its
	// error when there is one.
	call(t *testing.T, method, params string) (result, rpcError json.RawMessage)
}

// reply is a JSON-RPC message with its parts as received.
type reply struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
	Params json.RawMessage `json:"params"`
}

const (
	legacyInit = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}`
	modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"}}`
)

// withMeta puts the modern envelope into params, which end with a brace.
func withMeta(params string) string {
	body := strings.TrimSuffix(params, "}")
	if strings.TrimSpace(body) != "{" {
		body += ","
	}
	return body + modernMeta + "}"
}

// web is a peer on Streamable HTTP, in either era.
type web struct {
	client  *http.Client // nil: the default one
	url     string
	modern  bool
	session string
	next    int
}

func dialWeb(t *testing.T, url string, modern bool) *web {
	t.Helper()
	w := &web{url: url, modern: modern}
	if modern {
		return w
	}
	resp := w.post(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":`+legacyInit+`}`, nil)
	defer resp.Body.Close()
	if _, err := readReply(resp, "0"); err != nil {
		t.Fatalf("initialize: %v", err)
	}
	w.session = resp.Header.Get("Mcp-Session-Id")
	w.post(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil).Body.Close()
	return w
}

func (w *web) post(t *testing.T, body string, header http.Header) *http.Response {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, w.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if w.session != "" {
		req.Header.Set("Mcp-Session-Id", w.session)
		req.Header.Set("MCP-Protocol-Version", "2025-11-25")
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := cmp.Or(w.client, doortest.Client()).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func (w *web) call(t *testing.T, method, params string) (json.RawMessage, json.RawMessage) {
	t.Helper()
	w.next++
	id := fmt.Sprintf(`"raw-%d"`, w.next)
	header := http.Header{}
	if w.modern {
		header.Set("MCP-Protocol-Version", "2026-07-28")
		header.Set("Mcp-Method", method)
		var named struct{ Name, URI string }
		if err := json.Unmarshal([]byte(params), &named); err != nil {
			t.Fatal(err)
		}
		if named.Name += named.URI; named.Name != "" && method != "vendor/echo" {
			header.Set("Mcp-Name", named.Name)
		}
		params = withMeta(params)
	}
	resp := w.post(t, `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":`+params+`}`, header)
	defer resp.Body.Close()
	r, err := readReply(resp, id)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return r.Result, r.Error
}

// readReply finds the answer to id in a JSON body or an event stream.
func readReply(resp *http.Response, id string) (reply, error) {
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		for events := newEvents(resp.Body); ; {
			e, err := events.next()
			if err != nil {
				return reply{}, fmt.Errorf("the stream ended without an answer to %s: %w", id, err)
			}
			if r, ok := answers(e.data, id); ok {
				return r, nil
			}
		}
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}, err
	}
	r, ok := answers(body, id)
	if !ok {
		return r, fmt.Errorf("HTTP %d with %q does not answer %s", resp.StatusCode, body, id)
	}
	return r, nil
}

func answers(text []byte, id string) (reply, bool) {
	var r reply
	err := json.Unmarshal(text, &r)
	return r, err == nil && r.Method == "" && string(r.ID) == id
}

// event is one server-sent event; data is empty in a priming event.
type event struct {
	id    string
	retry string
	data  []byte
}

type events struct{ lines *bufio.Reader }

func newEvents(r io.Reader) *events { return &events{bufio.NewReaderSize(r, 1<<16)} }

func (s *events) next() (event, error) {
	var e event
	for some := false; ; {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return e, err
		}
		line = strings.TrimRight(line, "\r\n")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && some:
			return e, nil
		case name == "id":
			e.id, some = value, true
		case name == "retry":
			e.retry, some = value, true
		case name == "data":
			if len(e.data) > 0 {
				e.data = append(e.data, '\n')
			}
			e.data, some = append(e.data, value...), true
		}
	}
}

// pipe is a peer on stdio.
type pipe struct {
	in     io.Writer
	out    *bufio.Reader
	modern bool
	next   int
}

func dialPipe(t *testing.T, argv []string, env []string, modern bool) *pipe {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	return dialCommand(t, cmd, modern)
}

func dialCommand(t *testing.T, cmd *exec.Cmd, modern bool) *pipe {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		hurry := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		hurry.Stop()
		if t.Failed() {
			t.Logf("stderr of %s:\n%s", cmd.Args[0], stderr.String())
		}
	})
	p := &pipe{in: in, out: bufio.NewReaderSize(out, 1<<20), modern: modern}
	if !modern {
		if _, rpcError := p.call(t, "initialize", legacyInit); rpcError != nil {
			t.Fatalf("initialize: %s", rpcError)
		}
		fmt.Fprintln(p.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return p
}

func (p *pipe) call(t *testing.T, method, params string) (json.RawMessage, json.RawMessage) {
	t.Helper()
	if p.modern {
		params = withMeta(params)
	}
	p.next++
	id := fmt.Sprintf(`"raw-%d"`, p.next)
	if _, err := fmt.Fprintln(p.in, `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":`+params+`}`); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	for {
		line, err := p.out.ReadBytes('\n')
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		if r, ok := answers(line, id); ok {
			return r.Result, r.Error
		}
	}
}
