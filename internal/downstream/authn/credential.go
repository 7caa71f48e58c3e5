package authn

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/trust/principal"
)

// MinToken is the smallest number of characters, after trimming, of a token that
// Doorward did not make.
const MinToken = 16

// maxToken is the largest number of bytes that are hashed for an unauthenticated
// caller.
const maxToken = 16 << 10

// credential is one accepted token. Its principals are made together with the table, so
// that a request makes none.
type credential struct {
	digest  [sha256.Size]byte
	id      string
	made    bool  // by Doorward: 256 random bits
	expires int64 // Unix nanoseconds, 0: never
	remote  *principal.Principal
	local   *principal.Principal // the same, for a request through a loopback listener
}

func newCredential(digest [sha256.Size]byte, id, name, scope string, expires time.Time) credential {
	facts := []principal.Fact{{Name: factToken, Value: id, Grade: principal.Verified}}
	if scope != "" {
		facts = append(facts, principal.Fact{Name: factScope, Value: scope, Grade: principal.Verified})
	}
	c := credential{digest: digest, id: id, remote: principal.New(principal.Token(name), facts...)}
	c.local = c.remote.WithLocal()
	if !expires.IsZero() {
		c.expires = expires.UnixNano()
	}
	return c
}

// namer makes the ids of tokens that Doorward did not make. An id depends on the
// token's content: replacing the token ends everything that was opened with the old
// one, even if the daemon was down in between. Such a token may be guessable, so the id
// is a digest under a key of this installation, truncated so that guesses cannot be
// tested against it.
type namer struct{ key []byte }

// newNamer returns a namer. Without a key it uses a random one.
func newNamer(key []byte) namer {
	if len(key) == 0 {
		key = make([]byte, sha256.Size)
		rand.Read(key) // never fails
	}
	return namer{key}
}

// credential returns the credential of a static token; it is named after its source.
func (n namer) credential(source string, digest [sha256.Size]byte) credential {
	h := hmac.New(sha256.New, n.key)
	h.Write([]byte(source + ":"))
	h.Write(digest[:])
	return newCredential(digest, source+":"+hex.EncodeToString(h.Sum(nil)[:8]), source, "", time.Time{})
}

func (c *credential) holds(now time.Time) bool {
	return c.expires == 0 || now.UnixNano() < c.expires
}

func (c *credential) principal(local bool) *principal.Principal {
	if local {
		return c.local
	}
	return c.remote
}

// table holds all credentials that are accepted now. It is immutable; a change makes a
// new one.
type table struct{ creds []credential }

// match finds the credential of a digest. It compares all of them, each in constant
// time, so the duration reveals neither the position nor the length of a match.
func (t *table) match(digest *[sha256.Size]byte) *credential {
	found := -1
	for i := range t.creds {
		same := subtle.ConstantTimeCompare(digest[:], t.creds[i].digest[:])
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	if found < 0 {
		return nil
	}
	return &t.creds[found]
}

func (t *table) live(id string, now time.Time) bool {
	for i := range t.creds {
		if t.creds[i].id == id {
			return t.creds[i].holds(now)
		}
	}
	return false
}

// Usable trims a token from the environment or a file and returns the reason why it
// cannot be used. The error contains no part of it.
func Usable(text string) (token string, err error) {
	token = strings.TrimSpace(text)
	switch {
	case token == "":
		return "", errors.New("is empty")
	case utf8.RuneCountInString(token) < MinToken:
		return "", errors.New("is shorter than 16 characters")
	case len(token) > maxToken:
		return "", errors.New("is longer than 16 KiB")
	case !isVisible(token):
		return "", errors.New("has characters that an Authorization header cannot carry")
	}
	return token, nil
}

// isVisible reports whether s consists of visible ASCII characters without white space.
func isVisible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// bearer returns the token of the Authorization values: there must be exactly one
// value, with the scheme Bearer in any case.
func bearer(authorization []string) (token string, ok bool) {
	if len(authorization) != 1 {
		return "", false
	}
	v := authorization[0]
	const scheme = "bearer "
	if len(v) <= len(scheme) || len(v) > maxToken+len(scheme) {
		return "", false
	}
	for i := range len(scheme) {
		c := v[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != scheme[i] {
			return "", false
		}
	}
	token = strings.Trim(v[len(scheme):], " ")
	return token, token != "" && isVisible(token)
}

// digestOf hashes a token, without an allocation if it has the usual length.
func digestOf(token string) [sha256.Size]byte {
	var buf [2 << 10]byte
	if len(token) > len(buf) {
		return sha256.Sum256([]byte(token))
	}
	return sha256.Sum256(buf[:copy(buf[:], token)])
}

// SpawnToken is the prefix of every token of a started agent. Where a header is
// otherwise ignored, it identifies such a token, which is refused there.
const SpawnToken = "dwa_"
