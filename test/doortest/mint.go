package doortest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// Mint makes an access token from fields NAME=VALUE. Without fields it is a token of the subject
// ada for an hour, signed with the key rsa by RS256, and without an audience.
//
//	iss, aud, sub, scope, client_id, azp, cnf   claims; aud with commas is a list; empty: left out
//	exp, nbf, iat   a time from now such as 1h or -5s; empty: left out
//	alg, typ, kid, jku, x5u, crit, jwk   the header; jwk=KEY embeds a key; empty: left out
//	key=ID          the key that signs, whatever kid says; it need not be published
//	claim=NAME:JSON one claim more
//	flip=header|payload|signature   change one bit of that part afterwards
//	raw=JSON        the payload as it stands here
func (i *Issuer) Mint(fields ...string) (string, error) {
	now := time.Now()
	header := map[string]any{"alg": "RS256", "typ": "at+jwt"}
	claims := map[string]any{"iss": i.URL, "sub": "ada", "exp": now.Add(time.Hour).Unix(), "iat": now.Unix(), "jti": rand.Text()}
	m := minting{key: "rsa", header: header, claims: claims}
	for _, f := range fields {
		name, value, ok := strings.Cut(f, "=")
		if !ok {
			return "", fmt.Errorf("a field without a value: %s", f)
		}
		if err := m.field(i, name, value, now); err != nil {
			return "", err
		}
	}
	return m.token(i)
}

type minting struct {
	key, flip, raw string
	header, claims map[string]any
}

func (m *minting) field(i *Issuer, name, value string, now time.Time) error {
	into := m.claims
	var v any = value
	switch name {
	case "iss", "sub", "scope", "client_id", "azp":
	case "aud":
		if strings.Contains(value, ",") {
			v = strings.Split(value, ",")
		}
	case "cnf":
		v = map[string]string{"jkt": value}
	case "exp", "nbf", "iat":
		if d, err := time.ParseDuration(value); err == nil {
			v = float64(now.Add(d).UnixMilli()) / 1000
		}
	case "alg", "typ", "kid", "jku", "x5u":
		into = m.header
	case "crit":
		into, v = m.header, strings.Split(value, ",")
	case "jwk":
		k, err := i.key(value)
		if err != nil {
			return err
		}
		into, v = m.header, publicJWK(k)
	case "claim":
		claim, text, _ := strings.Cut(value, ":")
		name, v = claim, json.RawMessage(text)
	case "key":
		m.key = value
		return nil
	case "flip":
		m.flip = value
		return nil
	case "raw":
		m.raw = value
		return nil
	default:
		return fmt.Errorf("no such field: %s", name)
	}
	if into[name] = v; value == "" {
		delete(into, name)
		into["\x00"+name] = true // kid must not be set again
	}
	return nil
}

func (m *minting) token(i *Issuer) (string, error) {
	if m.header["kid"] == nil && m.header["\x00kid"] == nil {
		m.header["kid"] = m.key
	}
	for _, part := range []map[string]any{m.header, m.claims} {
		for name := range part {
			if name[0] == 0 {
				delete(part, name)
			}
		}
	}
	header, err := json.Marshal(m.header)
	if err != nil {
		return "", err
	}
	payload := []byte(m.raw)
	if m.raw == "" {
		if payload, err = json.Marshal(m.claims); err != nil {
			return "", err
		}
	}
	k, err := i.key(m.key)
	if err != nil {
		return "", err
	}
	alg, _ := m.header["alg"].(string)
	parts := []string{encode(header), encode(payload)}
	sig, err := sign(alg, k.key, []byte(parts[0]+"."+parts[1]))
	if err != nil {
		return "", fmt.Errorf("signing by %s with %s: %w", alg, m.key, err)
	}
	return flipped(m.flip, append(parts, encode(sig))), nil
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// flipped joins the parts after changing one bit in the middle of one of them.
func flipped(part string, parts []string) string {
	for n, name := range []string{"header", "payload", "signature"} {
		if part == name {
			b := []byte(parts[n])
			at := len(b) / 2
			for bit := byte(1); bit < 128; bit <<= 1 {
				if strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", b[at]^bit) >= 0 {
					b[at] ^= bit
					break
				}
			}
			parts[n] = string(b)
		}
	}
	return strings.Join(parts, ".")
}

// sign signs with the algorithm, also with ones that no issuer should use: `none`, and HMAC with
// the public key as its secret.
func sign(alg string, key crypto.Signer, text []byte) ([]byte, error) {
	if alg == "none" {
		return nil, nil
	}
	if alg == "HS256" {
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		mac := hmac.New(sha256.New, der)
		mac.Write(text)
		return mac.Sum(nil), err
	}
	if k, ok := key.(ed25519.PrivateKey); ok {
		return ed25519.Sign(k, text), nil
	}
	hash := map[string]crypto.Hash{"256": crypto.SHA256, "384": crypto.SHA384, "512": crypto.SHA512}[alg[max(0, len(alg)-3):]]
	if hash == 0 {
		hash = crypto.SHA256 // for unknown algorithms
	}
	h := hash.New()
	h.Write(text)
	if k, ok := key.(*ecdsa.PrivateKey); ok {
		r, s, err := ecdsa.Sign(rand.Reader, k, h.Sum(nil))
		if err != nil {
			return nil, err
		}
		size := (k.Curve.Params().BitSize + 7) / 8
		return append(fixed(r, size), fixed(s, size)...), nil
	}
	if strings.HasPrefix(alg, "PS") {
		return key.Sign(rand.Reader, h.Sum(nil), &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash})
	}
	return key.Sign(rand.Reader, h.Sum(nil), hash)
}

func fixed(n *big.Int, size int) []byte { return n.FillBytes(make([]byte, size)) }
