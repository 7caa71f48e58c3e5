package authn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Times and bounds for fetching the issuer's keys. Tokens with unknown keys cause at
// most one fetch every refreshEvery.
const (
	fetchTime    = 10 * time.Second // all documents together
	patience     = 5 * time.Second  // how long a request waits for them
	maxDocument  = 512 << 10        // bytes
	refreshEvery = 10 * time.Second // after a successful fetch
	firstRetry   = time.Second      // after a failed fetch; doubled each time
	lastRetry    = time.Minute
	freshKeys    = 15 * time.Minute // older keys are fetched again in the background
	oldKeys      = 24 * time.Hour   // older keys are not used
)

// issuer fetches the keys of one authorization server through its metadata. While it
// cannot be reached, the known keys stay in use for oldKeys.
type issuer struct {
	ctx     context.Context // ends with the daemon
	url     string
	client  *http.Client
	now     func() time.Time
	problem func(text string, over bool)
	changed func(*keyring)
	waits   time.Duration // patience, except in tests

	ring atomic.Pointer[keyring]

	mu     sync.Mutex
	flight *fetch        // the running fetch; nil: none
	next   time.Time     // time before which no fetch starts
	wait   time.Duration // delay until the next try after a failure
	found  string        // the place where the metadata was found last
	said   string        // the problem that was reported last
}

// fetch is one fetch of the issuer's documents. err is set before done closes.
type fetch struct {
	done chan struct{}
	err  error
}

// current returns the known keys, or nil, and starts a fetch when they are old.
func (s *issuer) current(now time.Time) *keyring {
	r := s.ring.Load()
	if r == nil {
		return nil
	}
	age := now.Sub(r.fetched)
	if age > freshKeys {
		s.start(now)
	}
	if age > oldKeys {
		return nil
	}
	return r
}

// renewed fetches the issuer's keys and waits for them. since reports whether the fetch
// began after the call, not for an earlier caller.
func (s *issuer) renewed(now time.Time) (r *keyring, since bool, err error) {
	f, since := s.start(now)
	if f == nil {
		return nil, false, ErrUnverifiable
	}
	select {
	case <-f.done:
	case <-time.After(s.waits):
		return nil, false, ErrUnverifiable
	}
	if f.err != nil {
		return nil, false, ErrUnverifiable
	}
	return s.ring.Load(), since, nil
}

// start begins a fetch or joins the running one; nil: the next fetch may not start yet.
func (s *issuer) start(now time.Time) (f *fetch, ours bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight != nil {
		return s.flight, false
	}
	if now.Before(s.next) {
		return nil, false
	}
	f = &fetch{done: make(chan struct{})}
	s.flight = f
	go s.run(f, s.found)
	return f, true
}

func (s *issuer) run(f *fetch, found string) {
	ctx, cancel := context.WithTimeout(s.ctx, fetchTime)
	defer cancel()
	ring, found, err := s.get(ctx, found)
	if err == nil {
		s.ring.Store(ring)
		s.changed(ring)
	}
	s.mu.Lock()
	if err == nil {
		s.found, s.wait, s.next = found, 0, s.now().Add(refreshEvery)
	} else {
		s.wait = min(max(2*s.wait, firstRetry), lastRetry)
		s.found, s.next = "", s.now().Add(s.wait)
	}
	s.flight = nil
	text, over := s.report(ring, err)
	s.mu.Unlock()
	if text != "" && s.ctx.Err() == nil {
		s.problem(text, over)
	}
	f.err = err
	close(f.done)
}

// report returns text for the operator about a new problem or its end; empty: no
// change. over reports its end. The caller holds mu.
func (s *issuer) report(ring *keyring, err error) (text string, over bool) {
	before := s.said
	switch {
	case err != nil:
		s.said = "the keys of the oauth issuer " + s.url + " are not available: " + err.Error()
	case len(ring.keys) == 0:
		s.said = "the oauth issuer " + s.url + " has no key that may sign access tokens"
	default:
		s.said = ""
	}
	switch {
	case s.said == before:
		return "", false
	case s.said == "":
		return "the keys of the oauth issuer " + s.url + " are available again", true
	}
	return s.said, false
}

// get fetches the metadata and then the keys. It tries the place where the metadata was
// found last first.
func (s *issuer) get(ctx context.Context, found string) (*keyring, string, error) {
	places := wellKnown(s.url)
	if i := slices.Index(places, found); i > 0 {
		places = append([]string{found}, slices.Delete(places, i, i+1)...)
	}
	var missing []string
	for _, place := range places {
		keys, err := s.metadata(ctx, place)
		var absent *absentError
		if errors.As(err, &absent) {
			missing = append(missing, place+": "+absent.why)
			continue
		}
		if err != nil {
			return nil, "", err
		}
		b, err := s.document(ctx, keys)
		if err != nil {
			return nil, "", fmt.Errorf("jwks_uri: %w", err)
		}
		ring, err := parseKeys(b, s.now())
		if err != nil {
			err = fmt.Errorf("jwks_uri: %w", err)
		}
		return ring, place, err
	}
	return nil, "", errors.New("no metadata: " + strings.Join(missing, "; "))
}

// absentError means that there is no document at a place; another place may have it.
type absentError struct{ why string }

func (e *absentError) Error() string { return e.why }

// metadata returns the location of the keys. A document that names another issuer ends
// the search, because one issuer must not answer for another.
func (s *issuer) metadata(ctx context.Context, place string) (keys string, err error) {
	b, err := s.document(ctx, place)
	if err != nil {
		return "", fmt.Errorf("metadata: %w", err)
	}
	m, err := members(b)
	if err != nil {
		return "", &absentError{"not a JSON object"}
	}
	var iss string
	if !text(m["issuer"], &iss) || iss != s.url {
		return "", fmt.Errorf("metadata: it names another issuer, %.100q", iss)
	}
	if m["jwks_uri"] == nil {
		return "", &absentError{"it names no jwks_uri"}
	}
	if !text(m["jwks_uri"], &keys) || !isHTTPS(keys) {
		return "", errors.New("metadata: its jwks_uri is not an https address")
	}
	return keys, nil
}

func isHTTPS(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && u.Scheme == "https" && u.Host != "" && u.User == nil && u.Fragment == ""
}

// document fetches one document of bounded size.
func (s *issuer) document(ctx context.Context, place string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, place, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json, application/jwk-set+json")
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return nil, &absentError{"a redirect, which is not followed"}
	case resp.StatusCode >= 400 && resp.StatusCode < 500:
		return nil, &absentError{"status " + resp.Status[:3]}
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err == nil && len(b) > maxDocument {
		err = fmt.Errorf("longer than %d KiB", maxDocument>>10)
	}
	return b, err
}
