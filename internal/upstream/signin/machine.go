package signin

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"
)

// machine gets a token with the client's own secret. It is kept only in memory, because a new one needs no
// person.
func (s *Source) machine(ctx context.Context, c challenge) (entry, error) {
	t := s.target
	if e, now := s.now.Load(), time.Now(); e != nil && e.recent(now) && e.spare(now) && len(c.scopes) == 0 {
		return entry{}, errors.New("the server refuses a token that was just issued for it")
	}
	f, err := t.discover(ctx, c)
	if err != nil {
		return entry{}, err
	}
	cl, err := t.configured(f.meta, "")
	if err != nil {
		return entry{}, err
	}
	scopes := t.scopes(f, entry{Wanted: s.granted()})
	values := url.Values{"grant_type": {GrantMachine}}
	if len(scopes) > 0 {
		values.Set("scope", joinScopes(scopes))
	}
	got, err := t.grant(ctx, f.meta.Token, cl, f.resource, values)
	var refused *grantError
	switch {
	case errors.As(err, &refused) && refused.final():
		return entry{}, fmt.Errorf("%w: %w", ErrRefused, err)
	case err != nil:
		return entry{}, err
	}
	e := t.entry(f, cl, scopes)
	e.take(got, time.Now())
	return e, nil
}

// granted returns the scopes of the token in use, unless the operator has fixed the scopes.
func (s *Source) granted() []string {
	if e := s.now.Load(); e != nil && s.target.Scopes == nil {
		return e.Scopes
	}
	return nil
}

// stepUp handles a server that requires more scopes than were granted. With client credentials they are requested
// at once, unless the operator has fixed the scopes. For a person they are noted, with the granted ones, for the next
// sign-in.
func (s *Source) stepUp(ctx context.Context, used string, c challenge) (again bool, err error) {
	e := s.now.Load()
	if e == nil {
		return false, nil
	}
	missing := slices.ContainsFunc(c.scopes, func(w string) bool { return !slices.Contains(e.Scopes, w) })
	if s.target.Grant == GrantMachine {
		if !missing || s.target.Scopes != nil {
			return false, nil
		}
		_, err = s.renew(ctx, used, c)
		return err == nil, err
	}
	if s.adopt(used) {
		return true, nil
	}
	if missing {
		err = s.want(c.scopes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.need == "" {
		s.need = "doorward login " + s.target.Server
		s.log.Warn("the server asks for more scopes", "hint", s.need, "scopes", len(c.scopes))
		s.notice(NoticeScopes)
	}
	return false, errors.Join(fmt.Errorf("server %s asks for more scopes: %w", s.target.Server, ErrSignIn), err)
}

// want notes scopes for the next sign-in.
func (s *Source) want(scopes []string) error {
	return s.store.locked(s.target.Server, lockTime, func() error {
		e, ok := s.newest()
		if !ok {
			return nil
		}
		e.Wanted = union(e.Scopes, e.Wanted, scopes)
		return s.store.write(e)
	})
}
