package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
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
		return func(*http.Request) (*url.URL, error) { return nil, unusable{err} }, dialer(o)
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

// unusable is the error of each request under a configuration whose proxy cannot be used. Its text
// does not quote the URL.
type unusable struct{ error }

func (u unusable) Error() string {
	return "egress.proxy of the configuration cannot be used: " + u.error.Error()
}
func (u unusable) Unwrap() error { return u.error }

// ErrUnconnected is wrapped by the error of a request over TLS or through a proxy for which there
// was no connection: nothing of it was sent.
var ErrUnconnected = errors.New("no connection")

// unconnected is an error that wraps ErrUnconnected and keeps its text.
type unconnected struct{ error }

func (u unconnected) Unwrap() error      { return u.error }
func (unconnected) Is(target error) bool { return target == ErrUnconnected }

// connected makes a request over TLS or through a proxy. The errors of net/http do not tell
// whether the connection failed or the request, so the trace does.
func connected(by http.RoundTripper, req *http.Request) (*http.Response, error) {
	var got atomic.Bool
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { got.Store(true) }})
	resp, err := by.RoundTrip(req.WithContext(ctx))
	if err != nil && !got.Load() && ctx.Err() == nil {
		err = unconnected{err}
	}
	return resp, err
}

var errProxyRefused = errors.New("the proxy did not connect to the server")

// judgeConnect replaces the error of net/http, whose text is the proxy's.
func judgeConnect(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		return errProxyRefused
	}
	return nil
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
