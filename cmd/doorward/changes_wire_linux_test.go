//go:build linux && changes

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
)

// changeMessage is any JSON-RPC message from the daemon.
type changeMessage struct {
	ID             raw
	Method         string
	Params, Result raw
	Error          raw
}

// hanger ends a stream from outside.
type hanger struct {
	mu     sync.Mutex
	cancel context.CancelFunc
}

func (h *hanger) hold(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cancel = cancel
	return ctx, cancel
}

func (h *hanger) hangUp() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cancel != nil {
		h.cancel()
	}
}

// changeFilter is what a modern client listens to.
func changeFilter(c *changeClient) obj {
	return obj{"notifications": obj{"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": c.uris()}}
}

// withMeta adds the member _meta of each modern request to its params.
func withMeta(c *changeClient, params obj) obj {
	if c.modern {
		params["_meta"] = obj{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": obj{}}
	}
	return params
}

// listened takes a message of a modern listen; over: it has ended.
func (c *changeClient) listened(m *changeMessage) (over bool) {
	var p struct {
		Notifications struct{ ResourceSubscriptions []string }
	}
	switch {
	case m.Method == "notifications/subscriptions/acknowledged":
		_ = json.Unmarshal(m.Params, &p) // on an error nothing is granted
		c.lives(true, p.Notifications.ResourceSubscriptions)
		c.again("it listens")
	case m.Method != "":
		c.take(m.Method, m.Params)
	}
	return m.Method == ""
}

// changeHTTP reaches the daemon over Streamable HTTP.
type changeHTTP struct {
	c *changeClient
	hanger
	http *http.Client

	opening sync.Mutex
	session string

	last, of string // event id, and the session that it is of; of the goroutine that listens
}

func (w *changeHTTP) close() { w.http.CloseIdleConnections() }

func (w *changeHTTP) id() string {
	w.opening.Lock()
	defer w.opening.Unlock()
	return w.session
}

// send makes one HTTP request.
func (w *changeHTTP) send(ctx context.Context, method string, m obj, session string) (*http.Response, error) {
	verb, body := http.MethodGet, ""
	if m != nil {
		verb, body = http.MethodPost, line(m)
	}
	url := "http://" + w.c.world.d.address(false) + "/mcp"
	if w.c.route != "" {
		url += "/" + w.c.route
	}
	req, err := http.NewRequestWithContext(ctx, verb, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if m != nil {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
	} else if w.last != "" {
		req.Header.Set("Last-Event-ID", w.last)
	}
	if w.c.kind == "token" {
		req.Header.Set("Authorization", "Bearer "+w.c.world.tokens["changes"])
	}
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	if w.c.modern {
		req.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		req.Header.Set("Mcp-Method", method)
		if uri, ok := m["params"].(obj)["uri"].(string); ok {
			req.Header.Set("Mcp-Name", uri)
		}
	}
	return w.http.Do(req)
}

// post sends a request and returns its answer. status is 0 without an HTTP answer.
func (w *changeHTTP) post(ctx context.Context, method string, params obj, session string) (result raw, header http.Header, status int, err error) {
	m := obj{"jsonrpc": "2.0", "method": method, "params": withMeta(w.c, params)}
	if !strings.HasPrefix(method, "notifications/") {
		m["id"] = mailIDs.Add(1)
	}
	resp, err := w.send(ctx, method, m, session)
	if err != nil {
		return nil, nil, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusAccepted {
		return nil, resp.Header, resp.StatusCode, nil
	}
	err = errors.New("no answer")
	w.read(resp, func(m *changeMessage) bool {
		switch {
		case m.Method != "":
			w.c.take(m.Method, m.Params)
			return false
		case m.Error != nil:
			err = fmt.Errorf("%w: %s", errRefused, m.Error)
		default:
			result, err = m.Result, nil
		}
		return true
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", resp.Status, err)
	}
	return result, resp.Header, resp.StatusCode, err
}

// read reads messages until one is the last.
func (w *changeHTTP) read(resp *http.Response, take func(*changeMessage) (last bool)) {
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		body, err := io.ReadAll(resp.Body)
		var m changeMessage
		if err == nil && json.Unmarshal(body, &m) == nil {
			take(&m)
		}
		return
	}
	scan := bufio.NewScanner(resp.Body)
	scan.Buffer(nil, 1<<22)
	for scan.Scan() {
		if id, ok := strings.CutPrefix(scan.Text(), "id: "); ok && resp.Request.Method == http.MethodGet {
			w.last = id
		}
		var m changeMessage
		if data, ok := strings.CutPrefix(scan.Text(), "data: "); ok && json.Unmarshal([]byte(data), &m) == nil && take(&m) {
			return
		}
	}
}

func (w *changeHTTP) call(ctx context.Context, method string, params obj) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, mailSoon)
	defer cancel()
	for again := true; ; again = false {
		session := w.id()
		if !w.c.modern && session == "" {
			if err := w.open(ctx, ""); err != nil {
				return nil, err
			}
			session = w.id()
		}
		result, _, status, err := w.post(ctx, method, params, session)
		if w.c.modern || status != http.StatusNotFound || !again {
			return result, err
		}
		if err := w.open(ctx, session); err != nil {
			return nil, err
		}
	}
}

// open opens a session in place of one that the daemon does not know.
func (w *changeHTTP) open(ctx context.Context, forgotten string) error {
	w.opening.Lock()
	defer w.opening.Unlock()
	if w.session != forgotten {
		return nil
	}
	_, header, _, err := w.post(ctx, "initialize", obj{"protocolVersion": "2025-11-25", "capabilities": obj{}, "clientInfo": obj{"name": "test", "version": "1"}}, "")
	if err != nil {
		return err
	}
	session := header.Get("Mcp-Session-Id")
	if _, _, _, err = w.post(ctx, "notifications/initialized", obj{}, session); err != nil {
		return err
	}
	w.hangUp()
	w.session = session
	for _, uri := range w.c.uris() {
		if _, _, _, err := w.post(ctx, "resources/subscribe", obj{"uri": uri}, session); err != nil {
			w.c.forget(w.c.serverOf(uri), err)
		}
	}
	w.c.again("a new session")
	return nil
}

func (w *changeHTTP) listen(ctx context.Context) {
	ctx, cancel := w.hold(ctx)
	defer cancel()
	if w.c.modern {
		resp, err := w.send(ctx, "subscriptions/listen", obj{"jsonrpc": "2.0", "id": mailIDs.Add(1), "method": "subscriptions/listen", "params": withMeta(w.c, changeFilter(w.c))}, "")
		if err == nil {
			w.read(resp, w.c.listened)
			resp.Body.Close()
		}
		return
	}
	session := w.id()
	if session == "" {
		return // its first request opens one
	}
	if session != w.of {
		w.of, w.last = session, ""
	}
	resp, err := w.send(ctx, "", nil, session)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusNotFound:
		_ = w.open(ctx, session) // on an error it is tried again
	case http.StatusOK:
		w.c.lives(true, nil)
		w.read(resp, func(m *changeMessage) bool { w.c.take(m.Method, m.Params); return false })
	}
}

// changeStdio reaches the daemon through doorward connect.
type changeStdio struct {
	c *changeClient
	hanger
	cmd *exec.Cmd
	in  io.WriteCloser

	opening sync.Mutex
	opened  bool
	waits   sync.Map // by raw id: chan *changeMessage
	listens sync.Map // raw ids
}

func newChangeStdio(c *changeClient) (*changeStdio, error) {
	w := &changeStdio{c: c}
	args := []string{"connect"}
	if c.route != "" {
		args = append(args, c.route)
	}
	w.cmd = exec.Command("doorward", args...)
	w.cmd.Env, w.cmd.Dir = c.world.d.env, c.world.d.dir
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		scan := bufio.NewScanner(out)
		scan.Buffer(nil, 1<<22)
		for scan.Scan() {
			m := new(changeMessage)
			if json.Unmarshal(scan.Bytes(), m) != nil {
				continue
			}
			if to, ok := w.waits.Load(string(m.ID)); ok && m.Method == "" {
				to.(chan *changeMessage) <- m
			} else if c.modern && m.Method != "" {
				c.listened(m)
			} else if m.Method != "" {
				c.take(m.Method, m.Params)
			}
		}
	}()
	return w, nil
}

func (w *changeStdio) close() {
	_ = w.in.Close()
	_ = w.cmd.Wait() // it may have been told to end by a signal
}

// ask sends a request and waits for its answer.
func (w *changeStdio) ask(ctx context.Context, method string, params obj) (*changeMessage, error) {
	id := fmt.Sprint(mailIDs.Add(1))
	to := make(chan *changeMessage, 1)
	w.waits.Store(id, to)
	defer w.waits.Delete(id)
	if _, err := io.WriteString(w.in, line(obj{"jsonrpc": "2.0", "id": raw(id), "method": method, "params": withMeta(w.c, params)})+"\n"); err != nil {
		return nil, err
	}
	select {
	case m := <-to:
		return m, nil
	case <-ctx.Done():
		_, err := io.WriteString(w.in, line(obj{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": withMeta(w.c, obj{"requestId": raw(id)})})+"\n")
		return nil, errors.Join(ctx.Err(), err)
	}
}

func (w *changeStdio) open(ctx context.Context) error {
	w.opening.Lock()
	defer w.opening.Unlock()
	if w.opened || w.c.modern {
		return nil
	}
	m, err := w.ask(ctx, "initialize", obj{"protocolVersion": "2025-11-25", "capabilities": obj{}, "clientInfo": obj{"name": "test", "version": "1"}})
	if err == nil && m.Error != nil {
		err = fmt.Errorf("%w: %s", errRefused, m.Error)
	}
	if err != nil {
		return err
	}
	w.opened = true
	_, err = io.WriteString(w.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	return err
}

func (w *changeStdio) call(ctx context.Context, method string, params obj) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, mailSoon)
	defer cancel()
	if err := w.open(ctx); err != nil {
		return nil, err
	}
	m, err := w.ask(ctx, method, params)
	if err == nil && m.Error != nil {
		err = fmt.Errorf("%w: %s", errRefused, m.Error)
	}
	if err != nil {
		return nil, err
	}
	return m.Result, nil
}

func (w *changeStdio) listen(ctx context.Context) {
	ctx, cancel := w.hold(ctx)
	defer cancel()
	if w.c.modern {
		_, _ = w.ask(ctx, "subscriptions/listen", changeFilter(w.c)) // its end is what counts
		return
	}
	w.opening.Lock()
	opened := w.opened
	w.opening.Unlock()
	if opened {
		w.c.lives(true, nil)
		<-ctx.Done()
	}
}
