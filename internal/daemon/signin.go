package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/signin"
)

// SignIn returns the sign-in settings of a server. It is false for a stdio server, for a
// refused one, for a server with an Authorization header, and for one whose sign-in is off.
func SignIn(s *config.Server, c *config.Config) (signin.Settings, bool) {
	if s.Kind == "stdio" || s.Refused != "" || s.Doorward.OAuth.Grant == "off" {
		return signin.Settings{}, false
	}
	for name := range s.Headers {
		if strings.EqualFold(name, "Authorization") {
			return signin.Settings{}, false
		}
	}
	o := s.Doorward.OAuth
	return signin.Settings{Server: s.Name, URL: s.URL.Reveal(), AllowPrivate: s.Doorward.AllowPrivate, Grant: o.Grant,
		ClientID: o.ClientID, ClientSecret: o.ClientSecret, MetadataURL: o.ClientMetadataURL, Issuer: o.AuthorizationServer,
		Scopes: o.Scopes, CallbackPort: o.CallbackPort, Proxy: c.Egress.Proxy}, true
}

// outward holds what the servers over the network share: the store of their tokens, and the
// log and record of sign-ins.
type outward struct {
	dir    string
	key    secret.Value
	log    *slog.Logger
	record func(action, server string)
	await  func(net.Conn, func()) (func() bool, error) // upstream.Deps.Await

	mu    sync.Mutex
	store *signin.Store // opened for the first server that needs it
	shut  string        // why the last attempt to open it failed, to report each reason once
}

func newOutward(o Options, log *audit.Log) *outward {
	return &outward{dir: o.StateDir, key: o.Config.Store.SignInKey, log: o.Log, record: func(action, server string) {
		log.Later(&audit.Record{Kind: audit.Event, Source: "upstream", Action: action, Resource: server})
	}}
}

// open returns the store; nil: it cannot be opened now.
func (o *outward) open() *signin.Store {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.store != nil {
		return o.store
	}
	store, err := signin.OpenStore(signin.Options{Dir: o.dir, Key: o.key})
	if err != nil {
		if o.shut != err.Error() {
			o.log.Error("sign-ins to servers are not available", "err", err)
		}
		o.shut = err.Error()
		return nil
	}
	o.store = store
	return store
}

// tokens makes the source of a server's tokens; nil: there is none.
func (o *outward) tokens(s signin.Settings) *tokens {
	store := o.open()
	if store == nil {
		return nil
	}
	src, err := signin.NewSource(s, store, o.log, func(what string) { o.record(what, s.Server) })
	if err != nil {
		o.log.Debug("a server has no sign-in", "server", s.Server, "err", err)
		return nil
	}
	return &tokens{src}
}

// circuit records that a server cannot be reached, or can be reached again.
func (o *outward) circuit(server string, open bool) {
	action := "upstream.reachable"
	if open {
		action = "upstream.unreachable"
	}
	o.record(action, server)
}

// tokens is a source that returns the errors of upstream.
type tokens struct{ *signin.Source }

// Authorize implements upstream.Credential.
func (t *tokens) Authorize(ctx context.Context) (string, error) {
	auth, err := t.Source.Authorize(ctx)
	return auth, inWords(err)
}

// Refused implements upstream.Credential.
func (t *tokens) Refused(ctx context.Context, used string, resp *http.Response) (bool, error) {
	again, err := t.Source.Refused(ctx, used, resp)
	return again, inWords(err)
}

func inWords(err error) error {
	if errors.Is(err, signin.ErrSignIn) {
		return needed{err}
	}
	return err
}

// needed is a sign-in error that matches upstream.ErrSignIn.
type needed struct{ error }

func (n needed) Unwrap() error { return n.error }

func (n needed) Is(target error) bool { return target == upstream.ErrSignIn }
