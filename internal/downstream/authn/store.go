package authn

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
)

const (
	keepDead   = 90 * 24 * time.Hour
	secretSize = 32 // bytes: 256 bits
)

var (
	// ErrName means that a name is not valid for a token, or reserved.
	ErrName = errors.New("a token's name is 1 to 64 of a-z 0-9 . _ - and begins with a letter or digit; env and file are taken")
	// ErrExists means that a token of that name is accepted now.
	ErrExists = errors.New("a token of that name exists: revoke it first, or make its successor with --overlap 24h")
	// ErrNoToken means that no token has that id, and no token that is not revoked has
	// that name.
	ErrNoToken = errors.New("no such token; doorward token list shows all")
	// ErrScope means that a scope is not valid.
	ErrScope = errors.New("a scope is a comma-separated list of server:NAME, tool:SERVER/NAME, agent, instructions, admin, approve")
	// ErrExpiry means that a token would have expired before it is made.
	ErrExpiry = errors.New("the expiry of a token must be in the future")
	// ErrOverlap means that a predecessor would have ended before its successor is
	// made.
	ErrOverlap = errors.New("an overlap must not be negative")
	// ErrNoPredecessor means that there is no token to succeed.
	ErrNoPredecessor = errors.New("no token of that name is accepted now: make one without --overlap")
)

// Store is the token file of a state directory. Many processes may use it at once.
type Store struct {
	dir string

	mu    sync.Mutex
	place *durable.Pinned // pinned at the first look
}

// NewStore returns the store in dir. It opens and makes nothing.
func NewStore(dir string) *Store { return &Store{dir: dir} }

// Token describes a stored token, without its text.
type Token struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Scope   string    `json:"scope"` // empty: the default
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
	Revoked time.Time `json:"revoked,omitzero"` // zero: not revoked
	// Succeeded is the time when a successor was made, which also set Expires; zero:
	// there is none.
	Succeeded time.Time `json:"succeeded,omitzero"`
}

// live reports whether the token is accepted.
func (t *Token) live(now time.Time) bool {
	return t.Revoked.IsZero() && (t.Expires.IsZero() || now.Before(t.Expires))
}

// current reports whether the token is neither revoked nor succeeded. Each name has at
// most one such token.
func (t *Token) current() bool { return t.Revoked.IsZero() && t.Succeeded.IsZero() }

// madeToken is the prefix of every token that Doorward makes.
const madeToken = "dw_"

// NewToken makes a token and stores its digest. secret is "dw_" and 43 characters, which
// encode 256 random bits; it is not stored, so the caller has to show it now. expires 0
// means never. Errors: ErrName, ErrExists, ErrScope, ErrExpiry, or a failure of the
// store.
func (s *Store) NewToken(name string, expires time.Duration, scope string) (secret, id string, err error) {
	switch {
	case !ValidName(name):
		return "", "", ErrName
	case !validScope(scope):
		return "", "", ErrScope
	case expires < 0:
		return "", "", ErrExpiry
	}
	secret, r := newRecord(name, expires, scope)
	err = s.change(func(records []record) ([]record, error) {
		if lastLive(records, name, r.Created) >= 0 {
			return nil, ErrExists
		}
		return succeed(records, r), nil
	})
	if err != nil {
		return "", "", err
	}
	return secret, r.ID, nil
}

// lastLive returns the index of the newest accepted token of a name, or -1.
func lastLive(records []record, name string, now time.Time) int {
	last := -1
	for i := range records {
		if records[i].Name == name && records[i].live(now) {
			last = i
		}
	}
	return last
}

// succeed adds a token, which becomes the current one of its name.
func succeed(records []record, r record) []record {
	for i := range records {
		if records[i].Name == r.Name && records[i].current() {
			records[i].Succeeded = r.Created
		}
	}
	return append(withoutLongDead(records, r.Created), r)
}

func newRecord(name string, expires time.Duration, scope string) (secret string, r record) {
	secret, id := newSecret()
	now := time.Now().UTC()
	r = record{Digest: sha256.Sum256([]byte(secret)), Token: Token{ID: id, Name: name, Scope: scope, Created: now}}
	if expires > 0 {
		r.Expires = now.Add(expires)
	}
	return secret, r
}

// List returns all tokens, including revoked and expired ones, oldest first.
func (s *Store) List() ([]Token, error) {
	records, _, err := s.load()
	if err != nil {
		return nil, err
	}
	tokens := make([]Token, 0, len(records))
	for _, r := range records {
		tokens = append(tokens, r.Token)
	}
	return tokens, nil
}

// Revoke revokes the token with that id, or all tokens of that name that are not
// revoked. A running daemon refuses them within two seconds. Revoking an id again
// changes nothing. Errors: ErrNoToken, or a failure of the store.
func (s *Store) Revoke(idOrName string) ([]Token, error) {
	var revoked []Token
	err := s.change(func(records []record) ([]record, error) {
		now := time.Now().UTC()
		for i := range records {
			r := &records[i]
			if r.ID != idOrName && (r.Name != idOrName || !r.Revoked.IsZero()) {
				continue
			}
			if r.Revoked.IsZero() {
				r.Revoked = now
			}
			revoked = append(revoked, r.Token)
		}
		if revoked == nil {
			return nil, ErrNoToken
		}
		return records, nil
	})
	return revoked, err
}

// newSecret returns a token and its id. Ids begin with a capital letter, which no name
// contains, so an id is never a name.
func newSecret() (secret, id string) {
	var b [secretSize + 8]byte
	rand.Read(b[:]) // never fails
	return madeToken + base64.RawURLEncoding.EncodeToString(b[:secretSize]), "T" + hex.EncodeToString(b[secretSize:])
}

// withoutLongDead drops tokens that were revoked or expired more than keepDead ago, so
// that the file stays bounded.
func withoutLongDead(records []record, now time.Time) []record {
	dead := func(t time.Time) bool { return !t.IsZero() && now.Sub(t) > keepDead }
	return slices.DeleteFunc(records, func(r record) bool { return dead(r.Revoked) || dead(r.Expires) })
}

// ValidName reports whether a token may have this name.
func ValidName(name string) bool {
	if name == "env" || name == "file" || name == "" || len(name) > 64 {
		return false
	}
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || strings.IndexByte("._-", c) < 0) {
			return false
		}
	}
	return true
}

func validScope(scope string) bool {
	if scope == "" {
		return true
	}
	for item := range strings.SplitSeq(scope, ",") {
		kind, rest, named := strings.Cut(item, ":")
		server, tool, slash := strings.Cut(rest, "/")
		switch {
		case !named && (item == "agent" || item == "instructions" || item == "admin" || item == "approve"):
		case named && kind == "server" && rest != "" && !slash && isVisible(rest):
		case named && kind == "tool" && server != "" && tool != "" && isVisible(rest):
		default:
			return false
		}
	}
	return true
}
