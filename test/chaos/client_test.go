//go:build chaos

package chaos

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

// errGone means that no answer came: the daemon was killed, or has not started again.
var errGone = errors.New("the daemon is gone")

// errNoSession means that the daemon does not know the session.
var errNoSession = errors.New("unknown session")

// toolError is an answer of a tool with isError.
type toolError struct{ Code, Message string }

func (e *toolError) Error() string { return e.Code + ": " + e.Message }

// client is one MCP session with the server agent, on a daemon's Unix socket.
type client struct {
	http    *http.Client
	session string
	next    int
}

func newClient(socket string) *client {
	return &client{http: &http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}}
}

// hello begins a session.
func (c *client) hello() error {
	c.session = ""
	if err := c.request("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]string{"name": "chaos", "version": "1"}}, nil); err != nil {
		return err
	}
	resp, err := c.post(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// call calls a tool and decodes its structured content.
func (c *client) call(tool string, args map[string]any, into any) error {
	var result struct {
		IsError           bool
		StructuredContent json.RawMessage
	}
	if err := c.request("tools/call", map[string]any{"name": tool, "arguments": args}, &result); err != nil {
		return err
	}
	if result.IsError {
		var e struct{ Error toolError }
		if err := json.Unmarshal(result.StructuredContent, &e); err != nil {
			return fmt.Errorf("%s: reading its error: %w", tool, err)
		}
		return fmt.Errorf("%s: %w", tool, &e.Error)
	}
	return json.Unmarshal(result.StructuredContent, into)
}

func (c *client) request(method string, params, into any) error {
	c.next++
	resp, err := c.post(map[string]any{"jsonrpc": "2.0", "id": c.next, "method": method, "params": params})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return errNoSession
	}
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		c.session = id
	}
	message, err := reply(resp)
	if err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	var r struct {
		Result json.RawMessage
		Error  json.RawMessage
	}
	if err := json.Unmarshal(message, &r); err != nil || r.Error != nil {
		return fmt.Errorf("%s: HTTP %s: %s", method, resp.Status, message)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(r.Result, into)
}

func (c *client) post(message any) (*http.Response, error) {
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
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	return resp, nil
}

// reply is the body of an answer, or the answer in a stream of events.
func reply(resp *http.Response) ([]byte, error) {
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return io.ReadAll(resp.Body)
	}
	for in := bufio.NewReader(resp.Body); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		if data, ok := strings.CutPrefix(line, "data:"); ok && strings.Contains(data, `"id"`) {
			return []byte(data), nil
		}
	}
}

// patience is the longest that one call may take, waiting included.
const patience = 30 * time.Second
