package authn

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	jose "github.com/go-jose/go-jose/v4"
)

// allAlgorithms is the set of algorithms that can be configured: signatures that are
// verified with a public key. `none` proves nothing, and HMAC would use the issuer's
// public key as a shared secret.
var allAlgorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

// Bounds of an issuer's keys.
const (
	maxKeys = 64
	minRSA  = 2048 // bits
	maxRSA  = 8192
)

// signingKey is a public key of the issuer that may sign tokens.
type signingKey struct {
	id    string   // kid; may be empty
	algs  []string // the algorithms that it may be used with
	print string   // thumbprint (RFC 7638)
	key   crypto.PublicKey
}

// keyring holds the issuer's keys from one fetch. It is immutable.
type keyring struct {
	keys    []signingKey
	prints  map[string]bool
	fetched time.Time
}

var errKeys = errors.New("the key set is not readable")

// parseKeys parses a JWK set (RFC 7517, 5). It skips a key that cannot be used here and
// returns an error if b is not a key set.
func parseKeys(b []byte, now time.Time) (*keyring, error) {
	set, err := members(b)
	if err != nil {
		return nil, errKeys
	}
	var raws []json.RawMessage
	if set["keys"] == nil || json.Unmarshal(set["keys"], &raws) != nil || len(raws) > maxKeys {
		return nil, errKeys
	}
	r := &keyring{prints: make(map[string]bool), fetched: now}
	for _, raw := range raws {
		if k, ok := parseKey(raw); ok {
			r.keys = append(r.keys, k)
			r.prints[k.print] = true
		}
	}
	return r, nil
}

func parseKey(raw json.RawMessage) (signingKey, bool) {
	var jwk jose.JSONWebKey
	m, err := members(raw)
	if err != nil || jwk.UnmarshalJSON(raw) != nil || !jwk.Valid() || !jwk.IsPublic() {
		return signingKey{}, false
	}
	ops, ok := texts(m["key_ops"])
	if m["key_ops"] != nil && (!ok || !slices.Contains(ops, "verify")) || jwk.Use != "" && jwk.Use != "sig" {
		return signingKey{}, false
	}
	if _, ed := jwk.Key.(ed25519.PublicKey); ed && !isEd25519(m["x"]) {
		return signingKey{}, false
	}
	algs := algorithmsOf(jwk.Key)
	if jwk.Algorithm != "" {
		algs = slices.DeleteFunc(algs, func(a string) bool { return a != family(jwk.Algorithm) })
	}
	print, err := jwk.Thumbprint(crypto.SHA256)
	return signingKey{id: jwk.KeyID, algs: algs, print: string(print), key: jwk.Key}, err == nil && len(algs) > 0
}

// ed25519Alg is EdDSA with the curve Ed25519 (RFC 9864), the only curve that is supported here.
const ed25519Alg = "Ed25519"

// family returns the name by which an algorithm is configured and compared.
func family(alg string) string {
	if alg == ed25519Alg {
		return oidc.EdDSA
	}
	return alg
}

// algorithmsOf returns the algorithms that a key can be used with; none for a key of an
// unsupported type or size.
func algorithmsOf(key any) []string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits >= minRSA && bits <= maxRSA && k.E > 1 && k.E&1 == 1 {
			return []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512}
		}
	case *ecdsa.PublicKey:
		switch k.Curve.Params().BitSize {
		case 256:
			return []string{oidc.ES256}
		case 384:
			return []string{oidc.ES384}
		case 521:
			return []string{oidc.ES512}
		}
	case ed25519.PublicKey:
		return []string{oidc.EdDSA}
	}
	return nil
}

// isEd25519 checks the length of the key, because the parser pads a short key with
// zeros.
func isEd25519(x json.RawMessage) bool {
	var encoded string
	if !text(x, &encoded) {
		return false
	}
	b, err := base64.RawURLEncoding.DecodeString(encoded)
	return err == nil && len(b) == ed25519.PublicKeySize
}

// signed finds the key that signed t. named reports whether the key that t names is
// present, in which case fetching other keys is useless.
func (r *keyring) signed(t *jwt, issuer string, now time.Time) (print string, named bool) {
	if r == nil {
		return "", false
	}
	for _, k := range r.keys {
		if t.kid != "" && k.id != t.kid {
			continue
		}
		named = named || t.kid != ""
		if slices.Contains(k.algs, t.alg) && k.verifies(t, issuer, now) {
			return k.print, true
		}
	}
	return "", named
}

// verifies checks the signature. The library also checks the algorithm, the issuer and
// the expiry, a second time with another parser.
func (k *signingKey) verifies(t *jwt, issuer string, now time.Time) bool {
	var set oidc.KeySet = &oidc.StaticKeySet{PublicKeys: []crypto.PublicKey{k.key}}
	algs := []string{t.alg}
	if key, ok := k.key.(ed25519.PublicKey); ok {
		set, algs = edKey(key), append(algs, ed25519Alg)
	}
	v := oidc.NewVerifier(issuer, set, &oidc.Config{
		SkipClientIDCheck:    true, // check has compared the audience, which is not a client id
		SupportedSigningAlgs: algs,
		Now:                  func() time.Time { return now },
	})
	_, err := v.Verify(context.Background(), t.raw)
	return err == nil
}

// edKey verifies signatures under both names of the algorithm; the library knows one.
type edKey ed25519.PublicKey

// VerifySignature returns the payload of a token in the compact form.
func (k edKey) VerifySignature(_ context.Context, token string) ([]byte, error) {
	at := strings.LastIndexByte(token, '.')
	sig, err := base64.RawURLEncoding.Strict().DecodeString(token[at+1:])
	if err != nil || !ed25519.Verify(ed25519.PublicKey(k), []byte(token[:at]), sig) {
		return nil, badSignature
	}
	return base64.RawURLEncoding.Strict().DecodeString(token[strings.IndexByte(token, '.')+1 : at])
}

// wellKnown returns the locations of an issuer's metadata: RFC 8414 and OpenID Connect
// discovery (MCP, "Authorization Server Metadata Discovery").
func wellKnown(issuer string) []string {
	scheme, rest, _ := strings.Cut(strings.TrimSuffix(issuer, "/"), "://")
	host, path, deep := strings.Cut(rest, "/")
	root := scheme + "://" + host + "/.well-known/"
	if !deep {
		return []string{root + "oauth-authorization-server", root + "openid-configuration"}
	}
	return []string{root + "oauth-authorization-server/" + path, root + "openid-configuration/" + path,
		scheme + "://" + host + "/" + path + "/.well-known/openid-configuration"}
}
