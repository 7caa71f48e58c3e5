package signin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Source provides the token for the requests to one server. It is safe for concurrent use.
type Source struct {
	target *target
	store  *Store
	log    *slog.Logger
	notice func(what string)

	now    atomic.Pointer[entry] // the sign-in that requests use; nil: none
	looked atomic.Int64          // when the sign-in was last found in the store, in Unix nanoseconds

	unwritten atomic.Pointer[entry] // a renewed sign-in that the store could not write; nil: none

	mu     sync.Mutex
	flight *flight   // a renewal under way; nil when none is
	need   string    // what a person has to do; "": nothing
	held   error     // error of the last renewal, while until is not reached
	until  time.Time // no renewal is tried before
	pause  time.Duration
	closed bool
}

// flight is one renewal, shared by all callers that wait for it.
type flight struct {
	done chan struct{} // closed when e and err are set
	e    *entry
	err  error
}

// Events of a Source, reported once for each change.
const (
	NoticeRenewed = "signin.renewed"
	NoticeNeeded  = "signin.needed"
	NoticeScopes  = "signin.scopes"
)

// NewSource makes the source of a server. An error is about the settings; the caller can then work without a
// source.
func NewSource(s Settings, store *Store, log *slog.Logger, notice func(what string)) (*Source, error) {
	t, err := newTarget(s)
	if err != nil {
		return nil, err
	}
	if notice == nil {
		notice = func(string) {}
	}
	src := &Source{target: t, store: store, log: log.With("server", s.Server), notice: notice}
	if e, ok := store.find(s.Server, t.resource); ok && t.Grant == GrantCode && e.Access != "" {
		src.now.Store(&e)
	}
	return src, nil
}

// Authorize returns the Authorization header for the next request, "" for none. A token that is about to expire
// is renewed first. If that fails, it is used until it has expired.
func (s *Source) Authorize(ctx context.Context) (string, error) {
	e := s.look(s.now.Load())
	if e == nil {
		return "", nil
	}
	if !e.spare(time.Now()) {
		renewed, err := s.early(ctx, e)
		switch {
		case err == nil:
			e = renewed
		case !e.good(time.Now()):
			return "", err
		}
	}
	return "Bearer " + e.Access, nil
}

// lookEvery is how soon a running daemon notices that the sign-in was removed, or made anew, perhaps for another account.
const lookEvery = 5 * time.Second

// look returns the sign-in to use in place of e: nil if it was removed, and a newer one of the store. An unwritten one
// is written.
func (s *Source) look(e *entry) *entry {
	now := time.Now().UnixNano()
	seen := s.looked.Load()
	if e == nil || s.target.Grant == GrantMachine || now-seen < int64(lookEvery) || !s.looked.CompareAndSwap(seen, now) {
		return e
	}
	if !s.store.has(*e) {
		s.now.CompareAndSwap(e, nil)
		return nil
	}
	go s.rewrite()
	if s.adopt(e.Access) {
		return s.now.Load()
	}
	return e
}

// patience is how long a request waits for a new token while the old one is still valid.
const patience = 3 * time.Second

func (s *Source) early(ctx context.Context, e *entry) (*entry, error) {
	if e.good(time.Now()) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	return s.renew(ctx, e.Access, challenge{})
}

// Refused handles the server's refusal of a request that carried used, which came from Authorize. again: the
// request should be sent once more, with a new result of Authorize. An error that wraps ErrSignIn says that a
// person has to sign in first.
func (s *Source) Refused(ctx context.Context, used string, resp *http.Response) (again bool, err error) {
	c := parseChallenge(resp.Header)
	token := ""
	if len(used) > len("Bearer ") {
		token = used[len("Bearer "):]
	}
	switch {
	case resp.StatusCode == http.StatusUnauthorized && c.wants():
		_, err = s.renew(ctx, token, c)
		return err == nil, err
	case resp.StatusCode == http.StatusForbidden && c.err == "insufficient_scope":
		return s.stepUp(ctx, token, c)
	}
	return false, nil
}

// Needs returns what a person has to do before this server answers again, "" for nothing. It checks whether
// that has been done meanwhile. trouble is the error if no token is available for another reason.
func (s *Source) Needs() (what string, trouble error) {
	s.mu.Lock()
	need := s.need
	s.mu.Unlock()
	if need != "" {
		s.adopt(s.carried())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.need, s.held
}

// carried returns the token that requests carry now.
func (s *Source) carried() string {
	if e := s.now.Load(); e != nil {
		return e.Access
	}
	return ""
}

// adopt takes a token other than used from the store, if a person has signed in meanwhile. A token that is about to
// end is taken only if it belongs to another sign-in, which may be of another account; Authorize renews it.
func (s *Source) adopt(used string) bool {
	e, ok := s.newest()
	before := s.now.Load()
	anew := before != nil && !e.Signed.Equal(before.Signed)
	if !ok || e.Access == used || !anew && !e.spare(time.Now()) || s.target.Grant == GrantMachine {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Store(&e)
	s.held, s.pause, s.until = nil, 0, time.Time{}
	s.settle("")
	return true
}

// renew returns a token other than used. One renewal runs at a time. It continues when ctx ends, because a
// refresh token that was exchanged and not stored would be lost.
func (s *Source) renew(ctx context.Context, used string, c challenge) (*entry, error) {
	s.mu.Lock()
	if e := s.now.Load(); e != nil && e.Access != used && e.spare(time.Now()) {
		s.mu.Unlock()
		return e, nil
	}
	f := s.flight
	switch {
	case f != nil:
	case s.closed:
		s.mu.Unlock()
		return nil, errors.New("the daemon is stopping")
	case time.Now().Before(s.until):
		defer s.mu.Unlock()
		return nil, s.held
	default:
		f = &flight{done: make(chan struct{})}
		s.flight = f
		go s.run(f, used, c)
	}
	s.mu.Unlock()
	select {
	case <-f.done:
		return f.e, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// renewTime bounds a whole renewal, including the wait for one of another process.
const renewTime = lockTime + fetchTime

func (s *Source) run(f *flight, used string, c challenge) {
	ctx, cancel := context.WithTimeout(context.Background(), renewTime)
	defer cancel()
	var e entry
	var err error
	if s.target.Grant == GrantMachine {
		e, err = s.machine(ctx, c)
	} else {
		e, err = s.person(ctx, used)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flight = nil
	defer close(f.done)
	if err != nil {
		f.err = fmt.Errorf("server %s: %w", s.target.Server, err)
		s.failed(f.err)
		return
	}
	f.e = &e
	s.now.Store(&e)
	s.held, s.pause, s.until = nil, 0, time.Time{}
	s.settle("")
}

// Pauses after a renewal that failed for another reason than a missing sign-in.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// failed records the error of a renewal. The caller holds mu.
func (s *Source) failed(err error) {
	if errors.Is(err, ErrSignIn) {
		s.now.Store(nil)
		s.settle("doorward login " + s.target.Server)
		return
	}
	s.pause = min(max(2*s.pause, firstPause), lastPause)
	s.held, s.until = err, time.Now().Add(s.pause)
	s.log.Warn("a token was not renewed", "err", err, "next", s.pause)
}

// settle sets what a person has to do, and reports a new need or a renewed token. The caller holds mu.
func (s *Source) settle(need string) {
	was := s.need
	s.need = need
	switch {
	case need != "" && was != need:
		s.log.Warn("sign-in needed", "hint", need)
		s.notice(NoticeNeeded)
	case need == "":
		s.log.Info("token renewed")
		s.notice(NoticeRenewed)
	}
}

// person renews a sign-in that a person consented to. It holds the server's lock in the store; of several
// processes the first one renews for all.
func (s *Source) person(ctx context.Context, used string) (e entry, err error) {
	lockErr := s.store.locked(s.target.Server, lockTime, func() error {
		var ok bool
		e, ok = s.newest()
		now := time.Now()
		switch {
		case !ok:
			err = ErrSignIn
		case e.Access != used && e.spare(now): // another process has renewed, or a person has signed in
		case e.Refresh == "", e.Access == used && e.recent(now) && e.spare(now): // it was refused, and another would be too
			err = ErrSignIn
		default:
			err = s.refresh(ctx, &e)
		}
		return nil
	})
	return e, errors.Join(lockErr, err)
}

// refresh exchanges the refresh token and stores the new tokens. The caller holds the lock.
func (s *Source) refresh(ctx context.Context, e *entry) error {
	values := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {e.Refresh}}
	who, ok := s.target.proof(*e)
	if !ok {
		return ErrSignIn // the configuration names another client now
	}
	got, err := s.target.grant(ctx, e.Token, who, e.Resource, values)
	var refused *grantError
	switch {
	case err == nil:
		e.take(got, time.Now())
		s.save(*e)
		return nil
	case errors.As(err, &refused) && refused.final():
		s.log.Warn("the sign-in has ended", "err", err)
		e.Access, e.Refresh = "", ""
		if refused.stranger() && e.Client.Made {
			e.Client = client{} // the next sign-in registers again
		}
		s.save(*e)
		return ErrSignIn
	case refused != nil && refused.unclear():
		return fmt.Errorf("%w; if that does not end, run doorward login %s", err, s.target.Server)
	}
	return err
}

// Close waits a moment for a renewal under way, and prevents new ones. It writes a sign-in that could not be written.
func (s *Source) Close() {
	defer s.rewrite()
	s.mu.Lock()
	s.closed = true
	f := s.flight
	s.mu.Unlock()
	if f == nil {
		return
	}
	select {
	case <-f.done:
	case <-time.After(closeTime):
	}
}

// closeTime is how long a stopping daemon waits for a renewal.
const closeTime = 2 * time.Second
