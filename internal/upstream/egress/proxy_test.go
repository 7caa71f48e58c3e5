package egress

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/doortest"
)

// proxyServer takes CONNECT and absolute requests, notes their targets, and leads every connection to one address.
type proxyServer struct {
	*target
	asked chan string
}

func newProxy(t *testing.T, to string) *proxyServer {
	p := &proxyServer{asked: make(chan string, 16)}
	p.target = newTarget(t, func(w http.ResponseWriter, r *http.Request) {
		p.asked <- r.Method + " " + r.Host + " " + r.Header.Get("Authorization")
		if r.Method != http.MethodConnect {
			io.WriteString(w, "by proxy")
			return
		}
		out, err := net.Dial("tcp", to)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusOK)
		in, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		go func() { io.Copy(out, bufio.NewReader(buf)); out.Close() }()
		io.Copy(in, out)
		in.Close()
	})
	return p
}

func through(t *testing.T, o Options) *http.Client {
	t.Helper()
	tr := NewRoundTripper(o)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// A configured proxy carries requests to public servers over HTTP and HTTPS, and may have a private address. It gets
// names, which are not looked up here.
func TestConfiguredProxyCarriesWhatIsPublic(t *testing.T) {
	t.Parallel()
	p := newProxy(t, fmt.Sprintf("127.0.0.1:%d", doortest.FreePort(t)))
	ns := newNameServer(t)
	c := through(t, Options{Proxy: p.URL, Resolver: ns.resolver()})
	if body, err := get(c, "http://mcp.example/x"); body != "by proxy" || err != nil {
		t.Errorf("plain: %q %v", body, err)
	}
	if got := <-p.asked; got != "GET mcp.example " {
		t.Errorf("it was asked for %q", got)
	}
	if _, err := get(c, "https://mcp.example/x"); err == nil {
		t.Error("a request succeeded through a proxy that cannot reach the server")
	}
	if got := <-p.asked; got != "CONNECT mcp.example:443 " {
		t.Errorf("it was asked for %q", got)
	}
	if ns.asked.Load() != 0 {
		t.Error("a name was looked up here")
	}
}

// A proxy is not asked for an address or a name that may not be dialled directly. What a name resolves to at the proxy
// is not known here.
func TestProxyIsNotAskedForForbiddenAddresses(t *testing.T) {
	t.Parallel()
	p := newProxy(t, "")
	c := through(t, Options{Proxy: p.URL})
	for _, host := range []string{"127.0.0.1", "localhost", "10.0.0.1", "169.254.169.254", "[::1]", "[64:ff9b::a9fe:a9fe]", "0.0.0.0",
		"metadata.google.internal", "100.100.100.200"} {
		for _, scheme := range []string{"http", "https"} {
			if _, err := get(c, scheme+"://"+host+"/"); !errors.Is(err, ErrForbidden) {
				t.Errorf("%s://%s: %v", scheme, host, err)
			}
		}
	}
	if n := p.conns.Load(); n != 0 {
		t.Errorf("it was asked %d times", n)
	}
}

// A server with permission for private addresses is dialled directly. The proxy's own address cannot be used as a
// server.
func TestProxyIsNotForPrivateServers(t *testing.T) {
	t.Parallel()
	g := newTarget(t, nil)
	p := newProxy(t, "")
	u, err := CheckURL(g.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := through(t, Options{Proxy: p.URL, AllowPrivate: true, Origin: Origin(u)})
	if body, err := get(c, g.URL); body != "hello" || err != nil {
		t.Errorf("%q %v", body, err)
	}
	if p.conns.Load() != 0 {
		t.Error("the proxy was asked")
	}
	if _, err := get(through(t, Options{Proxy: p.URL}), p.URL); !errors.Is(err, ErrForbidden) {
		t.Errorf("the proxy as a server: %v", err)
	}
}

// The proxy is judged when it is dialled: it may be private, and never a metadata service or what resolves to one.
func TestProxyIsJudgedToo(t *testing.T) {
	t.Parallel()
	p := newProxy(t, "")
	host := p.Listener.Addr().String()
	for raw, forbidden := range map[string]bool{"http://169.254.169.254:80": true, "http://metadata.google.internal": true, "http://0.0.0.0:" + p.port(): true, "ftp://" + host: false,
		"http://user@" + host: false, p.URL + "/path": false, p.URL + "?q=1": false, host: false, "http://[::1%25lo]:" + p.port(): false} {
		if _, err := CheckProxy(raw); err == nil || errors.Is(err, ErrForbidden) != forbidden {
			t.Errorf("%s is taken: %v", raw, err)
		}
		if _, err := get(through(t, Options{Proxy: raw}), "http://mcp.example/"); err == nil || errors.Is(err, ErrForbidden) != forbidden {
			t.Errorf("a request through the proxy %s: %v", raw, err)
		}
	}
	if n := p.conns.Load(); n != 0 {
		t.Errorf("the proxy was dialled %d times", n)
	}
	if body, err := get(through(t, Options{Proxy: p.URL}), "http://mcp.example/"); body != "by proxy" {
		t.Errorf("the same proxy without any of this: %q %v", body, err)
	}
	ns := newNameServer(t, netip.MustParseAddr("169.254.169.254"))
	_, err := get(through(t, Options{Proxy: "http://proxy.example:3128", Resolver: ns.resolver()}), "http://mcp.example/")
	if !errors.Is(err, ErrForbidden) || !strings.Contains(err.Error(), "metadata") {
		t.Errorf("a proxy at the metadata service: %v", err)
	}
}
