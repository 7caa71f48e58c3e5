package authn

import "testing"

// A token of an Ed25519 key may name its algorithm EdDSA or Ed25519 (RFC 9864). Another key never
// verifies it, neither does a token whose algorithm is another one, and without EdDSA in the
// configuration neither name is accepted.
func TestEd25519IsAnotherNameOfEdDSA(t *testing.T) {
	t.Parallel()
	both, none := newGuarded(t), newGuarded(t, "RS256", "ES256")
	for _, c := range []struct {
		good   bool
		fields []string
	}{
		{true, []string{"alg=EdDSA", "key=ed"}}, {true, []string{"alg=Ed25519", "key=ed"}}, {true, []string{"alg=Ed25519", "key=ed", "kid="}},
		{false, []string{"alg=ed25519", "key=ed"}}, {false, []string{"alg=Ed448", "key=ed"}}, {false, []string{"alg=RS256", "key=ed"}},
		{false, []string{"alg=Ed25519", "key=rsa"}}, {false, []string{"alg=Ed25519", "key=ec"}}, {false, []string{"alg=Ed25519", "key=ec", "kid=ed"}},
		{false, []string{"alg=Ed25519", "key=ed-attacker", "kid=ed"}}, {false, []string{"alg=Ed25519", "key=ed-attacker", "kid="}},
		{false, []string{"alg=Ed25519", "key=ed", "flip=signature"}}, {false, []string{"alg=Ed25519", "key=ed", "flip=payload"}},
		{false, []string{"alg=Ed25519", "key=ed", "exp=-1h"}},
	} {
		if _, err := both.presentAnew(both.mint(t, c.fields...)); (err == nil) != c.good {
			t.Errorf("%q: %v", c.fields, err)
		}
		if _, err := none.presentAnew(none.mint(t, c.fields...)); err == nil {
			t.Errorf("%q is accepted without EdDSA", c.fields)
		}
	}
	for name, want := range map[string]int{"EdDSA": 1, "Ed25519": 1, "Ed448": 0, "ES256": 0} {
		r, err := parseKeys([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","alg":"`+name+`","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`), both.clock.Now())
		if err != nil || len(r.keys) != want {
			t.Errorf("a key for %s: %+v, %v", name, r, err)
		}
	}
}
