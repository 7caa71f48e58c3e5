package peer

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

// A proof is valid for one nonce, one key and one process.
func TestAProofIsBoundToNonceKeyAndProcess(t *testing.T) {
	t.Parallel()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	nonce := base64.RawURLEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))
	second := base64.RawURLEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdeg"))
	proof, ok := Prove(key, nonce, 42)
	if !ok || len(proof) > MaxProof {
		t.Fatalf("%q, %v", proof, ok)
	}
	for name, c := range map[string]struct {
		key      ed25519.PublicKey
		nonce    string
		proof    string
		listener int32
		good     bool
	}{
		"as it is":                      {public, nonce, proof, 42, true},
		"a listener in no namespace":    {public, nonce, proof, 0, true},
		"another process listens":       {public, nonce, proof, 43, false},
		"another nonce":                 {public, second, proof, 42, false},
		"another nonce, not visible":    {public, second, proof, 0, false},
		"another key":                   {other, nonce, proof, 42, false},
		"another key, not visible":      {other, nonce, proof, 0, false},
		"no key":                        {nil, nonce, proof, 42, false},
		"another number":                {public, nonce, strings.Replace(proof, "42 ", "43 ", 1), 43, false},
		"another spelling, another one": {public, nonce, "0" + proof, 43, false},
		"nothing":                       {public, nonce, "", 42, false},
		"a number":                      {public, nonce, "42", 42, false},
		"cut":                           {public, nonce, proof[:len(proof)-1], 42, false},
		"longer":                        {public, nonce, proof + "A", 42, false},
	} {
		if err := CheckProof(c.key, c.nonce, c.proof, c.listener); (err == nil) != c.good || err != nil && !errors.Is(err, ErrProof) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{"", "x", nonce[:42], nonce + "A", strings.Repeat("!", 43), nonce[:42] + "\n"} {
		if proof, ok := Prove(key, bad, 42); ok {
			t.Errorf("%q is signed: %s", bad, proof)
		}
	}
}
