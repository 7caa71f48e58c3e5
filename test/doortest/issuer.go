package doortest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	jose "github.com/go-jose/go-jose/v4"
)

// Issuer is an authorization server for tests, with metadata and keys over https on loopback and
// a certificate signed by CA. Mint makes its tokens, valid and invalid ones.
type Issuer struct {
	URL string // the issuer, without a slash at its end
	CA  []byte // PEM; a client must trust it to reach the issuer

	server *httptest.Server
	over   chan struct{}

	mu   sync.Mutex
	mode string
	keys []issuerKey // the published keys; the first one signs by default
	all  map[string]issuerKey
	hits map[string]int

	grants map[string]codeGrant
	asked  []string
}

type issuerKey struct {
	id  string
	key crypto.Signer
}

// NewIssuer starts an Issuer at /realm, with the keys rsa, ec, ed and weak (too short to be
// accepted). Close ends it.
func NewIssuer() (*Issuer, error) {
	i := &Issuer{all: make(map[string]issuerKey), hits: make(map[string]int), over: make(chan struct{}), grants: make(map[string]codeGrant)}
	for _, id := range []string{"rsa", "ec", "ed", "weak"} {
		if _, err := i.Publish(id); err != nil {
			return nil, err
		}
	}
	cert, ca, err := loopbackCertificate()
	if err != nil {
		return nil, err
	}
	i.CA = ca
	i.server = httptest.NewUnstartedServer(i)
	i.server.Config.ErrorLog = log.New(io.Discard, "", 0) // hides errors of clients that do not trust it
	i.server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	i.server.StartTLS()
	i.URL = i.server.URL + "/realm"
	return i, nil
}

// Close ends the issuer and its open answers.
func (i *Issuer) Close() {
	close(i.over)
	i.server.CloseClientConnections()
	i.server.Close()
}

// Client returns a client that trusts the issuer's certificate and follows no redirect.
func (i *Issuer) Client() *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(i.CA)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Set changes the answers:
//
//	good          OpenID Connect discovery, nothing else
//	rfc8414       RFC 8414 metadata, nothing else
//	html          a page at every other place
//	other-issuer  metadata that names another issuer
//	no-jwks       metadata without jwks_uri
//	http-jwks     metadata whose jwks_uri is not https
//	foreign-jwks  metadata whose jwks_uri is of another origin, on this host too
//	redirect      every metadata place redirects to a good document
//	redirect-jwks so does the key set
//	huge, huge-jwks    documents of 2 MiB
//	broken-jwks   a key set that is none
//	failing       500 for everything
//	slow          every answer takes longer than any client waits
//	barred        its clients get no tokens for themselves
//	down          every connection is cut
func (i *Issuer) Set(mode string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mode = mode
}

// Hits returns the number of requests whose path has this suffix.
func (i *Issuer) Hits(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := 0
	for p, hits := range i.hits {
		if strings.HasSuffix(p, path) {
			n += hits
		}
	}
	return n
}

// Publish adds the key of a name to the key set, and makes the key if it does not exist. The
// beginning of the name is the kind of the key.
func (i *Issuer) Publish(id string) (crypto.Signer, error) {
	k, err := i.key(id)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = append(i.keys, k)
	return k.key, nil
}

// Withdraw removes a key from the key set.
func (i *Issuer) Withdraw(id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	kept := i.keys[:0]
	for _, k := range i.keys {
		if k.id != id {
			kept = append(kept, k)
		}
	}
	i.keys = kept
}

func (i *Issuer) key(id string) (issuerKey, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if k, ok := i.all[id]; ok {
		return k, nil
	}
	key, err := newKey(id)
	if err != nil {
		return issuerKey{}, fmt.Errorf("making the key %s: %w", id, err)
	}
	i.all[id] = issuerKey{id, key}
	return i.all[id], nil
}

func newKey(id string) (crypto.Signer, error) {
	switch kind, _, _ := strings.Cut(id, "-"); kind {
	case "rsa":
		return rsa.GenerateKey(rand.Reader, 2048)
	case "weak":
		return rsa.GenerateKey(rand.Reader, 1024)
	case "ec":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ec384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ed":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return nil, errors.New("no such kind")
}

// ServeHTTP implements http.Handler.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	mode := i.mode
	i.hits[r.URL.Path]++
	i.mu.Unlock()
	switch mode {
	case "slow":
		select {
		case <-i.over:
		case <-r.Context().Done():
		}
		return
	case "down":
		panic(http.ErrAbortHandler)
	case "failing":
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	oidc := r.URL.Path == "/realm/.well-known/openid-configuration"
	rfc := r.URL.Path == "/.well-known/oauth-authorization-server/realm"
	switch {
	case r.URL.Path == "/jwks" || r.URL.Path == "/jwks-moved":
		i.serveKeys(w, r, mode)
	case r.URL.Path == "/realm/authorize":
		i.authorize(w, r)
	case r.URL.Path == "/realm/token":
		i.token(w, r)
	case r.URL.Path == "/moved":
		i.serveMetadata(w, mode)
	case mode == "redirect" && (oidc || rfc):
		http.Redirect(w, r, "/moved", http.StatusFound)
	case mode == "rfc8414" && rfc, mode != "rfc8414" && oidc:
		i.serveMetadata(w, mode)
	case mode == "html":
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<h1>Welcome</h1>")
	default:
		http.NotFound(w, r)
	}
}

func (i *Issuer) serveMetadata(w http.ResponseWriter, mode string) {
	m := map[string]any{"issuer": i.URL, "jwks_uri": i.server.URL + "/jwks", "token_endpoint": i.URL + "/token",
		"authorization_endpoint": i.URL + "/authorize", "response_types_supported": []string{"code"},
		"code_challenge_methods_supported": []string{"S256"}, "authorization_response_iss_parameter_supported": true,
		"token_endpoint_auth_methods_supported": []string{"none", "client_secret_post"}}
	switch mode {
	case "other-issuer":
		m["issuer"] = "https://other.example.com"
	case "no-jwks":
		delete(m, "jwks_uri")
	case "http-jwks":
		m["jwks_uri"] = strings.Replace(i.server.URL, "https:", "http:", 1) + "/jwks"
	case "foreign-jwks":
		m["jwks_uri"] = strings.Replace(i.server.URL, "127.0.0.1", "localhost", 1) + "/jwks"
	case "huge":
		m["padding"] = strings.Repeat("x", 2<<20)
	}
	_ = json.NewEncoder(w).Encode(m) // the client may have left
}

func (i *Issuer) serveKeys(w http.ResponseWriter, r *http.Request, mode string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case mode == "redirect-jwks" && r.URL.Path == "/jwks":
		http.Redirect(w, r, "/jwks-moved", http.StatusFound)
		return
	case mode == "broken-jwks":
		fmt.Fprint(w, `{"keys":`)
		return
	}
	set := map[string]any{}
	var keys []any
	for _, k := range i.keys {
		keys = append(keys, publicJWK(k))
	}
	// Entries that a client has to skip.
	set["keys"] = append(keys, map[string]string{"kty": "XX"}, map[string]string{"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0", "kid": "shared"})
	if mode == "huge-jwks" {
		set["padding"] = strings.Repeat("x", 2<<20)
	}
	_ = json.NewEncoder(w).Encode(set) // the client may have left
}

func publicJWK(k issuerKey) jose.JSONWebKey {
	return jose.JSONWebKey{Key: k.key.Public(), KeyID: k.id, Use: "sig"}
}

// loopbackCertificate returns a certificate for loopback and the PEM of the authority that signed
// it.
func loopbackCertificate() (tls.Certificate, []byte, error) {
	none := tls.Certificate{}
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return none, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return none, nil, err
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	root, err := x509.CreateCertificate(rand.Reader, ca, ca, authority.Public(), authority)
	if err != nil {
		return none, nil, err
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter}
	cert, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), authority)
	if err != nil {
		return none, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{cert}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root}), nil
}
