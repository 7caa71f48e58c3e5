// Package passkey keeps the operator's passkeys and verifies their signatures (WebAuthn,
// https://www.w3.org/TR/webauthn-3/).
//
// Invariants: a ceremony is answered once, within two minutes, by the session that began it.
// The challenge, a digest of the purpose and a nonce, binds a signature to its purpose. The
// first key needs no signature; every later addition or removal needs the signature of a
// registered key.
package passkey

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/principal"
)

var (
	// ErrRefused means that an answer belongs to no open ceremony, to another session or
	// purpose, or is not signed by a registered key.
	ErrRefused = errors.New("the passkey's answer is not valid")
	// ErrNone means that no passkey is registered.
	ErrNone = errors.New("no passkey is registered")
	// ErrName means that the name of a key is not allowed.
	ErrName = errors.New("the name of the passkey is not valid")
)

// rpID is the name to which browsers bind keys: the console is opened at localhost.
const rpID = "localhost"

const (
	life     = 2 * time.Minute // of a ceremony
	mostOpen = 32              // open ceremonies; the oldest is dropped to make room
	mostName = 64
	mostKeys = 32
	idLength = 12
)

// Key is one registered passkey. ID is a digest of the credential's id.
type Key struct {
	ID    string
	Name  string
	Added time.Time
	Used  time.Time // zero: never
}

// Purpose is the act that an answer is for. Equal purposes have equal fields.
type Purpose []string

// Visit identifies the caller of a ceremony: a session of the console, at an origin of the
// console.
type Visit struct {
	Session string
	Origin  string
	Who     *principal.Principal
}

// Ceremony is the request to the browser. Kind is get (sign) or create (register).
type Ceremony struct {
	ID      string `json:"ceremony"`
	Kind    string `json:"kind"`
	Options any    `json:"options"`
}

// Book keeps the keys. It is safe for concurrent use.
type Book struct {
	path   string
	record func(*audit.Record) (uint64, error)
	now    func() time.Time

	mu   sync.Mutex
	kept kept
	open map[string]*ceremony
}

// kept is the content of the file.
type kept struct {
	User []byte   `json:"user"`
	Keys []stored `json:"keys"`
}

type stored struct {
	Name       string              `json:"name"`
	Added      time.Time           `json:"added"`
	Used       time.Time           `json:"used,omitzero"`
	Credential webauthn.Credential `json:"credential"`
}

// ceremony is an open ceremony.
type ceremony struct {
	began   time.Time
	session string
	kind    string
	nonce   []byte // of a signature
	by      string // of a registration: the key that allowed it; empty: it is the first key
	data    webauthn.SessionData
}

// Open reads the keys of a file; if it is missing, there are none. record writes one audit
// record.
func Open(path string, record func(*audit.Record) (uint64, error), now func() time.Time) (*Book, error) {
	b := &Book{path: path, record: record, now: now, open: map[string]*ceremony{}}
	text, err := durable.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b.kept.User = random(32)
		return b, nil
	case err == nil:
		err = json.Unmarshal(text, &b.kept)
	}
	if err != nil || len(b.kept.User) == 0 {
		return nil, fmt.Errorf("the passkeys in %s cannot be read, perhaps because a newer version wrote them: %w; move the file away, and register a passkey again", path, cmp.Or(err, fs.ErrInvalid))
	}
	return b, nil
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return b
}

// WebAuthnID, WebAuthnName, WebAuthnDisplayName and WebAuthnCredentials implement
// webauthn.User.
func (k kept) WebAuthnID() []byte          { return k.User }
func (k kept) WebAuthnName() string        { return "operator" }
func (k kept) WebAuthnDisplayName() string { return "Operator of Doorward" }
func (k kept) WebAuthnCredentials() []webauthn.Credential {
	var all []webauthn.Credential
	for _, s := range k.Keys {
		all = append(all, s.Credential)
	}
	return all
}

func idOf(credential []byte) string {
	sum := sha256.Sum256(credential)
	return hex.EncodeToString(sum[:])[:idLength]
}

// Keys returns the registered keys, the oldest first.
func (b *Book) Keys() []Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := []Key{}
	for _, s := range b.kept.Keys {
		all = append(all, Key{ID: idOf(s.Credential.ID), Name: s.Name, Added: s.Added, Used: s.Used})
	}
	return all
}

// party returns the verifier for the answers of browsers at this origin.
func party(origin string) (*webauthn.WebAuthn, error) {
	w, err := webauthn.New(&webauthn.Config{RPID: rpID, RPDisplayName: "Doorward", RPOrigins: []string{origin}, AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{UserVerification: protocol.VerificationRequired, ResidentKey: protocol.ResidentKeyRequirementPreferred}})
	if err != nil {
		return nil, fmt.Errorf("preparing a passkey: %w", err)
	}
	return w, nil
}

// challenge returns the challenge that binds a signature to its purpose.
func challenge(nonce []byte, p Purpose) []byte {
	h := sha256.New()
	for _, part := range append([]string{"doorward passkey", string(nonce)}, p...) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	return h.Sum(nil)
}

// Sign begins a ceremony in which a registered key signs for a purpose.
func (b *Book) Sign(v Visit, p Purpose) (Ceremony, error) {
	w, err := party(v.Origin)
	if err != nil {
		return Ceremony{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.kept.Keys) == 0 {
		return Ceremony{}, ErrNone
	}
	c := &ceremony{kind: "get", nonce: random(32)}
	options, data, err := w.BeginLogin(b.kept, webauthn.WithChallenge(challenge(c.nonce, p)), webauthn.WithUserVerification(protocol.VerificationRequired))
	if err != nil {
		return Ceremony{}, fmt.Errorf("beginning a passkey's signature: %w", err)
	}
	return b.begin(c, v, data, options.Response), nil
}

// Signed checks that answer is the signature of a registered key for the purpose, and
// returns the id of the key. The ceremony is over in either case.
func (b *Book) Signed(v Visit, id string, p Purpose, answer []byte) (key string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key, err = b.signed(v, id, p, answer)
	if err != nil {
		b.event(v, "passkey.refused", "", strings.Join(p[:min(1, len(p))], ""))
	}
	return key, err
}

func (b *Book) signed(v Visit, id string, p Purpose, answer []byte) (string, error) {
	c, err := b.take(v, id, "get")
	if err != nil {
		return "", err
	}
	// The challenge is computed again from the present purpose.
	c.data.Challenge = protocol.URLEncodedBase64(challenge(c.nonce, p)).String()
	w, err := party(v.Origin)
	if err != nil {
		return "", err
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes(answer)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrRefused, err)
	}
	credential, err := w.ValidateLogin(b.kept, c.data, parsed)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if credential.Authenticator.CloneWarning {
		return "", fmt.Errorf("%w: its counter decreased", ErrRefused)
	}
	return idOf(credential.ID), b.used(credential)
}

// used stores the counter and the last use of a key.
func (b *Book) used(credential *webauthn.Credential) error {
	next := b.copied()
	for i := range next.Keys {
		if slices.Equal(next.Keys[i].Credential.ID, credential.ID) {
			next.Keys[i].Credential, next.Keys[i].Used = *credential, b.now().UTC()
		}
	}
	return b.save(next)
}

func (b *Book) copied() kept { return kept{User: b.kept.User, Keys: slices.Clone(b.kept.Keys)} }

func (b *Book) save(next kept) error {
	text, err := json.Marshal(next)
	if err == nil {
		err = durable.ReplaceAt(b.path, text)
	}
	if err != nil {
		return fmt.Errorf("writing the passkeys: %w", err)
	}
	b.kept = next
	return nil
}

// begin stores a ceremony until its answer. The caller holds mu.
func (b *Book) begin(c *ceremony, v Visit, data *webauthn.SessionData, options any) Ceremony {
	c.began, c.session, c.data = b.now(), v.Session, *data
	maps.DeleteFunc(b.open, func(_ string, o *ceremony) bool { return b.now().Sub(o.began) > life })
	if len(b.open) >= mostOpen {
		delete(b.open, b.eldest())
	}
	id := rand.Text()
	b.open[id] = c
	return Ceremony{ID: id, Kind: c.kind, Options: options}
}

func (b *Book) eldest() (id string) {
	for k, c := range b.open {
		if id == "" || c.began.Before(b.open[id].began) {
			id = k
		}
	}
	return id
}

// take removes a ceremony, and returns it if the session that began it asks.
func (b *Book) take(v Visit, id, kind string) (*ceremony, error) {
	c := b.open[id]
	delete(b.open, id)
	if c == nil || c.kind != kind || c.session != v.Session || b.now().Sub(c.began) > life {
		return nil, ErrRefused
	}
	return c, nil
}

// event records an event of a key.
func (b *Book) event(v Visit, what, key, reason string) error {
	_, err := b.record(&audit.Record{Kind: audit.Event, Source: "passkey", Who: v.Who, Action: what, Resource: key, Reason: reason})
	if err != nil {
		return fmt.Errorf("recording %s: %w", what, err)
	}
	return nil
}

// named checks and cleans a name for display.
func named(name string) (string, error) {
	name = strings.TrimSpace(name)
	if name == "" || len(name) > mostName || plaintext.Line(name) != name {
		return "", ErrName
	}
	return name, nil
}
