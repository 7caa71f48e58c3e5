package secret_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/secret"
)

// write makes a file with exactly this mode, whatever the umask.
func write(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadFileTrimsOneLineEnd(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		password:             password,
		password + "\n":      password,
		password + "\r\n":    password,
		password + "\n\n":    password + "\n",
		" " + password + " ": " " + password + " ",
		"a\nb\n":             "a\nb",
	} {
		v, err := secret.ReadFile(write(t, in, 0o400))
		if err != nil || v.Reveal() != want {
			t.Errorf("%q gives %q, %v", in, v.Reveal(), err)
		}
	}
}

func TestReadFileFollowsALinkToAGoodFile(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(write(t, password, 0o600), link); err != nil {
		t.Fatal(err)
	}
	if v, err := secret.ReadFile(link); err != nil || v.Reveal() != password {
		t.Errorf("got %v", err)
	}
}

func TestReadFileRefuses(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no mode bits")
	}
	for name, c := range map[string]struct {
		path string
		want error
	}{
		"readable by all": {write(t, password, 0o604), secret.ErrWorldReadable},
		"writable by all": {write(t, password, 0o602), secret.ErrWorldReadable},
		"a directory":     {t.TempDir(), secret.ErrNotRegular},
		"a device":        {"/dev/zero", secret.ErrNotRegular},
		"too large":       {write(t, strings.Repeat("x", secret.MaxFile+1), 0o600), secret.ErrTooLarge},
		"empty":           {write(t, "", 0o600), secret.ErrEmpty},
		"only a line end": {write(t, "\n", 0o600), secret.ErrEmpty},
		"a relative path": {"key", secret.ErrPath},
		"an absent file":  {filepath.Join(t.TempDir(), "none"), os.ErrNotExist},
	} {
		v, err := secret.ReadFile(c.path)
		if !errors.Is(err, c.want) || !v.Empty() {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		} else if c.want != secret.ErrPath && !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: the error does not name the file: %v", name, err)
		}
	}
	if v, err := secret.ReadFile(write(t, strings.Repeat("x", secret.MaxFile), 0o600)); err != nil || len(v.Reveal()) != secret.MaxFile {
		t.Errorf("a file of the largest size: %v", err)
	}
}
