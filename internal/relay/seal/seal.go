// Package seal encrypts and binds values that pass through a client and come back:
// requestState, cursors, the ids of tasks and the handles of parked calls.
//
// Invariant: a sealed value opens only for the principal, server and request that it was
// sealed for, and within its time.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/relay/resolve"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Lifetimes of sealed values.
const (
	sealedFor = time.Hour
	taskLife  = 7 * 24 * time.Hour
	pageLife  = 7 * 24 * time.Hour // longer than a call can wait for the operator
)

// ErrForeign says that a value was not sealed here for this principal, server and request, or
// that it has expired.
var ErrForeign = errors.New("the handle was not issued for this principal, server and request")

// Sealer encrypts and binds the values. A server sees one caller, Doorward, and cannot bind
// them to a user itself.
type Sealer struct {
	aead cipher.AEAD
	Now  func() time.Time
}

// New makes a sealer from a key of 32 bytes.
func New(key []byte) (*Sealer, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("making a sealer: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("making a sealer: %w", err)
	}
	return &Sealer{aead: aead, Now: time.Now}, nil
}

// handle is the plaintext of a sealed value. Inner is the raw JSON that the server gave.
type handle struct {
	Who     string `json:"w"`
	Server  string `json:"s"`
	Method  string `json:"m"`
	Digest  string `json:"d,omitempty"`
	Expires int64  `json:"x"`
	Inner   []byte `json:"i"`
}

// Purposes of sealed values; a value of one purpose does not open for another.
const (
	forState  = "dw1.state"
	forPage   = "dw1.page"
	forCursor = "dw1.cursor"
	forTask   = "dw1.task"
	forParked = "dw1.parked"
)

func (s *Sealer) seal(purpose string, h handle, life time.Duration) ([]byte, error) {
	h.Expires = s.Now().Add(life).Unix()
	plain, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, s.aead.NonceSize(), s.aead.NonceSize()+len(plain)+s.aead.Overhead())
	rand.Read(nonce)
	box := s.aead.Seal(nonce, nonce, plain, []byte(purpose))
	return rawjson.AppendQuote(nil, "dw1."+base64.RawURLEncoding.EncodeToString(box)), nil
}

// open returns the handle if it was sealed here for this purpose and has not expired. The
// caller compares what it is bound to.
func (s *Sealer) open(purpose string, raw []byte) (handle, error) {
	var h handle
	text, ok := wire.Text(raw)
	if !ok || len(text) < 4 || text[:4] != "dw1." {
		return h, ErrForeign
	}
	box, err := base64.RawURLEncoding.Strict().DecodeString(text[4:])
	n := s.aead.NonceSize()
	if err != nil || len(box) < n {
		return h, ErrForeign
	}
	plain, err := s.aead.Open(nil, box[:n], box[n:], []byte(purpose))
	if err != nil {
		return h, ErrForeign
	}
	if err := json.Unmarshal(plain, &h); err != nil || s.Now().Unix() > h.Expires {
		return h, ErrForeign
	}
	return h, nil
}

// SealState and OpenState bind the state of a question to its request and its caller: the
// principal, and on the Unix socket also the process.
func (s *Sealer) SealState(inner []byte, who *principal.Principal, t resolve.Target) ([]byte, error) {
	return s.sealBound(forState, inner, who, t, sealedFor)
}

func (s *Sealer) OpenState(raw []byte, who *principal.Principal, t resolve.Target) ([]byte, error) {
	return s.openBound(forState, raw, who, t)
}

// SealPage makes the state of a call that was sent to the operator's page, bound as the state
// of a question is.
func (s *Sealer) SealPage(who *principal.Principal, t resolve.Target) ([]byte, error) {
	return s.sealBound(forPage, nil, who, t, pageLife)
}

// IsPage reports whether raw is a state that SealPage made for this request and caller.
func (s *Sealer) IsPage(raw []byte, who *principal.Principal, t resolve.Target) bool {
	_, err := s.openBound(forPage, raw, who, t)
	return err == nil
}

func (s *Sealer) sealBound(purpose string, inner []byte, who *principal.Principal, t resolve.Target, life time.Duration) ([]byte, error) {
	return s.seal(purpose, handle{Who: who.Key(), Server: t.Server(), Method: t.Method(), Digest: digest(t), Inner: inner}, life)
}

func (s *Sealer) openBound(purpose string, raw []byte, who *principal.Principal, t resolve.Target) ([]byte, error) {
	h, err := s.open(purpose, raw)
	if err != nil || h.Who != who.Key() || h.Server != t.Server() || h.Method != t.Method() || h.Digest != digest(t) {
		return nil, ErrForeign
	}
	return h.Inner, nil
}

// SealParked and OpenParked bind a parked call to its request and its principal. Any process
// of the principal may continue it.
func (s *Sealer) SealParked(id string, who *principal.Principal, t resolve.Target) ([]byte, error) {
	return s.seal(forParked, handle{Who: who.Name(), Server: t.Server(), Method: t.Method(), Digest: digest(t), Inner: []byte(id)}, sealedFor)
}

func (s *Sealer) OpenParked(raw []byte, who *principal.Principal, t resolve.Target) (string, error) {
	h, err := s.open(forParked, raw)
	if err != nil || h.Who != who.Name() || h.Server != t.Server() || h.Method != t.Method() || h.Digest != digest(t) {
		return "", ErrForeign
	}
	return string(h.Inner), nil
}

// SealCursor and OpenCursor bind a cursor to its caller, server and list method.
func (s *Sealer) SealCursor(inner []byte, who *principal.Principal, server, method string) ([]byte, error) {
	return s.seal(forCursor, handle{Who: who.Key(), Server: server, Method: method, Inner: inner}, sealedFor)
}

func (s *Sealer) OpenCursor(raw []byte, who *principal.Principal, server, method string) ([]byte, error) {
	h, err := s.open(forCursor, raw)
	if err != nil || h.Who != who.Key() || h.Server != server || h.Method != method {
		return nil, ErrForeign
	}
	return h.Inner, nil
}

// SealTask and OpenTask bind the id of a task to its caller and server.
func (s *Sealer) SealTask(inner []byte, who *principal.Principal, server string) ([]byte, error) {
	return s.seal(forTask, handle{Who: who.Key(), Server: server, Inner: inner}, taskLife)
}

func (s *Sealer) OpenTask(raw []byte, who *principal.Principal, server string) ([]byte, error) {
	h, err := s.open(forTask, raw)
	if err != nil || h.Who != who.Key() || h.Server != server {
		return nil, ErrForeign
	}
	return h.Inner, nil
}

// digest covers what a retry must repeat: method, name and arguments. _meta, inputResponses
// and requestState differ by design.
func digest(t resolve.Target) string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(t.Method()), []byte(t.Name()), rawjson.Canonical(rawjson.Get(t.Params(), "arguments"))} {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}
