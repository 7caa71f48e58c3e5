package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/downstream/authn"
	"github.com/doorward/doorward/internal/downstream/listen"
)

func (d *Daemon) openAuth() error {
	if err := d.openOAuth(); err != nil {
		return err
	}
	ids, err := tokenIDKey(filepath.Join(d.o.StateDir, "seal.key"))
	if err != nil {
		return err
	}
	d.callers.auth = authn.New(authn.Options{UID: d.uid, Env: d.o.Token, File: d.o.TokenFile, IDKey: ids,
		Store: authn.NewStore(d.o.StateDir), OAuth: d.issuer.oauth, Spawned: d.agents.authenticated, OnProblem: tokenProblems(d.log)})
	for _, p := range d.callers.auth.Configured().Problems {
		d.log.Error(p)
	}
	return nil
}

// tokenProblems returns a function that logs that a source of tokens or of keys became unusable
// or, with over, usable again.
func tokenProblems(log *slog.Logger) func(text string, over bool) {
	return func(text string, over bool) {
		level := slog.LevelError
		if over {
			level = slog.LevelInfo
		}
		log.Log(context.Background(), level, text)
	}
}

// Credential returns the credentials for the bind table. A configured issuer counts as set,
// because its tokens are accepted wherever a token is enforced.
func Credential(a *authn.Authenticator, config *config.Config) listen.Credential {
	c := a.Configured()
	return listen.Credential{Set: c.Set || config.OAuth.Issuer != "", Made: c.Made,
		Unusable: strings.Join(c.Unusable, "; "), Problem: strings.Join(c.Problems, "; ")}
}

// openOAuth makes the verifier of the issuer's tokens, if an issuer is configured.
func (d *Daemon) openOAuth() error {
	c := d.o.Config.OAuth
	if c.Issuer == "" {
		return nil
	}
	client, err := issuerClient(c, d.o.Config.Egress.Proxy)
	if err != nil {
		return fmt.Errorf("oauth.issuer: %w", err)
	}
	o, err := authn.NewOAuth(authn.OAuthOptions{Issuer: c.Issuer, Audience: c.Audience, Scopes: c.Scopes,
		Algorithms: c.Algorithms, Client: client, OnProblem: tokenProblems(d.log)})
	if err != nil {
		return err
	}
	d.issuer.oauth = o
	d.onClose(func() {
		o.Close()
		client.CloseIdleConnections()
	})
	return nil
}
