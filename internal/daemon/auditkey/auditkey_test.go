package auditkey_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/daemon/auditkey"
	"github.com/doorward/doorward/internal/trust/audit"
)

func TestKeyIsMadeOnceAndPublished(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.key")
	var keys [8]*audit.Key
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			k, err := auditkey.LoadOrCreate(path)
			if err != nil {
				t.Error(err)
			}
			keys[i] = k
		})
	}
	wg.Wait()
	for _, k := range keys {
		if k.Verifier.KeyHash() != keys[0].Verifier.KeyHash() {
			t.Fatalf("two keys: %v and %v", k.Verifier, keys[0].Verifier)
		}
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v %v", fi, err)
	}
	v, err := auditkey.LoadVerifier(filepath.Join(dir, auditkey.PublicName))
	if err != nil || v.KeyHash() != keys[0].Verifier.KeyHash() || v.Name() != "doorward/audit" {
		t.Errorf("%v %v", v, err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestKeyDoesNotPrintItsPrivateHalf(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.key")
	k, err := auditkey.LoadOrCreate(path)
	if err != nil {
		t.Fatal(err)
	}
	private := strings.TrimSpace(string(readFile(t, path)))
	secret := private[strings.LastIndexByte(private[:len(private)-44], '+')+1:]
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if out := fmt.Sprintf(verb+verb, k, k.Signer); strings.Contains(out, secret) || strings.Contains(out, "PRIVATE") {
			t.Errorf("%s prints the private key", verb)
		}
	}
}

func TestAKeyThatOthersCouldReadIsRefused(t *testing.T) {
	t.Parallel()
	for _, mode := range []os.FileMode{0o644, 0o640, 0o660, 0o604, 0o400, 0o700} {
		path := filepath.Join(t.TempDir(), "audit.key")
		if _, err := auditkey.LoadOrCreate(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := auditkey.LoadOrCreate(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
}

func TestABrokenKeyIsRefusedAndNotReplaced(t *testing.T) {
	t.Parallel()
	good := filepath.Join(t.TempDir(), "audit.key")
	if _, err := auditkey.LoadOrCreate(good); err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSpace(string(readFile(t, good)))
	public := string(readFile(t, filepath.Join(filepath.Dir(good), auditkey.PublicName)))
	for name, content := range map[string]string{
		"empty": "", "cut": text[:len(text)-5], "other": "secret-material", "public": public,
		"other name": strings.Replace(text, "doorward/audit", "somebody/else", 1),
	} {
		path := filepath.Join(t.TempDir(), "audit.key")
		writeFile(t, path, []byte(content))
		_, err := auditkey.LoadOrCreate(path)
		if err == nil || content != "" && strings.Contains(err.Error(), content) {
			t.Errorf("%s: %v", name, err)
		}
		if string(readFile(t, path)) != content {
			t.Errorf("%s: the file was changed", name)
		}
	}
	link := filepath.Join(t.TempDir(), "audit.key")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	if _, err := auditkey.LoadOrCreate(link); err == nil {
		t.Error("a symbolic link was followed")
	}
}

func TestAPublishedKeyOfAnotherIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.key")
	if _, err := auditkey.LoadOrCreate(path); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if _, err := auditkey.LoadOrCreate(filepath.Join(other, "audit.key")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, auditkey.PublicName), readFile(t, filepath.Join(other, auditkey.PublicName)))
	if _, err := auditkey.LoadOrCreate(path); err == nil || !strings.Contains(err.Error(), auditkey.PublicName) {
		t.Errorf("%v", err)
	}
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
