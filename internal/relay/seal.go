package relay

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
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
)

// How long a sealed handle can come back.
const (
	sealedFor = time.Hour
	taskLife  = 7 * 24 * time.Hour
)

var errSeal = errors.New("handle is not one of ours for this principal, server and request")

// Sealer encrypts and binds what travels through a client: requestState, cursors and the ids of
// tasks. A server sees one caller, Doorward, and cannot bind them to a user itself.
type Sealer struct {
	aead cipher.AEAD
	now  func() time.Time
}

// NewSealer makes a sealer from a key of 32 bytes.
func NewSealer(key []byte) (*Sealer, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("making a sealer: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("making a sealer: %w", err)
	}
	return &Sealer{aead: aead, now: time.Now}, nil
}

// handle is the plaintext. Inner is the raw JSON that the server gave.
type handle struct {
	Who     string `json:"w"`
	Server  string `json:"s"`
	Method  string `json:"m"`
	Digest  string `json:"d,omitempty"`
	Expires int64  `json:"x"`
	Inner   []byte `json:"i"`
}

// The purposes; a handle of one is worth nothing as another.
const (
	forState  = "dw1.state"
	forCursor = "dw1.cursor"
	forTask   = "dw1.task"
	forParked = "dw1.parked"
)

func (s *Sealer) seal(purpose string, h handle, life time.Duration) ([]byte, error) {
	h.Expires = s.now().Add(life).Unix()
	plain, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, s.aead.NonceSize(), s.aead.NonceSize()+len(plain)+s.aead.Overhead())
	rand.Read(nonce)
	box := s.aead.Seal(nonce, nonce, plain, []byte(purpose))
	return rawjson.AppendQuote(nil, "dw1."+base64.RawURLEncoding.EncodeToString(box)), nil
}

// open returns the handle if it was sealed here for this purpose and has not
// expired. The caller compares what it is bound to.
func (s *Sealer) open(purpose string, raw []byte) (handle, error) {
	var h handle
	text, ok := wire.Text(raw)
	if !ok || len(text) < 4 || text[:4] != "dw1." {
		return h, errSeal
	}
	box, err := base64.RawURLEncoding.Strict().DecodeString(text[4:])
	n := s.aead.NonceSize()
	if err != nil || len(box) < n {
		return h, errSeal
	}
	plain, err := s.aead.Open(nil, box[:n], box[n:], []byte(purpose))
	if err != nil {
		return h, errSeal
	}
	if err := json.Unmarshal(plain, &h); err != nil || s.now().Unix() > h.Expires {
		return h, errSeal
	}
	return h, nil
}

func (s *Sealer) sealState(inner []byte, who *principal.Principal, t target) ([]byte, error) {
	return s.seal(forState, handle{Who: who.Key(), Server: t.Server(), Method: t.Method(), Digest: digest(t), Inner: inner}, sealedFor)
}

func (s *Sealer) openState(raw []byte, who *principal.Principal, t target) ([]byte, error) {
	h, err := s.open(forState, raw)
	if err != nil || h.Who != who.Key() || h.Server != t.Server() || h.Method != t.Method() || h.Digest != digest(t) {
		return nil, errSeal
	}
	return h.Inner, nil
}

// sealParked and openParked bind a parked call to what was asked and by whom. Any
// process of the principal may come back with it.
func (s *Sealer) sealParked(id string, who *principal.Principal, t target) ([]byte, error) {
	return s.seal(forParked, handle{Who: who.Name(), Server: t.Server(), Method: t.Method(), Digest: digest(t), Inner: []byte(id)}, sealedFor)
}

func (s *Sealer) openParked(raw []byte, who *principal.Principal, t target) (string, error) {
	h, err := s.open(forParked, raw)
	if err != nil || h.Who != who.Name() || h.Server != t.Server() || h.Method != t.Method() || h.Digest != digest(t) {
		return "", errSeal
	}
	return string(h.Inner), nil
}

func (s *Sealer) sealCursor(inner []byte, who *principal.Principal, server, method string) ([]byte, error) {
	return s.seal(forCursor, handle{Who: who.Key(), Server: server, Method: method, Inner: inner}, sealedFor)
}

func (s *Sealer) openCursor(raw []byte, who *principal.Principal, server, method string) ([]byte, error) {
	h, err := s.open(forCursor, raw)
	if err != nil || h.Who != who.Key() || h.Server != server || h.Method != method {
		return nil, errSeal
	}
	return h.Inner, nil
}

func (s *Sealer) sealTask(inner []byte, who *principal.Principal, server string) ([]byte, error) {
	return s.seal(forTask, handle{Who: who.Key(), Server: server, Inner: inner}, taskLife)
}

func (s *Sealer) openTask(raw []byte, who *principal.Principal, server string) ([]byte, error) {
	h, err := s.open(forTask, raw)
	if err != nil || h.Who != who.Key() || h.Server != server {
		return nil, errSeal
	}
	return h.Inner, nil
}

// digest covers what a retry must repeat: method, name and arguments. _meta,
// inputResponses and requestState differ by design.
func digest(t target) string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(t.Method()), []byte(t.Name()), wire.Canonical(wire.Get(t.Params(), "arguments"))} {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}
