package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/test/overload"
)

// target is a server on loopback that counts its connections.
type target struct {
	*httptest.Server
	conns    atomic.Int32
	requests atomic.Int32
}

func newTarget(t *testing.T, h http.HandlerFunc) *target {
	t.Helper()
	g := &target{}
	if h == nil {
		h = func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }
	}
	g.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.requests.Add(1)
		h(w, r)
	}))
	g.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			g.conns.Add(1)
		}
	}
	g.Start()
	t.Cleanup(g.Close)
	return g
}

func (g *target) port() string {
	_, port, _ := net.SplitHostPort(g.Listener.Addr().String())
	return port
}

func client(t *testing.T, o Options) *http.Client {
	t.Helper()
	c := NewClient(o)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func get(c *http.Client, url string) (string, error) {
	res, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}

func TestPrivateAddressesNeedPermission(t *testing.T) {
	t.Parallel()
	g := newTarget(t, nil)
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]"} {
		if _, err := get(client(t, Options{}), "http://"+host+":"+g.port()); !errors.Is(err, ErrForbidden) {
			t.Errorf("%s without permission: %v", host, err)
		}
	}
	if g.conns.Load() != 0 {
		t.Fatalf("%d connections arrived", g.conns.Load())
	}
	if body, err := get(client(t, Options{AllowPrivate: true}), g.URL); body != "hello" || err != nil {
		t.Fatalf("with permission: %q, %v", body, err)
	}
}

// Wildcard addresses and the like are refused even with permission for private addresses, because dialling them can
// reach a loopback listener.
func TestWildcardAddressesAreNeverDialled(t *testing.T) {
	t.Parallel()
	g := newTarget(t, nil)
	for _, host := range []string{"0.0.0.0", "[::]", "[::ffff:0.0.0.0]", "0.0.0.1", "[::127.0.0.1]", "169.254.169.254", "255.255.255.255"} {
		if _, err := get(client(t, Options{AllowPrivate: true}), "http://"+host+":"+g.port()); !errors.Is(err, ErrForbidden) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if g.conns.Load() != 0 {
		t.Fatalf("%d connections arrived", g.conns.Load())
	}
}

// Numeric hosts, which CheckURL refuses, do not reach loopback in a URL that was not checked either.
func TestNumericHostsDoNotReachLoopback(t *testing.T) {
	t.Parallel()
	g := newTarget(t, nil)
	ns := newNameServer(t)
	for _, host := range []string{"2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0", "１２７.0.0.1", "127.0.0.1."} {
		if _, err := get(client(t, Options{Resolver: ns.resolver()}), "http://"+host+":"+g.port()); err == nil {
			t.Errorf("%s was reached", host)
		}
	}
	if g.conns.Load() != 0 {
		t.Fatalf("%d connections arrived", g.conns.Load())
	}
}

func TestMetadataNamesAreNotLookedUp(t *testing.T) {
	t.Parallel()
	ns := newNameServer(t, netip.MustParseAddr("127.0.0.1"))
	c := client(t, Options{AllowPrivate: true, Resolver: ns.resolver()})
	for _, host := range []string{"metadata.google.internal", "a.METADATA.google.internal", "metadata.google.internal."} {
		if _, err := get(c, "http://"+host+"/"); !errors.Is(err, ErrForbidden) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if ns.asked.Load() != 0 {
		t.Fatalf("%d questions", ns.asked.Load())
	}
}

// A name that resolves to a public address when it is checked and to loopback when it is dialled (DNS rebinding) is
// refused at the dial.
func TestNameThatChangesItsAddressIsJudgedWhenDialled(t *testing.T) {
	t.Parallel()
	g := newTarget(t, nil)
	ns := newNameServer(t, netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("127.0.0.1"))
	r := ns.resolver()
	checked, err := r.LookupNetIP(t.Context(), "ip4", "rebind.example")
	if err != nil || (Policy{}).Judge(checked[0]) != nil {
		t.Fatalf("the first look-up should pass: %v, %v", checked, err)
	}
	_, err = get(client(t, Options{Resolver: r}), "http://rebind.example:"+g.port())
	if !errors.Is(err, ErrForbidden) || g.conns.Load() != 0 {
		t.Fatalf("%v, %d connections arrived", err, g.conns.Load())
	}
	// The name itself works, so what stopped it was the judgement.
	if body, err := get(client(t, Options{Resolver: r, AllowPrivate: true}), "http://rebind.example:"+g.port()); body != "hello" {
		t.Fatalf("with permission: %q, %v", body, err)
	}
}

func TestNamesOfForbiddenAddresses(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"169.254.169.254", "168.63.129.16", "100.100.100.200", "0.0.0.0", "224.0.0.1", "192.0.2.1"} {
		ns := newNameServer(t, netip.MustParseAddr(addr))
		_, err := get(client(t, Options{AllowPrivate: true, Resolver: ns.resolver()}), "http://innocent.example/")
		if !errors.Is(err, ErrForbidden) {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

func TestPermissionHoldsForItsOriginOnly(t *testing.T) {
	t.Parallel()
	own, other := newTarget(t, nil), newTarget(t, nil)
	u, err := CheckURL(own.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := client(t, Options{AllowPrivate: true, Origin: Origin(u)})
	if body, err := get(c, own.URL); body != "hello" || err != nil {
		t.Fatalf("own origin: %q, %v", body, err)
	}
	for _, url := range []string{other.URL, "http://localhost:" + own.port()} {
		if _, err := get(c, url); !errors.Is(err, ErrForbidden) {
			t.Errorf("%s: %v", url, err)
		}
	}
	if other.conns.Load() != 0 {
		t.Fatal("the other was reached")
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	victim := newTarget(t, nil)
	for _, status := range []int{301, 302, 303, 307, 308} {
		g := newTarget(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, victim.URL, status) })
		req, _ := http.NewRequest(http.MethodPost, g.URL, strings.NewReader("{}"))
		req.Header.Set("Authorization", "Bearer canary")
		res, err := client(t, Options{AllowPrivate: true}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != status || g.requests.Load() != 1 {
			t.Errorf("%d became %d after %d requests", status, res.StatusCode, g.requests.Load())
		}
	}
	if victim.conns.Load() != 0 {
		t.Fatal("a redirect was followed")
	}
}

// Not parallel: it changes the environment.
func TestProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	proxy := newTarget(t, nil)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	t.Setenv("NO_PROXY", "")
	ns := newNameServer(t, netip.MustParseAddr("127.0.0.1"))
	g := newTarget(t, nil)
	c := client(t, Options{AllowPrivate: true, Resolver: ns.resolver()})
	if _, err := get(c, "http://somewhere.example:"+g.port()); err != nil {
		t.Fatal(err)
	}
	if proxy.conns.Load() != 0 || g.conns.Load() != 1 {
		t.Fatalf("%d connections to the proxy, %d to the server", proxy.conns.Load(), g.conns.Load())
	}
}

func TestBodiesAreLeftAsTheyAre(t *testing.T) {
	t.Parallel()
	g := newTarget(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("Accept-Encoding")) })
	if body, err := get(client(t, Options{AllowPrivate: true}), g.URL); body != "" || err != nil {
		t.Fatalf("asked for encoding %q, %v", body, err)
	}
}

func TestConcurrentSessionsReuseConnections(t *testing.T) {
	t.Parallel()
	const sessions, rounds = 64, 10
	g := newTarget(t, nil)
	c := client(t, Options{AllowPrivate: true})
	for range rounds {
		var wg sync.WaitGroup
		for range sessions {
			wg.Go(func() {
				if _, err := get(c, g.URL); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	if n := g.conns.Load(); n > 2*sessions {
		t.Fatalf("%d connections for %d sessions", n, sessions)
	}
}

func TestLargeResponseHeaderIsRefused(t *testing.T) {
	t.Parallel()
	g := newTarget(t, func(w http.ResponseWriter, _ *http.Request) {
		for i := range 100 {
			w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", 1<<10))
		}
	})
	if _, err := get(client(t, Options{AllowPrivate: true}), g.URL); err == nil {
		t.Fatal("100 KiB of header passed")
	}
}

func TestTimeLimits(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	slow := newTarget(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, and never says a word
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	mute := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	for name, c := range map[string]struct {
		o   Options
		url string
	}{
		"header": {Options{Header: 50 * time.Millisecond}, slow.URL},
		"tls":    {Options{TLS: 50 * time.Millisecond}, "https://" + silent.Addr().String()},
		"dial":   {Options{Dial: 50 * time.Millisecond, Resolver: mute}, "http://slow.example/"},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.AllowPrivate = true
			began := time.Now()
			_, err := get(client(t, c.o), c.url)
			var timeout net.Error
			if !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Fatalf("want a timeout, got %v", err)
			}
			if took := time.Since(began); took > 5*time.Second+overload.Late() {
				t.Fatalf("took %v", took)
			}
		})
	}
}

func TestTLSVerifiesTheNameAndSpeaksHTTP2(t *testing.T) {
	t.Parallel()
	g := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	g.EnableHTTP2 = true
	g.Config.ErrorLog = nil
	g.StartTLS()
	t.Cleanup(g.Close)
	roots := x509.NewCertPool()
	roots.AddCert(g.Certificate())
	_, port, _ := net.SplitHostPort(g.Listener.Addr().String())
	ns := newNameServer(t, netip.MustParseAddr("127.0.0.1"))
	o := Options{AllowPrivate: true, Resolver: ns.resolver(), TLSConfig: &tls.Config{RootCAs: roots}}

	if proto, err := get(client(t, o), "https://example.com:"+port); proto != "HTTP/2.0" || err != nil {
		t.Fatalf("%q, %v", proto, err)
	}
	if _, err := get(client(t, o), "https://other.invalid:"+port); !errors.As(err, new(*tls.CertificateVerificationError)) {
		t.Fatalf("a certificate for another name: %v", err)
	}
	if _, err := get(client(t, Options{AllowPrivate: true, Resolver: ns.resolver()}), "https://example.com:"+port); err == nil {
		t.Fatal("an unknown authority passes")
	}
}

func TestControlRefusesWhatIsNotTCP(t *testing.T) {
	t.Parallel()
	p := Policy{AllowPrivate: true}
	for _, c := range [][2]string{{"unix", "/run/docker.sock"}, {"udp4", "8.8.8.8:53"}, {"tcp4", "nonsense"}, {"tcp4", ""}, {"tcp", "8.8.8.8:80"}} {
		if err := p.control(c[0], c[1]); !errors.Is(err, ErrForbidden) {
			t.Errorf("%v: %v", c, err)
		}
	}
	if err := p.control("tcp6", "[fe80::1%eth0]:80"); !errors.Is(err, ErrForbidden) {
		t.Errorf("a zone: %v", err)
	}
}

// nameServer answers every question for an IPv4 address with the next of its answers, the last one for ever; without
// any, with "no such name". It has no IPv6 addresses.
type nameServer struct {
	conn    net.PacketConn
	answers []netip.Addr
	asked   atomic.Int32
	given   int
}

func newNameServer(t *testing.T, answers ...netip.Addr) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ns := &nameServer{conn: conn, answers: answers}
	var wg sync.WaitGroup
	wg.Go(ns.serve)
	t.Cleanup(func() { conn.Close(); wg.Wait() })
	return ns
}

func (ns *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp4", ns.conn.LocalAddr().String())
	}}
}

func (ns *nameServer) serve() {
	buf := make([]byte, 1500)
	for {
		n, from, err := ns.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		ns.asked.Add(1)
		_, _ = ns.conn.WriteTo(ns.answer(buf[:n]), from)
	}
}

// answer repeats header and question and adds one record (RFC 1035, section 4).
func (ns *nameServer) answer(q []byte) []byte {
	end := 12
	for q[end] != 0 {
		end += 1 + int(q[end])
	}
	question := q[12 : end+5]
	isA := binary.BigEndian.Uint16(q[end+1:]) == 1
	out := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
	if len(ns.answers) == 0 {
		out[3] |= 3
		return out
	}
	if !isA {
		return out
	}
	out[7] = 1
	addr := ns.answers[min(ns.given, len(ns.answers)-1)].As4()
	ns.given++
	out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
	return append(out, addr[:]...)
}
