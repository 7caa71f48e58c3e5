package daemon

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/doorward/doorward/internal/authn"
	"github.com/doorward/doorward/internal/front"
	"github.com/doorward/doorward/internal/listen"
	"github.com/doorward/doorward/internal/principal"
)

type callerKey struct{}

// connContext stamps a connection with what is known of it, once: the
// requests on it only look it up.
func (d *Daemon) connContext(l *listen.Listener) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, c net.Conn) context.Context {
		ctx = l.ConnContext(ctx, c)
		o := listen.From(ctx)
		if o == nil {
			return ctx
		}
		return context.WithValue(ctx, callerKey{}, callerOf(o))
	}
}

// callerOf translates what listen knows into what authn wants to know.
func callerOf(o *listen.Origin) *authn.Caller {
	return &authn.Caller{Unix: o.Peer, Loopback: o.Listener.Loopback, Enforce: o.Listener.AuthEnforced, Listener: o.Listener.Spec.Addr,
		OwnerUID: o.OwnerUID, OwnerKnown: o.Owner == listen.OwnerSame || o.Owner == listen.OwnerOther, Remote: o.Remote.Addr()}
}

// screen is the Host and Origin check of every request (threats R1 to R4).
func screen(r *http.Request) bool {
	o := listen.From(r.Context())
	if o == nil || !o.HostAllowed(r.Host) {
		return false
	}
	origins := r.Header["Origin"]
	switch len(origins) {
	case 0:
		return sameSite(r.Header["Sec-Fetch-Site"])
	case 1:
		return origins[0] != "" && o.OriginAllowed(origins[0])
	}
	return false
}

// sameSite refuses what a browser says comes from another site and hides its
// Origin.
func sameSite(v []string) bool {
	for _, s := range v {
		if s != "same-origin" && s != "none" {
			return false
		}
	}
	return true
}

// authenticate says who is calling.
func (d *Daemon) authenticate(r *http.Request) (*principal.Principal, error) {
	c, _ := r.Context().Value(callerKey{}).(*authn.Caller)
	if c == nil {
		return nil, authn.ErrUnauthenticated
	}
	who, err := d.auth.Authenticate(c, r.Header["Authorization"])
	if errors.Is(err, authn.ErrTooMany) {
		return nil, front.ErrLimited
	}
	return who, err
}

// refusedAtDoor records a refusal before any principal was known.
func (d *Daemon) refusedAtDoor(r *http.Request, status int) {
	where := ""
	if o := listen.From(r.Context()); o != nil {
		where = o.Listener.URL()
	}
	source, reason := "listen", "Host or Origin not allowed"
	if status != http.StatusForbidden {
		source, reason = "auth", "not authenticated"
	}
	d.events.add(source, "http", where, reason)
}
