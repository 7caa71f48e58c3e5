package library

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/upstream/egress"
)

// Remote is another Doorward, which gives its documents to a token of this one. They are
// kept in memory only, and are those that the policy there lets the token read.
type Remote struct {
	URL string // https, or http to this machine; the routes are below it
	// Authorize returns the value of the header Authorization, "" for none; nil: none is sent. Its
	// error is ErrCredential if there is no credential any more.
	Authorize func(ctx context.Context) (header string, err error)
	// Refused handles a 401 or 403 to a request that carried header; nil: it is final.
	// again: the request is sent once more, with a new result of Authorize. Its error is
	// like that of Authorize.
	Refused func(ctx context.Context, header string, resp *http.Response) (again bool, err error)
	// Client makes the connections; nil: a client of package egress that reaches public
	// addresses. Redirects are never followed.
	Client *http.Client
	Every  time.Duration // between two refreshes; 0: 30 s
	Stale  time.Duration // how long the last set is served in an outage; 0: 10 min
}

const (
	remoteEvery = 30 * time.Second
	remoteStale = 10 * time.Minute
	// firstTime limits each request of the first attempt, which callers may be waiting
	// for; laterTime limits the requests of later attempts.
	firstTime = 2 * time.Second
	laterTime = 10 * time.Second
	// retryFirst is the pause after a failed attempt; it doubles up to Every.
	retryFirst = time.Second
)

const (
	maxList  = 8 << 20  // bytes of a list
	maxReply = 2 << 20  // bytes of one document as JSON, in which a byte may need six
	maxFar   = 64 << 20 // bytes of all texts
	fetchers = 4        // concurrent requests
)

// farState is the state of the remote.
type farState struct {
	from     string // its origin, for the operator
	asked    bool
	stale    bool
	answered time.Time // when a refresh last succeeded; zero: never
	trouble  string    // the error of the last attempt
	refused  bool      // it refuses the credential
	problems document.Problems
}

// judge returns the state of a library with a remote. Failures shorter than Stale do not
// affect readers.
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

// remote fetches the documents. Only one goroutine uses it.
type remote struct {
	Remote
	base   *url.URL
	from   string
	client http.Client

	etag    string // of the list behind catalog
	catalog catalog
	begun   begun
}

// catalog is the result of one list.
type catalog struct {
	docs    map[string]farDocument
	refused document.Problems // problems of entries that were not fetched
}

// content returns the documents in the order of their names, and the problems of the
// others.
func (c catalog) content() (docs []*document.Document, problems document.Problems) {
	problems = c.refused
	for _, name := range slices.Sorted(maps.Keys(c.docs)) {
		f := c.docs[name]
		problems = append(slices.Clip(problems), f.why...)
		if f.doc != nil {
			docs = append(docs, f.doc)
		}
	}
	return docs, problems
}

// farDocument is the result of one entry of the remote's list.
type farDocument struct {
	listed Listed
	doc    *document.Document // nil: refused
	why    document.Problems
	again  bool // the answer was wrong, not the document: it is fetched again
	came   bool // there was an answer
	bytes  int64
}

// begun holds the documents of a list that was not fetched completely.
type begun struct {
	etag string // of the list; empty: nothing is kept
	list []Listed
	got  map[string]farDocument
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
