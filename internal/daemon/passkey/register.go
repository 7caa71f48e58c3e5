package passkey

import (
	"fmt"
	"slices"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"
)

// addPurpose and removePurpose return the purposes of adding and removing a key.
func addPurpose(name string) Purpose  { return Purpose{"add", name} }
func removePurpose(id string) Purpose { return Purpose{"remove", id} }

// Add begins the registration of a key. The first key is created at once; otherwise a
// registered key signs first, and Allowed continues.
func (b *Book) Add(v Visit, name string) (Ceremony, error) {
	name, err := named(name)
	if err != nil {
		return Ceremony{}, err
	}
	if len(b.Keys()) > 0 {
		return b.Sign(v, addPurpose(name))
	}
	return b.create(v, "")
}

// Allowed continues Add after the signature.
func (b *Book) Allowed(v Visit, id, name string, answer []byte) (Ceremony, error) {
	name, err := named(name)
	if err != nil {
		return Ceremony{}, err
	}
	by, err := b.Signed(v, id, addPurpose(name), answer)
	if err != nil {
		return Ceremony{}, err
	}
	return b.create(v, by)
}

// create begins the creation of a key that the key by allowed; empty: it is the first key.
func (b *Book) create(v Visit, by string) (Ceremony, error) {
	w, err := party(v.Origin)
	if err != nil {
		return Ceremony{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var known []protocol.CredentialDescriptor
	for _, c := range b.kept.WebAuthnCredentials() {
		known = append(known, c.Descriptor())
	}
	options, data, err := w.BeginRegistration(b.kept, webauthn.WithExclusions(known))
	if err != nil {
		return Ceremony{}, fmt.Errorf("beginning the registration of a passkey: %w", err)
	}
	return b.begin(&ceremony{kind: "create", by: by}, v, data, options.Response), nil
}

// Added ends a registration. It is recorded before the key is stored.
func (b *Book) Added(v Visit, id, name string, answer []byte) error {
	name, err := named(name)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c, err := b.take(v, id, "create")
	if err != nil {
		return err
	}
	if c.by == "" && len(b.kept.Keys) > 0 || c.by != "" && b.find(c.by) < 0 || len(b.kept.Keys) >= mostKeys {
		return ErrRefused // another key became the first, or the allowing key was removed meanwhile
	}
	w, err := party(v.Origin)
	if err != nil {
		return err
	}
	parsed, err := protocol.ParseCredentialCreationResponseBytes(answer)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	credential, err := w.CreateCredential(b.kept, c.data, parsed)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	reason := "allowed by " + c.by
	if c.by == "" {
		reason = "the first one"
	}
	if err := b.event(v, "passkey.added", idOf(credential.ID), reason); err != nil {
		return err
	}
	next := b.copied()
	next.Keys = append(next.Keys, stored{Name: name, Added: b.now().UTC(), Credential: *credential})
	return b.save(next)
}

// Remove begins the removal of a key, which any registered key may sign.
func (b *Book) Remove(v Visit, key string) (Ceremony, error) { return b.Sign(v, removePurpose(key)) }

// Removed ends the removal that Remove began.
func (b *Book) Removed(v Visit, id, key string, answer []byte) error {
	by, err := b.Signed(v, id, removePurpose(key), answer)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.find(key)
	if at < 0 {
		return ErrRefused
	}
	if err := b.event(v, "passkey.removed", key, "allowed by "+by); err != nil {
		return err
	}
	next := b.copied()
	next.Keys = slices.Delete(next.Keys, at, at+1)
	return b.save(next)
}

// find returns the index of a key; -1: it is not registered. The caller holds mu.
func (b *Book) find(key string) int {
	return slices.IndexFunc(b.kept.Keys, func(s stored) bool { return idOf(s.Credential.ID) == key })
}
