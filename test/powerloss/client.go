package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// errGone reports that the daemon does not answer any more.
var errGone = errors.New("the daemon is gone")

// agent is one MCP session with the daemon's messaging server on its Unix socket.
type agent struct {
	http    *http.Client
	session string
	next    int
}

// toolError is a tool result with isError set.
type toolError struct{ code, message string }

func (e *toolError) Error() string { return e.code + ": " + e.message }

// dial opens a session and registers name.
func dial(socket, name string) (*agent, error) {
	a := &agent{http: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}}
	hello := map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]string{"name": "powerloss", "version": "1"}}
	if _, err := a.request("initialize", hello); err != nil {
		return nil, err
	}
	if err := a.notify("notifications/initialized"); err != nil {
		return nil, err
	}
	return a, a.call("register", map[string]any{"name": name}, nil)
}

// call calls a tool and decodes the structured content of its result.
func (a *agent) call(tool string, args map[string]any, into any) error {
	raw, err := a.request("tools/call", map[string]any{"name": tool, "arguments": args})
	if err != nil {
		return err
	}
	var result struct {
		IsError           bool
		StructuredContent json.RawMessage
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return err
	}
	if result.IsError {
		var e struct {
			Error struct{ Code, Message string }
		}
		_ = json.Unmarshal(result.StructuredContent, &e)
		return fmt.Errorf("%s: %w", tool, &toolError{e.Error.Code, e.Error.Message})
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(result.StructuredContent, into)
}

func (a *agent) request(method string, params any) (json.RawMessage, error) {
	a.next++
	resp, err := a.post(map[string]any{"jsonrpc": "2.0", "id": a.next, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		a.session = id
	}
	message, err := answer(resp)
	if err != nil {
		return nil, err
	}
	var reply struct {
		Result json.RawMessage
		Error  *struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal(message, &reply); err != nil {
		return nil, fmt.Errorf("%s: HTTP %s: %q", method, resp.Status, message)
	}
	if reply.Error != nil {
		return nil, fmt.Errorf("%s: %d %s", method, reply.Error.Code, reply.Error.Message)
	}
	return reply.Result, nil
}

func (a *agent) notify(method string) error {
	resp, err := a.post(map[string]any{"jsonrpc": "2.0", "method": method})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (a *agent) post(message any) (*http.Response, error) {
	body, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(http.MethodPost, "http://localhost/mcp/agent", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if a.session != "" {
		req.Header.Set("Mcp-Session-Id", a.session)
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	return resp, nil
}

// answer returns the body of a response, or the data of the first event that has any if it is an
// event stream. A truncated response is an error.
func answer(resp *http.Response) ([]byte, error) {
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			err = fmt.Errorf("%w: %w", errGone, err)
		}
		return body, err
	}
	in := bufio.NewReader(resp.Body)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errGone, err)
		}
		if data, ok := strings.CutPrefix(line, "data:"); ok && strings.TrimSpace(data) != "" {
			return []byte(data), nil
		}
	}
}
