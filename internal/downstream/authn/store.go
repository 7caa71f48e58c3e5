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
	// ErrName: not a name for a token, or one that is reserved.
	ErrName = errors.New("a token's name is 1 to 64 of a-z 0-9 . _ - and begins with a letter or digit; env and file are taken")
	// ErrExists: a token of that name is there and not revoked.
	ErrExists = errors.New("a token of that name exists: revoke it first, or make its successor with --overlap 24h")
	// ErrNoToken: no token has that id, and none that is not revoked that name.
	ErrNoToken = errors.New("no such token")
	// ErrScope: not a scope that `token new` takes.
	ErrScope = errors.New("a scope is a comma-separated list of server:NAME, tool:SERVER/NAME, agent, instructions, admin")
	// ErrExpiry: a token cannot have expired before it is made.
	ErrExpiry = errors.New("a token expires in the future")
	// ErrOverlap: a token cannot have ended before it has a successor.
	ErrOverlap = errors.New("an overlap is not negative")
	// ErrNoPredecessor: there is nothing to succeed.
	ErrNoPredecessor = errors.New("no token of that name is accepted now: make one without --overlap")
)

// Store is the file of tokens in a state directory. It has no state of its
// own and may be used by many processes at once.
type Store struct {
	dir string

	mu    sync.Mutex
	place *durable.Pinned // as it was found first
}

// NewStore names the store in dir; nothing is opened or made.
func NewStore(dir string) *Store { return &Store{dir: dir} }

// Token is what the store tells of a token. The token itself is not in it.
type Token struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Scope   string    `json:"scope"` // empty: the default
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
	Revoked time.Time `json:"revoked,omitzero"` // zero: not revoked
	// Succeeded is when its successor was made, which also gave it its end;
	// zero: it has none.
	Succeeded time.Time `json:"succeeded,omitzero"`
}

// live reports whether the token is accepted.
func (t *Token) live(now time.Time) bool {
	return t.Revoked.IsZero() && (t.Expires.IsZero() || now.Before(t.Expires))
}

// current reports whether the token is the one of its name; there is at most
// one. The others are revoked, or on their way out.
func (t *Token) current() bool { return t.Revoked.IsZero() && t.Succeeded.IsZero() }

// madeToken begins every token that Doorward makes.
const madeToken = "dw_"

// NewToken makes a token and stores its digest. secret is "dw_" and 43
// characters of 256 random bits; it exists nowhere else, so show it now.
// expires 0 means never. Errors: ErrName, ErrExists, ErrScope, ErrExpiry, or
// what is wrong with the store.
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

// lastLive is the newest token of a name that is accepted, or -1.
func lastLive(records []record, name string, now time.Time) int {
	last := -1
	for i := range records {
		if records[i].Name == name && records[i].live(now) {
			last = i
		}
	}
	return last
}

// succeed adds a token, which is the one of its name from now on.
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

// List returns all tokens, the revoked and the expired too, oldest first.
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

// Revoke revokes the token with that id, or else all of that name that are not
// revoked. A running daemon refuses them within two seconds. Revoking an id
// again changes nothing. Errors: ErrNoToken, or what is wrong with the store.
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

// newSecret returns a token and its id. Ids begin with a capital letter, which
// no name has, so that neither can be taken for the other.
func newSecret() (secret, id string) {
	var b [secretSize + 8]byte
	rand.Read(b[:]) // never fails
	return madeToken + base64.RawURLEncoding.EncodeToString(b[:secretSize]), "T" + hex.EncodeToString(b[secretSize:])
}

// withoutLongDead forgets what was revoked or expired long ago, so that the
// file does not grow for ever.
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
