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

// GuideOptions say where the token of a delivery session comes from.
type GuideOptions struct {
	// Env is the environment, as os.LookupEnv; nil: there is none. A token in it
	// is presented as it is and never replaced by one of another source.
	Env func(string) (string, bool)
	// Ask makes a session of the client's own at the first need. Without it that
	// happens only once a call was refused for want of guidance.
	Ask bool
	// Behind has that session made beside the requests, none of which waits: for
	// routes where nothing is greeted with guidance.
	Behind bool
	// RuntimeDir is where session files are, for when the daemon cannot make a
	// session now; empty: nowhere.
	RuntimeDir string
	Project    string       // label of the project, claimed
	Log        *slog.Logger // nil: silent. No part of a token is ever written to it
}

// Guide makes requests to servers bear the token of a delivery session, from
// now on; once, before the first. Without a token, or with one that is refused,
// they go on as they would have: guidance is then missing, and nothing else.
// Close ends a session that was made for this client.
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
	// fetchBudget is the longest that a request waits for one: a client's first
	// request must be answered in time whatever happens.
	fetchBudget = 2 * time.Second
	// askBudget is the part of it for the daemon; a session file has the rest.
	askBudget = 1800 * time.Millisecond
	// fetchLater is the pause after a failure. Requests stop waiting for a token
	// until an attempt has succeeded.
	fetchLater = 30 * time.Second
	// maxLater bounds what a daemon can make us wait.
	maxLater = 5 * time.Minute
	// renewLater is the pause after a renewal that failed.
	renewLater = time.Minute
	// endBudget is for the end of a session, whose process is about to go.
	endBudget = 500 * time.Millisecond
)

// fetchAgain are the pauses before further attempts.
var fetchAgain = [...]time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond}

// guide keeps the token that a client presents.
//
// Invariants: the token is in memory alone; one of the environment has no
// successor; one attempt to get another runs at a time; and no request waits for
// one longer than fetchBudget, nor again soon after that was in vain.
type guide struct {
	c    *Client
	o    GuideOptions
	ctx  context.Context // of attempts: no request's end ends one
	stop context.CancelFunc

	variable string // of the environment's token; empty: none is set

	mu     sync.Mutex
	fixed  string // the environment's token; empty: none, or it was refused
	client *ClientName
	held   held
	try    *attempt      // under way; nil: none
	again  time.Time     // of the next attempt after one in vain; zero: none was
	wanted bool          // a call was refused for want of a token
	stale  string        // a session file's token that was refused
	change chan struct{} // closed when held is another session's
}

// held is a token with what is known of it.
type held struct {
	token   string
	session string // its id; empty: not known
	own     bool   // made for this client, so it is renewed and ended
	expires time.Time
	renew   time.Time // when to ask for the next; zero: never
}

// attempt is one way to a token. err is set before done is closed.
type attempt struct {
	done chan struct{}
	err  error
}

// token returns the token to present now, empty for none. ErrNoDaemon: no daemon
// listens.
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

// await waits for an attempt.
func (g *guide) await(ctx context.Context, a *attempt) (string, error) {
	select {
	case <-a.done:
	case <-ctx.Done():
		return "", nil // the request ends by itself
	case <-time.After(fetchBudget):
		return "", nil // a file system may hang
	}
	if errors.Is(a.err, ErrNoDaemon) {
		return "", a.err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held.token, nil
}

// begin starts an attempt, or gives the one that is under way. g.mu is held.
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
		return err // the request finds out too, and knows what to do
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

// later is the pause after err: as long as the daemon says, where many clients
// of one user have come at once, or its database is away. The spread keeps them
// from coming at once again.
func later(err error) time.Duration {
	var p *Problem
	if errors.As(err, &p) && (p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable) && p.RetryAfter > 0 {
		return min(p.RetryAfter, maxLater) + rand.N(time.Second)
	}
	return fetchLater
}

// open makes a session of the client's own, and tries again where that may help.
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
		h.expires = time.Now().Add(24 * time.Hour) // none lives longer
	}
	return h
}

// undecided reports whether a failure leaves open what the daemon thinks of the
// caller. A daemon without these routes, or one that refuses, has decided.
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

// renew replaces the token before it expires. A session that cannot be renewed
// further is followed by a new one; until then the token is as good as it was.
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
	case g.held.token == "": // it was refused meanwhile
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

// do sends a request with a token. One that is refused is replaced once, and
// then the request goes on without: a 401 comes before anything of the request
// was looked at.
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
		resp, err := g.c.http.Do(req)
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

// repeat is the same request again.
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

// introduce keeps what the MCP client calls itself, raw as it said it. Without
// it a session is the command's own.
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

// end ends the session that was made for this client. Without it the daemon
// ends it too, once the process has gone.
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
