package library

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/upstream/egress"
)

// Remote is another Doorward, which gives its documents to a token of this one.
// What it gives is in memory alone, and is what the policy there lets that
// token read.
type Remote struct {
	URL string // https; http to this machine alone. The routes are below it
	// Authorize gives the value of the header Authorization; nil: none. Its error
	// is ErrCredential where there is none any more.
	Authorize func(ctx context.Context) (header string, err error)
	// Client makes the connections; nil: one of egress that reaches public
	// addresses. Redirects are not followed, whatever it says.
	Client *http.Client
	Every  time.Duration // between two refreshes; 0: 30 s
	Stale  time.Duration // how long the last set goes on in an outage; 0: 10 min
}

const (
	remoteEvery = 30 * time.Second
	remoteStale = 10 * time.Minute
	// firstTime is the budget of each request of the first attempt, which
	// somebody may be waiting for; laterTime that of those after it.
	firstTime = 2 * time.Second
	laterTime = 10 * time.Second
	// retryFirst is the pause after a failed attempt; it doubles up to Every.
	retryFirst = time.Second
)

// farState is how the remote is.
type farState struct {
	from     string // its origin, for the operator
	asked    bool
	stale    bool
	answered time.Time // when it was last heard whole; zero: never
	trouble  string    // of the last attempt
	refused  bool      // it took the credential away
	problems document.Problems
}

// judge: a remote that fails goes unnoticed by readers for a while.
func (s farState) judge(served int) State {
	out := State{Remote: true, Problems: s.problems}
	switch {
	case !s.asked:
		out.Reason = fmt.Sprintf("%s has not been asked yet", s.from)
	case s.refused:
		out.Withdrawn = true
		out.Reason = fmt.Sprintf("%s gives no documents: %s", s.from, s.trouble)
	case s.answered.IsZero():
		out.Reason = fmt.Sprintf("%s has not given its documents: %s", s.from, s.trouble)
	case s.stale:
		out.Reason = fmt.Sprintf("%s has not given its documents for too long: %s", s.from, s.trouble)
	case served == 0 && len(s.problems) > 0:
		out.Reason = fmt.Sprintf("none of the documents of %s can be used", s.from)
	default:
		out.OK = true
		if s.trouble != "" {
			out.Problems = append(slices.Clip(out.Problems), document.Problem{File: s.from, Line: 1, Warning: true,
				Text: "the last attempt failed; the earlier documents remain in force: " + s.trouble})
		}
	}
	return out
}

// remote asks. One goroutine uses it.
type remote struct {
	Remote
	base   *url.URL
	from   string
	client http.Client

	etag    string // of the list that the catalog is of
	catalog catalog
	begun   begun
}

func newRemote(o Remote) (*remote, error) {
	base, err := egress.CheckURL(o.URL)
	switch {
	case err != nil:
		return nil, err
	case base.Scheme != "https" && !isHere(base.Hostname()):
		return nil, errors.New("the scheme must be https")
	case base.RawQuery != "":
		return nil, errors.New("a query is not allowed")
	}
	o.Every, o.Stale = cmp.Or(o.Every, remoteEvery), cmp.Or(o.Stale, remoteStale)
	r := &remote{Remote: o, base: base, from: egress.Origin(base)}
	if o.Client == nil {
		o.Client = egress.NewClient(egress.Options{Origin: r.from, Header: laterTime, MaxIdle: fetchers})
	}
	r.client = *o.Client
	r.client.Jar = nil
	r.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return r, nil
}

func isHere(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// follower keeps a library as another Doorward serves it.
type follower struct{ l *Library }

// run asks the remote until ctx ends.
func (f follower) run(ctx context.Context) {
	defer f.l.remote.client.CloseIdleConnections()
	f.l.mu.Lock()
	f.l.farState.from = f.l.remote.from
	f.l.mu.Unlock()
	retry := retryFirst
	stale := time.AfterFunc(f.l.remote.Stale, func() {
		f.l.watcher.settle(func() { f.l.farState.stale = time.Since(f.l.farState.answered) >= f.l.remote.Stale })
	})
	defer stale.Stop()
	for first := true; ctx.Err() == nil; first = false {
		err := f.l.remote.refresh(ctx, first)
		if ctx.Err() != nil {
			return
		}
		wait := f.l.remote.Every
		if err != nil {
			wait, retry = min(retry, f.l.remote.Every), min(2*retry, f.l.remote.Every)
		} else {
			retry = retryFirst
			stale.Reset(f.l.remote.Stale)
		}
		f.l.watcher.settle(func() { f.came(err) })
		if first {
			close(f.l.ready)
		}
		pause(ctx, wait)
	}
}

// came takes over what an attempt gave. The caller holds mu.
func (f follower) came(err error) {
	s := &f.l.farState
	s.asked, s.trouble = true, ""
	if err != nil {
		s.trouble = err.Error()
		if s.refused = s.refused || errors.Is(err, ErrCredential); s.refused {
			f.l.far, s.problems = nil, nil
		}
		return
	}
	s.refused = false
	s.answered, s.stale = time.Now(), false
	f.l.far, s.problems = f.l.remote.catalog.content()
}
