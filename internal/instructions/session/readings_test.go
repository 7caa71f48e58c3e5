package session

import (
	"fmt"
	"testing"
	"time"
)

// The cache of read tokens accepts only the same text under the same keys, and is
// bounded.
func TestTheCacheOfATokenIsForOneTextAndItsKeys(t *testing.T) {
	t.Parallel()
	write := func(r *ring, n int) string {
		text, err := payload{SID: fmt.Sprintf("%032x", n), Sub: "uid:1000", Aud: "here", Iat: 1, Exp: 1 << 40, Scope: []string{Structural}}.write(r.newest())
		must(t, err)
		return text
	}
	one, other := &ring{[]key{newKey(time.Unix(1, 0))}}, &ring{[]key{newKey(time.Unix(1, 0))}}
	var m readings
	token := write(one, 1)
	for range 2 {
		if p, reason := m.read(one, token); reason != "" || p.SID != fmt.Sprintf("%032x", 1) {
			t.Fatalf("%+v, %s", p, reason)
		}
		for i := range token {
			changed := []byte(token)
			changed[i] ^= 1
			if _, reason := m.read(one, string(changed)); reason == "" {
				t.Errorf("byte %d changed: it is taken", i)
			}
		}
		if _, reason := m.read(other, token); reason != MAC {
			t.Errorf("under other keys: %q", reason)
		}
	}
	for n := range 2*maxReadings + 10 {
		if _, reason := m.read(one, write(one, n)); reason != "" {
			t.Fatal(reason)
		}
		if len(m.by) > maxReadings {
			t.Fatalf("%d are remembered", len(m.by))
		}
	}
}

// A cached token is refused as soon as its session has ended.
func TestARememberedTokenEndsWithItsSession(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		for range 3 {
			token, s := b.issue(ask())
			for range 3 {
				b.good(token, owner())
			}
			b.bad(token, Caller{Unix: true, Principal: "uid:1001"}, Binding)
			_, err := b.End(t.Context(), s.ID, ReasonRevoked, func(*Session) any { return "ended" })
			must(t, err)
			b.bad(token, owner(), Revoked)
		}
	})
}
