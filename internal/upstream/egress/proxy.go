package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
)

type (
	chooser = func(*http.Request) (*url.URL, error)
	dialing = func(ctx context.Context, network, hostport string) (net.Conn, error)
)

// proxied reports whether connections go through the proxy. A server that may be at a private
// address is reached directly.
func (o Options) proxied() bool { return o.Proxy != "" && !o.AllowPrivate }

// route returns how a transport dials: directly, or through the proxy and then only to the proxy's
// address.
func (o Options) route() (chooser, dialing) {
	if !o.proxied() {
		return nil, dialer(o)
	}
	proxy, err := CheckProxy(o.Proxy)
	if err != nil {
		return func(*http.Request) (*url.URL, error) { return nil, err }, dialer(o)
	}
	choose := func(r *http.Request) (*url.URL, error) {
		// The proxy dials, so the target is checked here as far as that is possible.
		if err := CheckLiteral(r.URL, false); err != nil {
			return nil, err
		}
		return proxy, nil
	}
	to := o
	to.AllowPrivate, to.Origin = true, Origin(proxy)
	return choose, dialer(to)
}

// CheckProxy parses the URL of a proxy: only scheme, host and port.
func CheckProxy(raw string) (*url.URL, error) {
	u, err := CheckURL(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("proxy: %w", err)
	case u.Path != "" && u.Path != "/", u.RawQuery != "", u.ForceQuery:
		return nil, errors.New("proxy: a path or query is not allowed")
	}
	return u, CheckLiteral(u, true)
}
