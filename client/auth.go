package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/doorward/doorward/internal/trust/wire"
)

// Problem is an answer of instruction delivery that is a failure (RFC 9457). It
// is an ErrStatus. Nothing in it is of a caller's choosing.
type Problem struct {
	Status   int    `json:"status"`
	Code     string `json:"code"` // constant, such as not_found; may be empty
	Detail   string `json:"detail"`
	Variable string `json:"variable"` // of invalid_variables
	Why      string `json:"why"`      // of an operator's act that is refused: agent or unknown
	Ref      uint64 `json:"ref"`      // the number of the audit record; 0: none
	// Problems are those of an operator's document.
	Problems []DocumentProblem `json:"problems"`

	// RetryAfter is when to ask again; 0: the daemon did not say.
	RetryAfter time.Duration `json:"-"`
}

// DocumentProblem is one thing that is wrong with a document.
type DocumentProblem struct {
	File string `json:"file"`
	Line int    `json:"line"` // from 1; 0: of no line
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
		p = &Problem{} // it is not one of our texts
	}
	p.Status = resp.StatusCode
	if s, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16); err == nil {
		p.RetryAfter = time.Duration(s) * time.Second
	}
	return p
}

// Auth sends one request to a route below /auth/ with in as its JSON body (nil:
// none), and reads the answer into out (nil: it is not looked at). token is that
// of a delivery session; empty: the caller is what the connection proves. A
// *Problem is a failure that the daemon answered.
func (c *Client) Auth(ctx context.Context, method, path, token string, in, out any) error {
	return c.ask(ctx, question{method: method, path: path, token: token, in: in, failure: problemOf}, out)
}

// SessionClaims are what a caller says of itself when it asks for a delivery
// session. The daemon decides nothing by the client's name, and chooses by the
// project only among what the caller may have anyway.
type SessionClaims struct {
	Client  *ClientName `json:"client,omitempty"`
	Project string      `json:"project,omitempty"`
	TTL     int64       `json:"ttl_s,omitempty"` // seconds; 0: a day, which is also the most
	// Bind names the process that the session ends with, the caller or one above
	// it, as peer.Above does; empty: the caller itself.
	Bind string `json:"bind,omitempty"`
}

// ClientName is what an MCP client calls itself.
type ClientName struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// clientName reads a clientInfo, raw.
func clientName(info []byte) *ClientName {
	const most = 64
	n := &ClientName{}
	if len(info) > 0 {
		n.Name, _ = wire.GetString(info, "name")
		n.Version, _ = wire.GetString(info, "version")
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

// Session is a delivery session with the token that shows it.
type Session struct {
	Token        string    `json:"token"`
	ID           string    `json:"session_id"` // no secret: records have it
	Expires      time.Time `json:"expires"`
	RefreshAfter time.Time `json:"refresh_after"`
	Scope        []string  `json:"scope"` // tiers: behavioural, structural
}

// errBadSession is an answer that holds no session.
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

// OpenSession makes a delivery session for whom the connection proves.
func (c *Client) OpenSession(ctx context.Context, claims SessionClaims) (*Session, error) {
	return c.session(ctx, "/auth/session", "", claims)
}

// RenewSession gives a session a new token. The old one is good for half a
// minute more.
func (c *Client) RenewSession(ctx context.Context, token string) (*Session, error) {
	return c.session(ctx, "/auth/session/renew", token, nil)
}

// EndSession ends a session.
func (c *Client) EndSession(ctx context.Context, token string) error {
	return c.Auth(ctx, http.MethodDelete, "/auth/session", token, nil, nil)
}

// Delivery is what the bearer of a token gets of the guidance.
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

// Delivery asks what the bearer of a token gets. Without a token it is what
// somebody without one gets.
func (c *Client) Delivery(ctx context.Context, token string) (Delivery, error) {
	var d Delivery
	err := c.Auth(ctx, http.MethodGet, "/auth/status", token, nil, &d)
	return d, err
}
