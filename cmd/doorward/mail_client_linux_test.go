package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// mailClient is one agent: a session of a legacy client over HTTP, or, without
// one, the requests of a process or principal in the era of 2026-07-28. It may
// be used from any goroutine.
type mailClient struct {
	t       testing.TB
	d       *mailDaemon
	http    *http.Client
	unix    bool
	token   string
	session string
}

// mailIDs numbers requests: one session may have several under way.
var mailIDs atomic.Int64

// client returns a client without a session. via is a proxy, "unix" or "tcp".
func (d *mailDaemon) client(via any) *mailClient {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var n net.Dialer
		switch via := via.(type) {
		case *proxy:
			return n.DialContext(ctx, "unix", "@"+via.name)
		case string:
			if via == "unix" {
				return n.DialContext(ctx, "unix", d.address(true))
			}
		}
		return n.DialContext(ctx, "tcp", d.address(false))
	}
	h := &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 64}, Timeout: 2 * time.Minute}
	d.t.Cleanup(h.CloseIdleConnections)
	return &mailClient{t: d.t, d: d, http: h, unix: via != "tcp"}
}

func (c *mailClient) with(token string) *mailClient {
	c.token = token
	return c
}

// open opens a session in which the client it returns speaks.
func (c *mailClient) open() (*mailClient, error) {
	s := *c
	s.session = ""
	r := s.post(context.Background(), "/mcp/agent", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`, "", nil)
	if r.err != nil {
		return nil, r.err
	}
	if s.session = r.header.Get("Mcp-Session-Id"); s.session == "" {
		return nil, fmt.Errorf("no session: %d %s", r.status, r.raw)
	}
	r = s.post(context.Background(), "/mcp/agent", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "", nil)
	if r.err == nil && r.status != http.StatusAccepted {
		r.err = fmt.Errorf("initialized: %d %s", r.status, r.raw)
	}
	return &s, r.err
}

func (c *mailClient) mustOpen() *mailClient {
	c.t.Helper()
	s, err := c.open()
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// end ends the session by DELETE.
func (c *mailClient) end() error {
	req, err := http.NewRequest(http.MethodDelete, "http://localhost/mcp/agent", nil)
	if err != nil {
		return err
	}
	c.head(req)
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // the status is what counts
	if resp.StatusCode/100 != 2 {
		return errors.New(resp.Status)
	}
	return nil
}

// head adds the headers of every request.
func (c *mailClient) head(req *http.Request) {
	req.Host = "localhost"
	if !c.unix {
		req.Host = c.d.address(false)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
	}
}

// mailReply is what came of a call.
type mailReply struct {
	err    error // no answer
	status int
	header http.Header
	raw    []byte

	rpc    int    // code of a JSON-RPC error
	code   string // of a tool's error
	text   string
	failed bool
	out    json.RawMessage // structured content
}

// what describes how a call ended: "ok", a tool's error code, "rpc N", "http N", "cut" or
// "odd".
func (r *mailReply) what() string {
	switch {
	case r.err != nil:
		return "cut"
	case r.rpc != 0:
		return fmt.Sprintf("rpc %d", r.rpc)
	case r.status != http.StatusOK:
		return fmt.Sprintf("http %d", r.status)
	case r.code != "":
		return r.code
	case r.failed || r.out == nil && r.text == "":
		return "odd"
	}
	return "ok"
}

func (r *mailReply) String() string {
	return fmt.Sprintf("%s: %v %d %.600s", r.what(), r.err, r.status, r.raw)
}

// into reads the structured content.
func (r *mailReply) into(t testing.TB, v any) {
	t.Helper()
	if r.what() != "ok" {
		t.Fatalf("%s", r)
	}
	if err := json.Unmarshal(r.out, v); err != nil {
		t.Fatalf("%v in %s", err, r.out)
	}
}

// post sends one message. name is what the headers of a modern request repeat.
func (c *mailClient) post(ctx context.Context, path, body, name string, header http.Header) *mailReply {
	r := &mailReply{}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		return &mailReply{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if name != "" {
		req.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		method, tool, _ := strings.Cut(name, " ")
		req.Header.Set("Mcp-Method", method)
		if tool != "" {
			req.Header.Set("Mcp-Name", tool)
		}
	}
	c.head(req)
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return &mailReply{err: err}
	}
	defer resp.Body.Close()
	r.status, r.header = resp.StatusCode, resp.Header
	if r.raw, r.err = io.ReadAll(resp.Body); r.err == nil {
		r.parse()
	}
	return r
}

// parse reads the answer: JSON, or the last event of a stream.
func (r *mailReply) parse() {
	var m struct {
		Error  *struct{ Code int }
		Result *struct {
			Content           []struct{ Text string }
			StructuredContent json.RawMessage
			IsError           bool
		}
	}
	text := r.raw
	if strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream") {
		for line := range bytes.Lines(r.raw) {
			if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
				text = data
			}
		}
	}
	if json.Unmarshal(text, &m) != nil {
		return
	}
	if m.Error != nil {
		r.rpc = m.Error.Code
	}
	if m.Result == nil {
		return
	}
	r.out, r.failed = m.Result.StructuredContent, m.Result.IsError
	for _, c := range m.Result.Content {
		r.text += c.Text
	}
	var f struct{ Error struct{ Code string } }
	if r.failed && json.Unmarshal(r.out, &f) == nil {
		r.code = f.Error.Code
	}
}

// try calls a tool of the server agent; arguments is a JSON object as text, or a value that
// is encoded as one.
func (c *mailClient) try(ctx context.Context, tool string, arguments any) *mailReply {
	args, ok := arguments.(string)
	if !ok {
		b, err := json.Marshal(arguments)
		if err != nil {
			return &mailReply{err: err}
		}
		args = string(b)
	}
	args = structured(tool, args)
	more, name := "", ""
	if c.session == "" {
		more, name = ","+meta, "tools/call "+tool
	}
	return c.post(ctx, "/mcp/agent", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s%s}}`, mailIDs.Add(1), tool, args, more), name, nil)
}

func (c *mailClient) call(tool string, arguments any) *mailReply {
	return c.try(context.Background(), tool, arguments)
}

// must calls a tool that has to succeed.
func (c *mailClient) must(tool string, arguments any) *mailReply {
	c.t.Helper()
	r := c.call(tool, arguments)
	if r.what() != "ok" {
		c.t.Fatalf("%s %.200v: %s", tool, arguments, r)
	}
	return r
}

// refused calls a tool that has to fail with that code.
func (c *mailClient) refused(code, tool string, arguments any) *mailReply {
	c.t.Helper()
	r := c.call(tool, arguments)
	if r.what() != code {
		c.t.Fatalf("%s %.200v: want %s, got %s", tool, arguments, code, r)
	}
	return r
}

type obj = map[string]any

// The answers, as far as these tests look at them.
type (
	mailRegistered struct {
		PeerID  string `json:"peer_id"`
		Name    string
		Epoch   int64
		Pending int
		Cursor  string
		Created bool

		Takeover *struct {
			PrevEpoch int64 `json:"prev_epoch"`
			Inherited int
		}
	}
	mailSent struct {
		MessageID  string `json:"message_id"`
		Cleaned    int
		Deliveries []struct {
			To, State string
			Seq       int64
			Evicted   int
		}
	}
	mailMessage struct {
		MessageID string `json:"message_id"`
		Seq       int64
		Body      string
		Subject   string
		BodyBytes int `json:"body_bytes"`
		Truncated bool
		Trust     string
		From      struct {
			Name, Principal string
			Epoch           int64
		}
		Attempt     int
		Redelivered bool
	}
	mailNotice struct {
		MessageID string `json:"message_id"`
		State     string
	}
	mailBatch struct {
		Messages []mailMessage
		Cursor   string
		More     bool
		Pending  int
		Notices  []mailNotice
		Missed   struct{ Evicted, Expired, Dead int }
	}
	mailWaited struct {
		Reason   string
		WaitedMS int64 `json:"waited_ms"`
		Capped   bool
		Pending  int
	}
	mailError struct {
		Error struct {
			Code      string
			Retryable bool
			RetryMS   int64 `json:"retry_after_ms"`
			Details   obj
		}
	}
)

func (c *mailClient) register(name string) mailRegistered {
	c.t.Helper()
	var out mailRegistered
	c.must("register", obj{"name": name}).into(c.t, &out)
	return out
}

func (c *mailClient) send(to, body string) mailSent {
	c.t.Helper()
	var out mailSent
	c.must("send", obj{"to": to, "body": body}).into(c.t, &out)
	return out
}

func (c *mailClient) inbox(arguments obj) mailBatch {
	c.t.Helper()
	if arguments == nil {
		arguments = obj{}
	}
	var out mailBatch
	c.must("inbox", arguments).into(c.t, &out)
	return out
}

// drain reads and confirms everything.
func (c *mailClient) drain() []mailMessage {
	c.t.Helper()
	var all []mailMessage
	args := obj{"max": 50, "max_bytes": 131072}
	for {
		b := c.inbox(args)
		if all = append(all, b.Messages...); len(b.Messages) == 0 {
			return all
		}
		args["after"] = b.Cursor
	}
}
