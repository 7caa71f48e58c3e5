package process

import (
	"os"
	"path/filepath"
	"testing"
)

// A new private home begins with the packages that npx has installed for the user and the server names, data beside the code
// included, and with no others. Later starts change nothing.
func TestAPrivateHomeBeginsWithItsPackage(t *testing.T) {
	t.Parallel()
	user, state := t.TempDir(), t.TempDir()
	write := func(path, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	npx := filepath.Join(user, ".npm/_npx")
	write(npx+"/a/package.json", `{"_npx": {"packages": ["@x/server-memory"]}}`)
	write(npx+"/a/node_modules/@x/server-memory/dist/memory.jsonl", "kept")
	if err := os.MkdirAll(npx+"/a/node_modules/.bin", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../@x/server-memory/dist/index.js", npx+"/a/node_modules/.bin/memory"); err != nil {
		t.Fatal(err)
	}
	write(npx+"/b/package.json", `{"_npx": {"packages": ["other"]}}`)
	write(npx+"/c/package.json", `not JSON`)

	home := filepath.Join(state, "servers/m/home")
	for range 2 {
		var h homes
		if err := h.prepare(home, []string{"-y", "@x/server-memory"}, []string{user}); err != nil {
			t.Fatal(err)
		}
	}
	if b, _ := os.ReadFile(home + "/.npm/_npx/a/node_modules/@x/server-memory/dist/memory.jsonl"); string(b) != "kept" {
		t.Errorf("the server's data is %q", b)
	}
	if to, _ := os.Readlink(home + "/.npm/_npx/a/node_modules/.bin/memory"); to != "../@x/server-memory/dist/index.js" {
		t.Errorf("its program leads to %q", to)
	}
	all, err := os.ReadDir(home + "/.npm/_npx")
	if err != nil || len(all) != 1 {
		t.Errorf("copied: %v, %v", all, err)
	}
}
