package daemon

import (
	"strings"

	"github.com/doorward/doorward/internal/authn"
	"github.com/doorward/doorward/internal/listen"
)

func (d *Daemon) openAuth() error {
	d.auth = authn.New(authn.Options{UID: d.uid, Env: d.o.Token, File: d.o.TokenFile,
		Store: authn.NewStore(d.o.StateDir), OnProblem: func(text string) { d.log.Error(text) }})
	for _, p := range d.auth.Configured().Problems {
		d.log.Error(p)
	}
	return nil
}

// Credential is what the bind table is decided with.
func Credential(a *authn.Authenticator) listen.Credential {
	c := a.Configured()
	return listen.Credential{Set: c.Set, Made: c.Made, Problem: strings.Join(c.Problems, "; ")}
}
