package session

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

const (
	keyBytes = 32
	keyLife  = 30 * 24 * time.Hour
	keysHeld = 2 // tokens live for a day, so one key before the newest is enough
)

// key signs tokens.
type key struct {
	id     string // 12 hex digits, the second part of a token
	secret []byte
	made   time.Time
}

// String returns no part of the secret, and neither does any other form of output.
func (k key) String() string               { return "[session key]" }
func (k key) GoString() string             { return k.String() }
func (k key) Format(s fmt.State, _ rune)   { _, _ = io.WriteString(s, k.String()) }
func (k key) MarshalJSON() ([]byte, error) { return nil, errors.New("a session key has no JSON form") }

// ring holds the valid keys, newest first. It never changes. It has its own Format,
// because fmt calls no methods of unexported fields.
type ring struct{ keys []key }

func (r ring) Format(s fmt.State, _ rune) { _, _ = fmt.Fprintf(s, "[%d session keys]", len(r.keys)) }

func newKey(now time.Time) key {
	k := key{secret: make([]byte, keyBytes), made: time.Unix(now.Unix(), 0).UTC()}
	rand.Read(k.secret) // it never fails
	var id [6]byte
	rand.Read(id[:])
	k.id = hex.EncodeToString(id[:])
	return k
}

func (r *ring) newest() key { return r.keys[0] }

func (r *ring) find(id string) (key, bool) {
	for _, k := range r.keys {
		if k.id == id {
			return k, true
		}
	}
	return key{}, false
}

// due reports whether the newest key is too old. A key from the far future is due too,
// because it would never become old.
func (r *ring) due(now time.Time) bool {
	age := now.Sub(r.newest().made)
	return age >= keyLife || age < -MaxLife
}

// next returns the ring with a new key; the former newest is kept for its tokens.
func (r *ring) next(now time.Time) *ring {
	keys := append([]key{newKey(now)}, r.keys...)
	return &ring{keys[:min(len(keys), keysHeld)]}
}

// keysDoc is the content of the key file.
type keysDoc struct {
	Version int      `json:"version"`
	Keys    []keyDoc `json:"keys"`
}

type keyDoc struct {
	ID     string    `json:"id"`
	Made   time.Time `json:"made"`
	Secret string    `json:"secret"` // base64url of 32 bytes
}

func (r *ring) encode() ([]byte, error) {
	doc := keysDoc{Version: 1}
	for _, k := range r.keys {
		doc.Keys = append(doc.Keys, keyDoc{k.id, k.made, base64url.EncodeToString(k.secret)})
	}
	b, err := json.MarshalIndent(doc, "", " ")
	return append(b, '\n'), err
}

// parseRing parses the key file. Any irregularity makes the whole file invalid: a foreign
// key must not sign, and a lost key must not go unnoticed.
func parseRing(b []byte) (*ring, error) {
	var doc keysDoc
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		return nil, errors.New("it is not the JSON of keys") // the decoder's error quotes what it read
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is data after its end")
	}
	if doc.Version != 1 {
		return nil, fmt.Errorf("version %d is not known", doc.Version)
	}
	if len(doc.Keys) < 1 || len(doc.Keys) > keysHeld {
		return nil, fmt.Errorf("it has %d keys", len(doc.Keys))
	}
	r := &ring{}
	for i, d := range doc.Keys {
		k, ok := d.key()
		if !ok || r.has(k) {
			return nil, fmt.Errorf("its key %d is not well-formed", i+1)
		}
		r.keys = append(r.keys, k)
	}
	return r, nil
}

func (r *ring) has(k key) bool {
	return slices.ContainsFunc(r.keys, func(other key) bool {
		return other.id == k.id || subtle.ConstantTimeCompare(other.secret, k.secret) == 1
	})
}

func (d keyDoc) key() (key, bool) {
	id, err1 := hex.DecodeString(d.ID)
	secret, err2 := base64.RawURLEncoding.Strict().DecodeString(d.Secret)
	ok := err1 == nil && err2 == nil && len(id) == 6 && hex.EncodeToString(id) == d.ID && len(secret) == keyBytes &&
		!bytes.Equal(secret, make([]byte, keyBytes)) && !d.Made.IsZero()
	return key{d.ID, secret, d.Made}, ok
}
