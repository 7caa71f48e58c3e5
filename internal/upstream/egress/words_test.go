package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

const echoed = "5ecret-echo"

// everything returns the text of an error in every form in which it may be
// shown, and the text of the error inside a *url.Error.
func everything(err error) string {
	text := fmt.Sprintf("%v|%s|%q|%+v", err, err, err, err)
	if inner := errors.Unwrap(err); inner != nil && fmt.Sprintf("%T", err) == "*url.Error" {
		text += "|" + inner.Error()
	}
	return text
}

// clients returns the clients by which upstreams are asked over plain HTTP.
func clients(t *testing.T, o Options) map[string]*http.Client {
	t.Helper()
	plain := NewRoundTripper(o)
	t.Cleanup(plain.CloseIdleConnections)
	c := NewClient(o)
	t.Cleanup(c.CloseIdleConnections)
	return map[string]*http.Client{"plain": {Transport: plain}, "net/http": c}
}

func exchange(c *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+echoed)
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	return err
}

// TestErrorsOfExchangesRepeatNothing has upstreams repeat a secret at every
// place of an answer, and looks for it in the error.
func TestErrorsOfExchangesRepeatNothing(t *testing.T) {
	t.Parallel()
	answers := doortest.Echoes(echoed)
	l := listening(t)
	doortest.Serve(t, l, func(r *http.Request) string { return answers[r.URL.Query().Get("n")] })
	failed := 0
	for how, c := range clients(t, Options{AllowPrivate: true}) {
		for _, name := range doortest.Names(answers) {
			err := exchange(c, "http://"+l.Addr().String()+"/?n="+strings.ReplaceAll(name, " ", "+"))
			if err == nil {
				continue
			}
			failed++
			if doortest.Repeats(everything(err), echoed) {
				t.Errorf("%s, %s: %v", how, name, err)
			}
		}
	}
	if failed < 20 {
		t.Errorf("only %d exchanges failed: the answers are not what they were", failed)
	}
}

func listening(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// Errors do not repeat a proxy's refusal of CONNECT, which net/http quotes.
func TestErrorsOfProxiesRepeatNothing(t *testing.T) {
	t.Parallel()
	answers := doortest.Echoes(echoed)
	var now string
	failed := map[string]int{}
	l := listening(t)
	doortest.Serve(t, l, func(*http.Request) string { return answers[now] })
	for _, scheme := range []string{"http", "https"} {
		for _, name := range doortest.Names(answers) {
			now = name
			c := NewClient(Options{Proxy: "http://" + l.Addr().String()})
			err := exchange(c, scheme+"://upstream.example/")
			if err != nil {
				failed[scheme]++
			}
			if err != nil && doortest.Repeats(everything(err), echoed) {
				t.Errorf("%s, %s: %v", scheme, name, err)
			}
			c.CloseIdleConnections()
		}
	}
	if failed["https"] != len(answers) || failed["http"] < 10 || failed["http"] == len(answers) { // an answer to CONNECT is never the upstream's
		t.Errorf("only %v exchanges of %d failed: the answers are not what they were", failed, len(answers))
	}
}

// certificate is one that names the secret wherever it can.
func certificate(t *testing.T, end time.Time, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	who := pkix.Name{CommonName: echoed, Organization: []string{echoed}, SerialNumber: echoed}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: who, Issuer: who, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: end,
		DNSNames: names, BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func pool(t *testing.T, c tls.Certificate) *x509.CertPool {
	t.Helper()
	cert, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	p := x509.NewCertPool()
	p.AddCert(cert)
	return p
}

func TestErrorsOfTLSRepeatNothing(t *testing.T) {
	t.Parallel()
	tomorrow := time.Now().Add(24 * time.Hour)
	other, stranger := certificate(t, tomorrow, echoed+".example"), certificate(t, tomorrow, "localhost", echoed+".example")
	expired := certificate(t, time.Now().Add(-time.Hour), "localhost", echoed+".example")
	for what, c := range map[string]struct {
		cert  tls.Certificate
		roots *x509.CertPool
		says  string
	}{
		"authority": {stranger, x509.NewCertPool(), "not trusted here"},
		"host":      {other, pool(t, other), "for another name"},
		"expired":   {expired, pool(t, expired), "expired"},
	} {
		l := tls.NewListener(listening(t), &tls.Config{Certificates: []tls.Certificate{c.cert}, MinVersion: tls.VersionTLS12})
		doortest.Serve(t, l, func(*http.Request) string { return "" })
		_, port, _ := net.SplitHostPort(l.Addr().String())
		o := Options{AllowPrivate: true, TLSConfig: &tls.Config{RootCAs: c.roots, MinVersion: tls.VersionTLS12}}
		err := exchange(NewClient(o), "https://localhost:"+port+"/")
		if err == nil || doortest.Repeats(everything(err), echoed) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
		var kind *tls.CertificateVerificationError
		if !errors.As(err, &kind) {
			t.Errorf("%s: its kind is lost: %T", what, err)
		}
	}
}

// Errors repeat neither the bytes of an upstream without TLS nor the debug data
// of a GOAWAY of HTTP/2.
func TestErrorsBelowHTTPRepeatNothing(t *testing.T) {
	t.Parallel()
	l := listening(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, echoed+strings.Repeat(echoed, 10))
			c.Close()
		}
	}()
	if err := exchange(NewClient(Options{AllowPrivate: true}), "https://"+l.Addr().String()+"/"); err == nil || doortest.Repeats(everything(err), echoed) || !strings.Contains(err.Error(), "it does not speak TLS") {
		t.Errorf("no TLS: %v", err)
	}

	cert := certificate(t, time.Now().Add(time.Hour), "localhost")
	farewell := tls.NewListener(listening(t), &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	t.Cleanup(func() { farewell.Close() })
	go func() {
		for {
			c, err := farewell.Accept()
			if err != nil {
				return
			}
			go sayGoodbye(c)
		}
	}()
	_, port, _ := net.SplitHostPort(farewell.Addr().String())
	o := Options{AllowPrivate: true, TLSConfig: &tls.Config{RootCAs: pool(t, cert), MinVersion: tls.VersionTLS12}}
	if err := exchange(NewClient(o), "https://localhost:"+port+"/"); err == nil || doortest.Repeats(everything(err), echoed) {
		t.Errorf("GOAWAY: %v", err)
	}
}

// sayGoodbye answers the first request of an HTTP/2 connection with GOAWAY and
// debug data (RFC 9113, 6.8).
func sayGoodbye(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	preface := make([]byte, 24)
	if _, err := io.ReadFull(r, preface); err != nil || !bytes.HasPrefix(preface, []byte("PRI ")) {
		return
	}
	frame := func(kind byte, payload []byte) {
		head := make([]byte, 9)
		binary.BigEndian.PutUint32(head, uint32(len(payload))<<8|uint32(kind))
		_, _ = c.Write(append(head, payload...))
	}
	frame(4, nil) // SETTINGS
	for {
		var head [9]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		length := int64(binary.BigEndian.Uint32(head[:]) >> 8)
		if _, err := io.CopyN(io.Discard, r, length); err != nil {
			return
		}
		if head[3] == 1 { // HEADERS
			frame(7, append([]byte{0, 0, 0, 1, 0, 0, 0, 2}, echoed...)) // GOAWAY: last stream 1, INTERNAL_ERROR
			_ = c.(interface{ CloseWrite() error }).CloseWrite()        // a Close could reset before it is read
			_, _ = io.Copy(io.Discard, r)
			return
		}
	}
}

// Errors of look-ups do not repeat the name: that of an authorization server
// comes from the server that names it.
func TestErrorsOfLookUpsRepeatNothing(t *testing.T) {
	t.Parallel()
	for how, c := range clients(t, Options{Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no network")
	}}}) {
		err := exchange(c, "http://"+echoed+".example/")
		var u *url.Error
		if !errors.As(err, &u) || doortest.Repeats(everything(u.Err), echoed) || !strings.Contains(err.Error(), "looking up its name") {
			t.Errorf("%s: %v", how, err)
		}
	}
}

// Errors say what comes from this machine: the address that was dialled, a
// refused connection, a forbidden class. The operator has to know what to
// change.
func TestErrorsOfExchangesSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	l := listening(t)
	addr := l.Addr().String()
	l.Close()
	for how, c := range clients(t, Options{AllowPrivate: true}) {
		if err := exchange(c, "http://"+addr+"/"); err == nil || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("%s: %v", how, err)
		}
		if err := exchange(c, "http://169.254.169.254/"); !errors.Is(err, ErrForbidden) || !strings.Contains(err.Error(), "cloud metadata") {
			t.Errorf("%s: %v", how, err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
		if _, err := c.Do(req); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", how, err)
		}
	}
}
