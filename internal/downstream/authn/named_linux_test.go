package authn

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
)

// again returns the Authenticator of the same installation after a restart, with the tokens
// that are now in the environment and in the file.
func (w *world) again(key []byte, env string) *Authenticator {
	return New(Options{UID: me(), Env: secret.New(env), File: w.file, IDKey: key, Now: w.clock.Now})
}

func idOf(t *testing.T, a *Authenticator, token string) string {
	t.Helper()
	p, err := a.Authenticate(enforced(), []string{"Bearer " + token})
	if err != nil {
		t.Fatal(err)
	}
	f, ok := p.Fact(factToken)
	if !ok || a.Named(p.Name()) == nil {
		t.Fatalf("%s has no id, or its name gives no principal", p.Name())
	}
	if by, _ := a.Named(p.Name()).Fact(factToken); by.Value != f.Value {
		t.Errorf("%s has the id %s by its token and %s by its name", p.Name(), f.Value, by.Value)
	}
	return f.Value
}

// The id of a token in the environment or in the file is the same at every start, and
// different for a different token.
func TestAnIDBelongsToOneToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := []byte("the key of this installation, 32")
	const next = "another-token-0123456789"
	first := w.again(key, envToken)
	env, file := idOf(t, first, envToken), idOf(t, first, fileToken)
	if !strings.HasPrefix(env, "env:") || !strings.HasPrefix(file, "file:") || len(env) != len("env:")+16 {
		t.Errorf("ids without their source: %s, %s", env, file)
	}
	second := w.again(key, envToken)
	if idOf(t, second, envToken) != env || idOf(t, second, fileToken) != file {
		t.Error("the same tokens have other ids after a restart")
	}
	writeToken(t, w.file, next)
	third := w.again(key, next)
	if idOf(t, third, next) == file || third.Named("token:env") == nil {
		t.Error("another token in the file has its id")
	}
	if f, _ := third.Named("token:env").Fact(factToken); f.Value == env || f.Value[len("env:"):] == file[len("file:"):] {
		t.Errorf("another token in the environment has the id %s", f.Value)
	}
}

// A principal proved by the token in the file holds while the file contains that token, and
// again when the token is put back.
func TestATokenThatIsPutBackHoldsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, err := w.Authenticate(enforced(), []string{"Bearer " + fileToken})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		token string
		holds bool
	}{{"another-token-0123456789", false}, {fileToken, true}, {"a-third-token-0123456789", false}} {
		writeToken(t, w.file, step.token)
		w.clock.advance(2 * time.Second)
		if w.Holds(p) != step.holds {
			t.Errorf("with %s in the file it holds: %v", step.token, w.Holds(p))
		}
	}
}

// The id of a chosen token is not part of the token's digest and differs between
// installations, so a guessed token cannot be confirmed by its id.
func TestAnIDSaysNothingOfItsToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const weak = "passwordpassword"
	writeToken(t, w.file, weak)
	sum := sha256.Sum256([]byte(weak))
	seen := map[string]bool{}
	for _, key := range [][]byte{nil, nil, []byte("one key"), []byte("another key")} {
		a := w.again(key, weak)
		for _, id := range []string{idOf(t, a, weak), a.env.cred.id} {
			_, tag, _ := strings.Cut(id, ":")
			if seen[tag] || strings.Contains(hex.EncodeToString(sum[:]), tag) || strings.Contains(id, weak) {
				t.Errorf("the id %s occurred before, or can be computed from the token", id)
			}
			seen[tag] = true
		}
	}
	if err := os.Remove(w.file); err != nil {
		t.Fatal(err)
	}
}
