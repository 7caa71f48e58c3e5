package client

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
)

// GuideOptions configures the token of a delivery session.
type GuideOptions struct {
	// Env looks up environment variables, as os.LookupEnv; nil: there are none. A token
	// in the environment is presented unchanged and never replaced by one of another source.
	Env func(string) (string, bool)
	// Ask opens a session for this client before its first request to a server. Without
	// it a session is opened only after a call was refused because guidance is missing.
	Ask bool
	// Behind opens that session in the background, so that no request waits for it. It is
	// for routes whose answers contain no guidance.
	Behind bool
	// RuntimeDir is the directory of session files, which are used if the daemon cannot
	// open a session now; empty: none.
	RuntimeDir string
	Project    string       // label of the project, claimed
	Log        *slog.Logger // nil: discards. No part of a token is ever written to it
}

// Guide makes the client send the token of a delivery session with its requests to
// servers. It is called at most once, before the first request. Without a token, or with
// one that is refused, requests are sent without it: then only guidance is missing.
// Close ends a session that was opened for this client.
func (c *Client) Guide(o GuideOptions) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	g := &guide{c: c, o: o, change: make(chan struct{})}
	var err error
	if g.fixed, g.variable, err = TokenFromEnv(o.Env); err != nil {
		o.Log.Debug("the environment's token is not used", "err", err)
	}
	g.ctx, g.stop = context.WithCancel(context.Background())
	c.guide = g
}

// Times of getting a token.
const (
	// fetchBudget is the longest time that a request waits for a token, so that a
	// client's first request is answered in time.
	fetchBudget = 2 * time.Second
	// askBudget is the part of fetchBudget for the daemon; the rest is for session files.
	askBudget = 1800 * time.Millisecond
	// fetchLater is the pause after a failure. Requests stop waiting for a token
	// until an attempt has succeeded.
	fetchLater = 30 * time.Second
	// maxLater is the longest pause that the daemon can ask for.
	maxLater = 5 * time.Minute
	// renewLater is the pause after a renewal that failed.
	renewLater = time.Minute
	// endBudget is the time limit for ending a session: the process is about to exit.
	endBudget = 500 * time.Millisecond
)

// fetchAgain are the pauses before further attempts.
var fetchAgain = [...]time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond}

// guide holds the token that a client presents.
//
// Invariants: the token is only in memory; a token of the environment is never replaced;
// at most one attempt to get a token runs at a time; no request waits for a token longer
// than fetchBudget, and none waits after a failed attempt until one has succeeded.
type guide struct {
	c    *Client
	o    GuideOptions
	ctx  context.Context // of attempts, which do not end with a request
	stop context.CancelFunc

	variable string // of the environment's token; empty: none is set

	mu     sync.Mutex
	fixed  string // the environment's token; empty: none, or it was refused
	client *ClientName
	held   held
	try    *attempt      // the running attempt; nil: none
	again  time.Time     // earliest next attempt after a failed one; zero: the last did not fail
	wanted bool          // a call was refused because there was no token
	stale  string        // a session file's token that was refused
	change chan struct{} // closed when held becomes the token of another session
}

// held is a token with its properties.
type held struct {
	token   string
	session string // id of the session; empty: not known
	own     bool   // the session was opened for this client, which renews and ends it
	expires time.Time
	renew   time.Time // when to renew the token; zero: never
}

// attempt is a running request for a token. err is set before done is closed.
type attempt struct {
	done chan struct{}
	err  error
}

// token returns the token to present now; empty: none. It may start an attempt to get or
// renew one. The only error is ErrNoDaemon.
func (g *guide) token(ctx context.Context) (string, error) {
	g.mu.Lock()
	if g.variable != "" {
		defer g.mu.Unlock()
		return g.fixed, nil
	}
	now := time.Now()
	if token := g.held.token; token != "" && now.Before(g.held.expires) {
		if !g.held.renew.IsZero() && now.After(g.held.renew) {
			g.begin(g.renew)
		}
		g.mu.Unlock()
		return token, nil
	}
	if !g.o.Ask && !g.wanted || now.Before(g.again) {
		g.mu.Unlock()
		return "", nil
	}
	wait := g.again.IsZero() && !g.o.Behind
	a := g.begin(g.fetch)
	g.mu.Unlock()
	if !wait {
		return "", nil
	}
	return g.await(ctx, a)
}

// await waits for an attempt, at most fetchBudget, and returns the token; empty: none.
func (g *guide) await(ctx context.Context, a *attempt) (string, error) {
	select {
	case <-a.done:
	case <-ctx.Done():
		return "", nil // the request fails with ctx
	case <-time.After(fetchBudget):
		return "", nil // reading a session file may block
	}
	if errors.Is(a.err, ErrNoDaemon) {
		return "", a.err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held.token, nil
}

// begin starts an attempt, or returns the running one. The caller holds g.mu.
func (g *guide) begin(f func(context.Context) error) *attempt {
	if g.try != nil {
		return g.try
	}
	a := &attempt{done: make(chan struct{})}
	g.try = a
	go func() {
		ctx, cancel := context.WithTimeout(g.ctx, askBudget)
		defer cancel()
		a.err = f(ctx)
		g.mu.Lock()
		g.try = nil
		g.mu.Unlock()
		close(a.done)
	}()
	return a
}

// fetch gets a token from the daemon, or from a session file.
func (g *guide) fetch(ctx context.Context) error {
	h, err := g.open(ctx)
	if errors.Is(err, ErrNoDaemon) {
		return err // the request fails the same way, and its caller handles that
	}
	if err != nil && undecided(err) {
		if found, ok := g.fromFile(); ok {
			h, err = found, nil
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.o.Log.Debug("no delivery session", "err", err)
		g.hold(held{})
		g.again = time.Now().Add(later(err))
		return err
	}
	g.hold(h)
	g.again = time.Time{}
	return nil
}

// later returns the pause after err. The daemon sets it when too many clients of one user
// ask at once, or its database is unavailable. A random part spreads their next attempts.
func later(err error) time.Duration {
	var p *Problem
	if errors.As(err, &p) && (p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable) && p.RetryAfter > 0 {
		return min(p.RetryAfter, maxLater) + rand.N(time.Second)
	}
	return fetchLater
}

// open opens a session for this client. It repeats attempts that failed without a decision
// of the daemon.
func (g *guide) open(ctx context.Context) (held, error) {
	g.mu.Lock()
	claims := SessionClaims{Client: g.client, Project: g.o.Project}
	g.mu.Unlock()
	if claims.Client == nil {
		claims.Client = clientName(g.c.info)
	}
	for i := 0; ; i++ {
		s, err := g.c.OpenSession(ctx, claims)
		if err == nil {
			return ownSession(s), nil
		}
		if i == len(fetchAgain) || !undecided(err) || errors.Is(err, ErrNoDaemon) || errors.Is(err, ErrStatus(http.StatusTooManyRequests)) {
			return held{}, err
		}
		select {
		case <-ctx.Done():
			return held{}, err
		case <-time.After(fetchAgain[i]):
		}
	}
}

func ownSession(s *Session) held {
	h := held{token: s.Token, session: s.ID, own: true, expires: s.Expires, renew: s.RefreshAfter}
	if h.expires.IsZero() {
		h.expires = time.Now().Add(24 * time.Hour) // the longest lifetime of a session
	}
	return h
}

// undecided reports whether a failure is temporary, so that it is not the daemon's decision
// about the caller. A refusal is a decision, and so is a daemon without these routes.
func undecided(err error) bool {
	var p *Problem
	if errors.Is(err, errBadSession) {
		return false
	}
	return !errors.As(err, &p) || p.Status == http.StatusTooManyRequests || p.Status >= 500
}

func (g *guide) fromFile() (held, bool) {
	if g.o.RuntimeDir == "" {
		return held{}, false
	}
	f, _, err := TokenFromFile(g.o.RuntimeDir)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil || !presentable(f.Token) || f.Token == g.stale {
		return held{}, false
	}
	return held{token: f.Token, expires: f.Expires}, true
}

// renew replaces the token before it expires. A session that cannot be renewed further is
// replaced by a new one. After a failure the present token stays in use.
func (g *guide) renew(ctx context.Context) error {
	g.mu.Lock()
	before := g.held
	g.mu.Unlock()
	s, err := g.c.RenewSession(ctx, before.token)
	next := held{}
	switch {
	case err == nil && s.Expires.After(before.expires.Add(time.Minute)):
		next = ownSession(s)
	case err == nil || !undecided(err):
		next, err = g.open(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		g.hold(next)
	case g.held.token == "": // the token was refused meanwhile
		g.again = time.Now().Add(later(err))
	default:
		g.o.Log.Debug("the delivery session was not renewed", "err", err)
		g.held.renew = time.Now().Add(renewLater)
	}
	return nil
}

// refused drops a token that the daemon did not accept. After a second refusal in
// a row no token is requested for a while.
func (g *guide) refused(token string, last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case token == g.fixed:
		g.o.Log.Debug("the environment's token was refused", "variable", g.variable)
		g.fixed = ""
	case token == g.held.token:
		if !g.held.own {
			g.stale = token
		}
		g.hold(held{})
		if last {
			g.again = time.Now().Add(fetchLater)
		}
	}
}

// do sends a request with a token. A refused token is replaced once; then the request is
// sent without one. Repeating it is safe, because the daemon answers 401 before it reads
// the request's body.
func (g *guide) do(req *http.Request) (*http.Response, error) {
	for tries := 0; ; tries++ {
		token := ""
		if tries < 2 {
			var err error
			if token, err = g.token(req.Context()); err != nil {
				return nil, err
			}
		}
		req.Header.Del(protocol.HeaderSession)
		req.Header.Del(protocol.HeaderRenews)
		if token != "" {
			req.Header.Set(protocol.HeaderSession, token)
			req.Header.Set(protocol.HeaderRenews, "1")
		}
		resp, err := g.c.exchange(req)
		if err != nil || resp.StatusCode != http.StatusUnauthorized || token == "" {
			return resp, err
		}
		next, err := repeat(req)
		if err != nil {
			return resp, nil // it cannot be sent again
		}
		resp.Body.Close()
		g.refused(token, tries > 0)
		req = next
	}
}

// repeat returns a copy of the request with a fresh body.
func repeat(req *http.Request) (*http.Request, error) {
	next := req.Clone(req.Context())
	if req.Body == nil || req.Body == http.NoBody {
		return next, nil
	}
	if req.GetBody == nil {
		return nil, errors.New("the request body cannot be sent again")
	}
	body, err := req.GetBody()
	next.Body = body
	return next, err
}

// introduce keeps the name of the MCP client from its raw clientInfo. Without it a session
// has the name of this command.
func (g *guide) introduce(info []byte) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if said := clientName(info); g.client == nil && said.Name != "" {
		g.client = said
	}
}

// end ends the session that was opened for this client. If that fails, the daemon ends the
// session after the process has ended.
func (g *guide) end() {
	if g == nil {
		return
	}
	g.stop()
	g.mu.Lock()
	h := g.held
	g.held, g.again = held{}, time.Now().Add(24*time.Hour)
	g.mu.Unlock()
	if !h.own {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endBudget)
	defer cancel()
	if err := g.c.EndSession(ctx, h.token); err != nil {
		g.o.Log.Debug("the delivery session was not ended", "err", err)
	}
}
