// Package client talks to a Doorward daemon over its Unix socket: it lists tools,
// calls them, and carries a stdio client's whole conversation (Connect).
//
// Invariant: the client sends requests only to a listener that by the kernel runs as the
// same user or as root and is not contained, and, if the daemon's key is known, has that
// key (Expect). Any other listener on the path is refused before a request is sent.
package client

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/base/sse"
	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/trust/wire"
)

// ErrNoDaemon means that nothing answers on the socket.
var ErrNoDaemon = errors.New("no doorward daemon answers on the socket")

// RPCError is a JSON-RPC error in an answer.
type RPCError struct {
	Code    int64
	Message string
	Data    []byte // raw JSON, may be nil
}

func (e *RPCError) Error() string {
	if len(e.Data) > 0 {
		return fmt.Sprintf("%s (%d) %s", e.Message, e.Code, e.Data)
	}
	return fmt.Sprintf("%s (%d)", e.Message, e.Code)
}

// rpcError returns the error in an answer as an *RPCError, nil if there is none.
func rpcError(m *wire.Message) error {
	if m.Error == nil {
		return nil
	}
	return &RPCError{Code: m.Error.Code, Message: m.Error.Message, Data: append([]byte(nil), m.Error.Data...)}
}

// Client is a connection to one daemon. It is safe for concurrent use.
type Client struct {
	socket string
	http   *http.Client
	info   []byte

	expected  ed25519.PublicKey // the daemon's key; nil: it is not known
	namespace string            // label of the project; empty: none is sent
	guide     *guide            // adds the token of a delivery session; nil: none is sent
}

// New makes a client for the daemon's socket. It does not connect yet.
// version is that of the calling program, for clientInfo.
func New(socket, version string) *Client {
	c := &Client{socket: socket}
	c.info = append([]byte(`{"name":"doorward-cli","version":`), rawjson.AppendQuote(nil, version)...)
	c.info = append(c.info, '}')
	c.http = &http.Client{
		Transport:     &http.Transport{DialContext: c.dial, MaxIdleConnsPerHost: 64, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Authorize makes the client send a token with every request; an agent that the daemon
// started is authenticated by it. It is called at most once, before the first request.
func (c *Client) Authorize(token string) {
	c.http.Transport = bearer{c.http.Transport, "Bearer " + token}
}

// bearer adds an Authorization header.
type bearer struct {
	http.RoundTripper
	value string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", b.value)
	return b.RoundTripper.RoundTrip(r)
}

// CloseIdleConnections closes those of the wrapped RoundTripper; http.Client calls it.
func (b bearer) CloseIdleConnections() {
	if c, ok := b.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Close ends the delivery session that was opened for this client, if there is one,
// and closes idle connections.
func (c *Client) Close() {
	c.guide.end()
	c.http.CloseIdleConnections()
}

// dial connects and checks the listener: the process that called listen on the
// socket must run as this user, or as root under socket activation, and prove
// that it has the daemon's key (see proven).
func (c *Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.socket)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDaemon, err)
	}
	who, err := attest.OfUnix(conn.(*net.UnixConn))
	if err != nil && !errors.Is(err, attest.ErrUnsupported) {
		conn.Close()
		return nil, fmt.Errorf("identifying the process that listens on %s: %w", c.socket, err)
	}
	if who != nil {
		defer who.Close()
		if who.UID != uint32(os.Geteuid()) && who.UID != 0 {
			conn.Close()
			return nil, fmt.Errorf("the process that listens on %s has uid %d, which is neither yours nor root", c.socket, who.UID)
		}
	}
	if err := c.proven(ctx, conn, who); err != nil {
		conn.Close()
		return nil, fmt.Errorf("%s: %w", c.socket, err)
	}
	return conn, nil
}

// base is a URL whose Host the daemon accepts on its socket.
const base = "http://doorward"

// Path returns the route of a server; "" is the aggregate.
func Path(server string) string {
	if server == "" {
		return "/mcp"
	}
	return "/mcp/" + url.PathEscape(server)
}

// Request sends one stateless request of 2026-07-28 and returns the raw
// result. The error is an *RPCError if the answer is a JSON-RPC error.
func (c *Client) Request(ctx context.Context, server, method string, params []byte) ([]byte, error) {
	result, err := c.request(ctx, server, method, params, func(*wire.Message) {})
	if err != nil && c.guide.help(ctx, err) {
		return c.request(ctx, server, method, params, func(*wire.Message) {})
	}
	return result, err
}

// listen holds a subscriptions/listen open and calls heard with each of its
// notifications, until it ends. The error is an *RPCError if it was refused.
func (c *Client) listen(ctx context.Context, server string, params []byte, heard func(*wire.Message)) error {
	_, err := c.request(ctx, server, "subscriptions/listen", params, heard)
	return err
}

// request is Request. It calls meanwhile with the messages before the response.
func (c *Client) request(ctx context.Context, server, method string, params []byte, meanwhile func(*wire.Message)) ([]byte, error) {
	params = rawjson.SetIn(params, "_meta",
		rawjson.Edit{Key: wire.MetaVersion, Value: []byte(`"` + protocol.LatestModern + `"`)},
		rawjson.Edit{Key: wire.MetaCapabilities, Value: []byte(`{}`)},
		rawjson.Edit{Key: wire.MetaClientInfo, Value: c.info})
	msg := wire.Message{Kind: wire.Request, ID: wire.IntID(1), Method: method, Params: params}
	resp, err := c.post(ctx, Path(server), &msg, rawjson.AppendRequest(nil, msg.ID, method, params), modernHeaders(&msg))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var result []byte
	var failed error
	err = c.messages(resp, func(m *wire.Message, _ []byte) bool {
		if m.Kind != wire.Response {
			meanwhile(m)
			return true
		}
		result = append([]byte(nil), m.Result...)
		failed = rpcError(m)
		return false
	})
	if err != nil && resp.StatusCode == http.StatusNotFound { // the daemon has no such route
		return nil, &RPCError{Code: -32601, Message: "Unknown server"}
	}
	if err != nil {
		return nil, err
	}
	if result == nil && failed == nil {
		return nil, fmt.Errorf("the daemon answered %s without a result", resp.Status)
	}
	return result, failed
}

// modernHeaders returns the headers that repeat parts of a modern message's body.
func modernHeaders(m *wire.Message) http.Header {
	h := http.Header{"Mcp-Protocol-Version": {protocol.LatestModern}, "Mcp-Method": {m.Method}, protocol.HeaderStdio: {"1"}}
	if v, ok := wire.Text(rawjson.GetPath(m.Params, "_meta", wire.MetaVersion)); ok {
		h["Mcp-Protocol-Version"] = []string{v}
	}
	member := protocol.NameMember(m.Method)
	if name, ok := rawjson.GetString(m.Params, member); ok && member != "" {
		h["Mcp-Name"] = []string{protocol.EncodeHeader(name)}
	}
	return h
}

func (c *Client) post(ctx context.Context, path string, m *wire.Message, body []byte, h http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	if h != nil {
		req.Header = h
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := c.do(req)
	if err != nil {
		return nil, fmt.Errorf("sending %s: %w", m.Method, err)
	}
	return resp, nil
}

// Limits of an answer of the daemon, in bytes. The daemon's own limits are lower.
const (
	maxAnswer = 64 << 20
	maxEvent  = 64 << 20
)

// messages calls f with the JSON-RPC messages of a response, from one body or a stream,
// until f returns false.
func (c *Client) messages(resp *http.Response, f func(m *wire.Message, raw []byte) bool) error {
	if kind := resp.Header.Get("Content-Type"); kind == "text/event-stream" {
		return c.events(resp.Body, func(e sse.Event) bool { return eachMessage(e.Data, f) })
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if len(body) == 0 || body[0] != '{' && body[0] != '[' {
		if resp.StatusCode >= 400 {
			return fmt.Errorf("the daemon answered %s", resp.Status)
		}
		return nil
	}
	eachMessage(body, f)
	return nil
}

func eachMessage(raw []byte, f func(*wire.Message, []byte) bool) bool {
	if len(raw) == 0 {
		return true
	}
	msgs, _, err := wire.ParseBatch(raw, wire.FromServer)
	if err != nil {
		return true
	}
	for i := range msgs {
		if !f(&msgs[i], raw) {
			return false
		}
	}
	return true
}

func (c *Client) events(r io.Reader, f func(sse.Event) bool) error {
	events := sse.NewReader(r, maxEvent)
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the stream: %w", err)
		}
		if !f(e) {
			return nil
		}
	}
}

// ErrStatus is the HTTP status of a failure answered by the local API.
type ErrStatus int

func (e ErrStatus) Error() string {
	return fmt.Sprintf("the daemon answered %d %s", int(e), http.StatusText(int(e)))
}

// Reach returns nil when a daemon answers, and ErrNoDaemon when none does.
func (c *Client) Reach(ctx context.Context) error {
	conn, err := c.dial(ctx, "", "")
	if err != nil {
		return err
	}
	return conn.Close()
}

// waitStep is the time between two attempts of Wait to connect.
const waitStep = 100 * time.Millisecond

// Wait waits until a daemon answers. When ctx ends before, the error is ErrNoDaemon.
func (c *Client) Wait(ctx context.Context) error {
	for {
		err := c.Reach(ctx)
		if err == nil || !errors.Is(err, ErrNoDaemon) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(waitStep):
		}
	}
}

// within returns a client that shares the connections of c and sends the label of a project.
func (c *Client) within(namespace string) *Client {
	labelled := *c
	labelled.namespace = namespace
	return &labelled
}

// do sends a request with the label of the project and the token of a delivery session.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	if c.namespace != "" {
		req.Header.Set(protocol.HeaderNamespace, c.namespace)
	}
	if c.guide != nil {
		return c.guide.do(req)
	}
	return c.exchange(req)
}

// exchange sends a request. Its errors do not name the address, which is a path of the local API
// under a host that does not exist, and which a reader would take for the problem.
func (c *Client) exchange(req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req)
	var about *url.Error
	if errors.As(err, &about) {
		err = about.Err
	}
	return resp, err
}
