package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// Defaults of [Options].
const (
	DefaultDial    = 10 * time.Second
	DefaultTLS     = 10 * time.Second
	DefaultHeader  = 10 * time.Minute
	DefaultIdle    = 90 * time.Second
	DefaultIdleMax = 256
	maxHeaderBytes = 64 << 10
	bufferBytes    = 4 << 10
	streamBytes    = 1 << 10
)

// Options configures a transport for one upstream. Zero durations mean the defaults, negative ones
// no limit.
type Options struct {
	AllowPrivate bool   // Policy.AllowPrivate
	Origin       string // Policy.Origin

	Dial   time.Duration // look-up and connect, all candidates together; default 10 s
	TLS    time.Duration // handshake; default 10 s
	Header time.Duration // from the request to the header of the answer; default 10 min, because a plain JSON answer comes when the tool is done
	Idle   time.Duration // an unused connection is closed after it; default 90 s

	// Proxy is the URL of an HTTP proxy for every connection that AllowPrivate does not open
	// directly; "": none. It comes from the configuration, never from the environment, and may be
	// at a private address.
	Proxy string

	MaxIdle int // unused connections kept; default 256
	// Await is the method of peer.Arrivals: f is called when data arrives on a connection. nil:
	// each silent stream is read by a goroutine.
	Await func(c net.Conn, f func()) (stop func() bool, err error)

	TLSConfig *tls.Config   // nil: the system's roots, the URL's name, TLS 1.2 and up
	Resolver  *net.Resolver // nil: the system's
}

// NewTransport makes the transport for one upstream. It uses only the configured proxy, whatever
// the environment says, does not decode bodies, and refuses every address that Policy does not
// allow with an error that wraps ErrForbidden.
func NewTransport(o Options) *http.Transport {
	proxy, dial := o.route()
	tlsConfig := o.TLSConfig.Clone()
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	idle := o.MaxIdle
	if idle == 0 {
		idle = DefaultIdleMax
	}
	return &http.Transport{
		Proxy:                  proxy,
		OnProxyConnectResponse: judgeConnect,
		DialContext:            dial,
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    limit(o.TLS, DefaultTLS),
		ResponseHeaderTimeout:  limit(o.Header, DefaultHeader),
		IdleConnTimeout:        limit(o.Idle, DefaultIdle),
		MaxIdleConns:           idle,
		MaxIdleConnsPerHost:    idle,
		MaxResponseHeaderBytes: maxHeaderBytes,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		ReadBufferSize:         bufferBytes,
		WriteBufferSize:        bufferBytes,
		// Pings detect a dead connection under a long stream, where no timeout runs.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// NewClient makes a client over NewTransport. It follows no redirect and returns it as the answer,
// keeps no cookie and sets no total time limit. Its errors are those of [Worded].
func NewClient(o Options) *http.Client {
	return &http.Client{
		Transport:     Worded{NewTransport(o)},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// limit converts a limit to the form of net/http: zero for none.
func limit(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return max(d, 0)
}

func dialer(o Options) func(ctx context.Context, network, hostport string) (net.Conn, error) {
	policy := Policy{AllowPrivate: o.AllowPrivate, Origin: o.Origin}
	return func(ctx context.Context, network, hostport string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(hostport)
		if err != nil {
			return nil, fmt.Errorf("reading the address to dial: %w", err)
		}
		if err := checkName(host); err != nil {
			return nil, err
		}
		policy := policy.at(hostport)
		d := net.Dialer{
			Timeout:  limit(o.Dial, DefaultDial),
			Resolver: o.Resolver,
			ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
				return policy.control(network, address)
			},
		}
		// Multipath TCP would bypass filters that only know TCP.
		d.SetMultipathTCP(false)
		return d.DialContext(ctx, network, hostport)
	}
}

// control judges the address to which the socket is about to connect.
func (p Policy) control(network, address string) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("dialling over %s: %w", network, ErrForbidden)
	}
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return errors.Join(fmt.Errorf("reading the address to dial: %w", err), ErrForbidden)
	}
	return p.Judge(target.Addr())
}
