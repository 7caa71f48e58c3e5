package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
)

// Problem is a failure answered by instruction delivery (RFC 9457). It wraps an
// ErrStatus. No part of it is chosen by a caller.
type Problem struct {
	Status   int    `json:"status"`
	Code     string `json:"code"` // constant, such as not_found; may be empty
	Detail   string `json:"detail"`
	Variable string `json:"variable"` // of invalid_variables
	Why      string `json:"why"`      // why an operator's act is refused
	Ref      uint64 `json:"ref"`      // the number of the audit record; 0: none
	// Problems are those of a document of the operator.
	Problems []DocumentProblem `json:"problems"`

	// RetryAfter is the time after which to try again; 0: not given.
	RetryAfter time.Duration `json:"-"`
}

// DocumentProblem is one problem of a document.
type DocumentProblem struct {
	File string `json:"file"`
	Line int    `json:"line"` // from 1; 0: no particular line
	Text string `json:"text"`
}

func (p *Problem) Error() string {
	text := ErrStatus(p.Status).Error()
	if p.Code != "" {
		text += " (" + p.Code + ")"
	}
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	return text
}

func (p *Problem) Unwrap() error { return ErrStatus(p.Status) }

func problemOf(resp *http.Response) error {
	p := &Problem{}
	if json.NewDecoder(io.LimitReader(resp.Body, maxFailure)).Decode(p) != nil {
		p = &Problem{} // the body is not one of Doorward's
	}
	p.Status = resp.StatusCode
	if s, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16); err == nil {
		p.RetryAfter = time.Duration(s) * time.Second
	}
	return p
}

// Auth sends one request to a route below /auth/ with in as its JSON body (nil:
// none), and decodes the answer into out (nil: it is ignored). token is that
// of a delivery session; empty: the connection alone identifies the caller. The error is
// a *Problem if the daemon answered with a failure.
func (c *Client) Auth(ctx context.Context, method, path, token string, in, out any) error {
	return c.ask(ctx, question{method: method, path: path, token: token, in: in, failure: problemOf}, out)
}

// SessionClaims are the claims of a caller about itself in a request for a delivery
// session. The client's name decides nothing. The project only selects among the
// documents that the caller may read anyway.
type SessionClaims struct {
	Client  *ClientName `json:"client,omitempty"`
	Project string      `json:"project,omitempty"`
	TTL     int64       `json:"ttl_s,omitempty"` // seconds; 0: a day, which is also the most
	// Bind is the instance of the process whose end ends the session: the caller or a
	// process above it (peer.Process.Instance); empty: the caller itself.
	Bind string `json:"bind,omitempty"`
}

// ClientName is the name and version that an MCP client gives itself.
type ClientName struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// clientName returns the name of a raw clientInfo, cut at 64 characters.
func clientName(info []byte) *ClientName {
	const most = 64
	n := &ClientName{}
	if len(info) > 0 {
		n.Name, _ = rawjson.GetString(info, "name")
		n.Version, _ = rawjson.GetString(info, "version")
	}
	n.Name, n.Version = cut(n.Name, most), cut(n.Version, most)
	return n
}

func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n])
	}
	return s
}

// Session is a delivery session with its token.
type Session struct {
	Token        string    `json:"token"`
	ID           string    `json:"session_id"` // not secret: records contain it
	Expires      time.Time `json:"expires"`
	RefreshAfter time.Time `json:"refresh_after"`
	Scope        []string  `json:"scope"` // tiers: behavioural, structural
}

// errBadSession is the error for an answer without a usable session.
var errBadSession = errors.New("the daemon's answer holds no usable session")

func (c *Client) session(ctx context.Context, path, token string, in any) (*Session, error) {
	s := &Session{}
	if err := c.Auth(ctx, http.MethodPost, path, token, in, s); err != nil {
		return nil, err
	}
	if !presentable(s.Token) || s.ID == "" || !s.Expires.IsZero() && !s.Expires.After(time.Now()) {
		return nil, errBadSession
	}
	return s, nil
}

// OpenSession opens a delivery session for the caller that the connection identifies.
func (c *Client) OpenSession(ctx context.Context, claims SessionClaims) (*Session, error) {
	return c.session(ctx, "/auth/session", "", claims)
}

// RenewSession gives a session a new token. The old token stays valid for half a minute.
func (c *Client) RenewSession(ctx context.Context, token string) (*Session, error) {
	return c.session(ctx, "/auth/session/renew", token, nil)
}

// EndSession ends a session.
func (c *Client) EndSession(ctx context.Context, token string) error {
	return c.Auth(ctx, http.MethodDelete, "/auth/session", token, nil, nil)
}

// Delivery is the state of instruction delivery to the bearer of a token.
type Delivery struct {
	State      string   `json:"state"`  // full, degraded or refused
	Reason     string   `json:"reason"` // no_token, expired, store_unreachable or not_permitted; empty: full
	Scope      []string `json:"scope"`
	Expires    string   `json:"expires"` // RFC 3339; empty: no session
	SessionID  string   `json:"session_id"`
	Revision   string   `json:"revision"`
	Store      string   `json:"store"` // ok, unreachable or unused
	FailClosed bool     `json:"fail_closed"`
}

// Delivery returns the state of delivery to the bearer of token; empty: to a caller
// without a token.
func (c *Client) Delivery(ctx context.Context, token string) (Delivery, error) {
	var d Delivery
	err := c.Auth(ctx, http.MethodGet, "/auth/status", token, nil, &d)
	return d, err
}
