package listen

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// writePair writes a fresh self-signed pair and returns its certificate.
func writePair(t *testing.T, certFile, keyFile string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "doorward test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600)); err != nil {
		t.Fatal(err)
	}
	return der
}

func TestAConnectionOverTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := Spec{Network: "tcp", Addr: "127.0.0.1:0", CertFile: filepath.Join(dir, "c"), KeyFile: filepath.Join(dir, "k")}
	der := writePair(t, s.CertFile, s.KeyFile)
	l := mustOpen(t, s, Credential{}, Options{})
	if !l.TLS || !strings.HasPrefix(l.URL(), "https://127.0.0.1:") {
		t.Errorf("TLS %v, URL %s", l.TLS, l.URL())
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if o := originOf(l, c); o == nil || o.Listener != l || o.Owner == OwnerNone {
				t.Errorf("origin %+v", o)
			}
			wg.Go(func() { c.(*tls.Conn).Handshake(); c.Close() })
		}
	})
	pool := x509.NewCertPool()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(cert)
	c, err := tls.Dial("tcp", l.Addr(), &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	if p := c.ConnectionState().NegotiatedProtocol; p != "http/1.1" {
		t.Errorf("negotiated %q", p)
	}
	c.Close()
	old := &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	if c, err := tls.Dial("tcp", l.Addr(), old); err == nil {
		c.Close()
		t.Error("TLS 1.1 was accepted")
	}
	l.Close()
	wg.Wait()
}

func TestAChangedCertificateIsTakenOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "c"), filepath.Join(dir, "k")
	first := writePair(t, certFile, keyFile)
	var notices []string
	c, err := newCertificate(certFile, keyFile, func(s string) { notices = append(notices, s) })
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	later := func() time.Time { now = now.Add(2 * time.Second); return now }
	serves := func(want []byte, when time.Time) bool { return bytes.Equal(c.current(when).Certificate[0], want) }

	if !serves(first, later()) || len(notices) != 0 {
		t.Errorf("unchanged files: notices %q", notices)
	}
	second := writePair(t, certFile, keyFile)
	if !serves(first, now) {
		t.Error("the files were checked twice within a second")
	}
	if !serves(second, later()) || len(notices) != 1 {
		t.Errorf("a new pair was not taken over: %q", notices)
	}
	// With a key that does not match the certificate the pair in use stays,
	// with one notice.
	writePair(t, filepath.Join(dir, "c3"), keyFile)
	for range 2 {
		if !serves(second, later()) || len(notices) != 2 {
			t.Errorf("half a change: %q", notices)
		}
	}
	os.Remove(keyFile)
	if !serves(second, later()) || len(notices) != 3 {
		t.Errorf("a missing key: %q", notices)
	}
	third := writePair(t, certFile, keyFile)
	if !serves(third, later()) || len(notices) != 4 {
		t.Errorf("mended: %q", notices)
	}
}

func TestACertificateThatDoesNotLoadIsRefusedBeforeTheBind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // a bind would fail with another reason
	_, err = Open(t.Context(), Spec{Network: "tcp", Addr: l.Addr().String(), CertFile: dir + "/none", KeyFile: dir + "/none"}, Credential{}, Options{})
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("%v", err)
	}
}

func TestACertificateOfAnotherDirectoryIsNotTakenOver(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tls")
	pair := func() []byte {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		return writePair(t, filepath.Join(dir, "c"), filepath.Join(dir, "k"))
	}
	first := pair()
	var notices []string
	c, err := newCertificate(filepath.Join(dir, "c"), filepath.Join(dir, "k"), func(s string) { notices = append(notices, s) })
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	pair()
	if !bytes.Equal(c.current(time.Now().Add(3 * time.Second)).Certificate[0], first) || len(notices) != 1 || !strings.Contains(notices[0], "another directory") {
		t.Errorf("%q", notices)
	}
}
