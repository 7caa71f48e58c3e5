package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	file := func(path string, mode os.FileMode) string {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := file(a+"/plain", 0o644)
	file(a+"/both", 0o644)
	both := file(b+"/both", 0o755)
	only := file(b+"/only", 0o755)
	spaced := file(b+"/my server (1)", 0o755)
	link := b + "/link"
	if err := os.Symlink("only", link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(b+"/dir", 0o755); err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{"", ".", "relative", "/nonexistent", plain, a, b}, ":")

	for command, want := range map[string]string{
		"only": only, "both": both, only: only, link: link, "link": link, spaced: spaced, "my server (1)": spaced,
	} {
		if got, err := Resolve(command, path); got != want || err != nil {
			t.Errorf("Resolve(%q) = %q, %v, want %q", command, got, err, want)
		}
	}
	for command, hint := range map[string]string{
		"":                       "empty",
		"a\x00b":                 "NUL",
		"nothing":                "not in PATH",
		"plain":                  "not executable",
		plain:                    "not executable",
		"dir":                    "directory",
		b + "/dir":               "directory",
		b + "/missing":           "not exist",
		plain + "/x":             "not exist",
		"/dev/null":              "not a regular file",
		"npx -y server":          "shell command line",
		"server | tee log":       "shell command line",
		"~/bin/server":           "shell command line",
		"$HOME/bin/server":       "shell command line",
		only + " --flag":         "shell command line",
		"sh -c 'curl x | sh'":    "shell command line",
		"server\tx":              "shell command line",
		"a;b":                    "shell command line",
		"`id`":                   "shell command line",
		"server && rm -rf / > x": "shell command line",
	} {
		got, err := Resolve(command, path)
		if err == nil || got != "" || !strings.Contains(err.Error(), hint) {
			t.Errorf("Resolve(%q) = %q, %v, want an error with %q", command, got, err, hint)
		}
	}
	if _, err := Resolve("nothing", path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file should be fs.ErrNotExist: %v", err)
	}
	if got, err := Resolve("sh", ""); err != nil || !filepath.IsAbs(got) {
		t.Errorf("without PATH: %q, %v", got, err)
	}
}

// Not parallel: it changes the environment.
func TestEnvironmentIsBuiltNotInherited(t *testing.T) {
	for _, name := range []string{"PATH", "HOME", "USER", "LANG", "TMPDIR"} {
		t.Setenv(name, "daemon's "+name)
	}
	os.Unsetenv("LANG")
	t.Setenv("DATABASE_URL", "canary")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "canary")
	got := Environment(map[string]string{"API_KEY": "k=1", "HOME": "/declared"})
	want := []string{"API_KEY=k=1", "HOME=/declared", "PATH=daemon's PATH", "TMPDIR=daemon's TMPDIR", "USER=daemon's USER"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	os.Unsetenv("PATH")
	if got := Environment(nil); got[1] != "PATH="+FallbackPath {
		t.Fatalf("without PATH: %q", got)
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := Backoff{Rand: func() float64 { return 0 }}
	now := time.Unix(0, 0)
	if b.Wait(now) != 0 {
		t.Fatal("the first start waits")
	}
	for _, want := range []time.Duration{250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000} {
		if got := b.Ended(now, now.Add(59*time.Second)); got != want*time.Millisecond {
			t.Fatalf("got %v, want %d ms", got, want)
		}
	}
	end := now.Add(60 * time.Second)
	if got := b.Ended(now, end); got != BackoffFirst {
		t.Fatalf("after a minute of life: %v", got)
	}
	if got := b.Wait(end.Add(100 * time.Millisecond)); got != 150*time.Millisecond {
		t.Fatalf("Wait: %v", got)
	}
	if got := b.Wait(end.Add(time.Hour)); got != 0 {
		t.Fatalf("Wait: %v", got)
	}
	b = Backoff{Rand: func() float64 { return 0.999 }}
	if got := b.Ended(now, now); got < BackoffFirst*3/4 || got > BackoffFirst*4/5 {
		t.Fatalf("jitter: %v", got)
	}
	var zero Backoff
	if got := zero.Ended(now, now); got < BackoffFirst*3/4 || got > BackoffFirst {
		t.Fatalf("random: %v", got)
	}
}
