package signin

import (
	"context"
	"errors"
	"strings"
	"time"
)

func joinScopes(scopes []string) string { return strings.Join(scopes, " ") }

// Listed is one sign-in in the form that may be shown.
type Listed struct {
	Server   string    `json:"server"`
	Issuer   string    `json:"issuer"`
	Resource string    `json:"resource"`
	Scopes   []string  `json:"scopes"`
	Signed   time.Time `json:"signed_in"`
	Expires  time.Time `json:"expires,omitzero"` // of the access token
	Renews   bool      `json:"renews"`           // renewed without a person
	State    string    `json:"state"`            // ok, or sign-in needed
}

// List lists the sign-ins. sealed counts files that the key does not open.
func (s *Store) List() (all []Listed, sealed int, err error) {
	entries, sealed, err := s.all()
	all = []Listed{}
	for _, e := range entries {
		l := Listed{Server: e.Server, Issuer: e.Issuer, Resource: e.Resource, Scopes: e.Scopes, Signed: e.Signed, Expires: e.Expires,
			Renews: e.Refresh != "", State: "ok"}
		if l.Scopes == nil {
			l.Scopes = []string{}
		}
		if !l.Renews && !e.good(time.Now()) || len(e.Wanted) > 0 {
			l.State = "sign-in needed"
		}
		all = append(all, l)
	}
	return all, sealed, err
}

var errNotTold = errors.New("the authorization server was not informed: it has no revocation endpoint, or the server is no longer configured")

// Logout removes the sign-ins of a server, and revokes their tokens at the authorization server if settings are
// given and it supports that. gone counts the removed ones. told is nil if the tokens are revoked there too.
func (s *Store) Logout(ctx context.Context, server string, settings *Settings) (gone int, revoked error, err error) {
	var dropped []entry
	err = s.locked(server, lockTime, func() error {
		dropped, err = s.drop(server, "")
		return err
	})
	if err != nil || settings == nil {
		return len(dropped), errNotTold, err
	}
	t, err := newTarget(*settings)
	if err != nil {
		return len(dropped), err, nil
	}
	for _, e := range dropped {
		if revoked == nil {
			revoked = t.forget(ctx, e)
		}
	}
	return len(dropped), revoked, nil
}

// forget revokes an entry's tokens. With a refresh token its access tokens end too (RFC 7009, section 2.1).
func (t *target) forget(ctx context.Context, e entry) error {
	token := e.Refresh
	if token == "" {
		token = e.Access
	}
	switch {
	case token == "":
		return nil
	case e.Revocation == "" || e.URL != t.resource:
		return errNotTold
	}
	who, ok := t.proof(e)
	if !ok {
		return errNotTold
	}
	return t.revoke(ctx, e.Revocation, who, token)
}
