package credential_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/downstream/credential"
)

const token = "dws1.k0.cGF5bG9hZA.bWFj-MOST_SECRET"

// session is a valid file; files with different n differ.
func session(n int) credential.File {
	return credential.File{Token: fmt.Sprintf("%s%d", token, n), SessionID: fmt.Sprintf("%016x", n),
		Bind: fmt.Sprintf("boot/%d@1", n), Expires: time.Now().Add(time.Hour).UTC().Truncate(time.Second)}
}

// runtimeDir is a runtime directory with the mode that the daemon gives it.
func runtimeDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	must(t, os.Mkdir(dir, 0o700))
	return dir
}

func write(t *testing.T, dir string, f credential.File) string {
	t.Helper()
	path, err := credential.Write(dir, f)
	must(t, err)
	return path
}

// older sets the age of a file.
func older(t *testing.T, path string, age time.Duration) {
	t.Helper()
	at := time.Now().Add(-age)
	must(t, os.Chtimes(path, at, at))
}

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestASessionIsKeptAndFound(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	want := session(1)
	path := write(t, dir, want)
	for place, mode := range map[string]fs.FileMode{dir: 0o700, filepath.Dir(path): 0o700, path: 0o600} {
		if fi, err := os.Lstat(place); err != nil || fi.Mode().Perm() != mode {
			t.Errorf("%s has mode %v, %v", place, fi.Mode(), err)
		}
	}
	if filepath.Dir(path) != filepath.Join(dir, "sessions") {
		t.Errorf("it is in %s", path)
	}
	got, refused, err := credential.Find(dir, func(bind string) bool { return bind == want.Bind })
	if err != nil || len(refused) > 0 || got != want {
		t.Errorf("found %+v, %v, %v", got, refused, err)
	}
	if got, _, err := credential.Find(dir+"/", nil); err != nil || got != want {
		t.Errorf("for everybody: %+v, %v", got, err)
	}
	if all := names(t, filepath.Dir(path)); len(all) != 1 {
		t.Errorf("left behind: %v", all)
	}
}

func TestTheNameOfAFileSaysNothing(t *testing.T) {
	t.Parallel()
	dir := runtimeDir(t)
	seen := make(map[string]bool)
	for range 20 {
		f := session(1)
		name := filepath.Base(write(t, dir, f))
		if seen[name] || len(name) < 26 || strings.Contains(name, f.SessionID) || strings.Contains(f.Token, strings.TrimSuffix(name, ".json")) {
			t.Errorf("the name %s", name)
		}
		seen[name] = true
	}
}

func TestWithoutAFileThereIsNone(t *testing.T) {
	t.Parallel()
	empty := runtimeDir(t)
	must(t, os.Mkdir(filepath.Join(empty, "sessions"), 0o700))
	for _, dir := range []string{"", filepath.Join(t.TempDir(), "missing"), runtimeDir(t), empty} {
		if f, refused, err := credential.Find(dir, nil); !errors.Is(err, credential.ErrNone) || refused != nil || f != (credential.File{}) {
			t.Errorf("in %q: %+v, %v, %v", dir, f, refused, err)
		}
		if n, err := credential.Sweep(dir, nil); n != 0 || err != nil {
			t.Errorf("sweeping %q: %d, %v", dir, n, err)
		}
		if err := credential.Remove(dir, "0000000000000001"); err != nil {
			t.Errorf("removing in %q: %v", dir, err)
		}
	}
}

func TestWithoutARuntimeDirectoryNothingIsWritten(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{"", file, filepath.Join(file, "below"), "/proc/1/run"} {
		if path, err := credential.Write(dir, session(1)); err == nil || path != "" {
			t.Errorf("in %q: %s, %v", dir, path, err)
		}
	}
}

func TestAnInvalidSessionIsNotWritten(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(f *credential.File){
		"no token":           func(f *credential.File) { f.Token = "" },
		"a long token":       func(f *credential.File) { f.Token = strings.Repeat("a", 1025) },
		"a token of lines":   func(f *credential.File) { f.Token += "\nx" },
		"a token with a NUL": func(f *credential.File) { f.Token += "\x00" },
		"no id":              func(f *credential.File) { f.SessionID = "" },
		"a path for an id":   func(f *credential.File) { f.SessionID = "../../../../../x" },
		"another id":         func(f *credential.File) { f.SessionID = "000000000000000G" },
		"a long binding":     func(f *credential.File) { f.Bind = strings.Repeat("a", 129) },
		"a binding of lines": func(f *credential.File) { f.Bind = "a\nb" },
		"no end":             func(f *credential.File) { f.Expires = time.Time{} },
	} {
		dir, f := runtimeDir(t), session(1)
		change(&f)
		if path, err := credential.Write(dir, f); !errors.Is(err, credential.ErrForm) || path != "" || len(names(t, dir)) > 0 {
			t.Errorf("%s: %s, %v, and there is %v", what, path, err, names(t, dir))
		} else if strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: the error quotes the token: %v", what, err)
		}
	}
}

func TestTheNewestThatFitsComesFirst(t *testing.T) {
	t.Parallel()
	dir := runtimeDir(t)
	for n := range 4 {
		older(t, write(t, dir, session(n)), time.Duration(4-n)*time.Minute)
	}
	got, refused, err := credential.Find(dir, nil)
	if err != nil || got != session(3) || len(refused) > 0 {
		t.Errorf("for everybody: %+v, %v, %v", got, refused, err)
	}
	got, refused, err = credential.Find(dir, func(bind string) bool { return bind == session(1).Bind })
	if err != nil || got.Token != session(1).Token || len(refused) != 2 || !errors.Is(refused[0], credential.ErrBinding) {
		t.Errorf("for one: %+v, %v, %v", got, refused, err)
	}
	got, refused, err = credential.Find(dir, func(string) bool { return false })
	if !errors.Is(err, credential.ErrNone) || len(refused) != 4 || got != (credential.File{}) {
		t.Errorf("for a stranger: %+v, %v, %v", got, refused, err)
	}
}

// A file that Write would not have made is skipped with its reason, and the next file is
// used. The invalid file is the newest, so that it is tried first.
func TestAFileThatIsNotAsWeMakeItIsPassedBy(t *testing.T) {
	t.Parallel()
	chmod := func(mode uint32) func(t *testing.T, path string) {
		return func(t *testing.T, path string) { must(t, syscall.Chmod(path, mode)) }
	}
	rewrite := func(change func(text string) string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, []byte(change(string(b))), 0o600))
		}
	}
	// instead moves the valid file to the path there, and puts something else under its name.
	instead := func(put func(t *testing.T, there, path string)) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			there := filepath.Join(filepath.Dir(path), "..", "..", "there")
			must(t, os.Rename(path, there))
			put(t, there, path)
		}
	}
	for what, tc := range map[string]struct {
		do   func(t *testing.T, path string)
		want error
		root bool
	}{
		"everybody may read it":     {do: chmod(0o644), want: credential.ErrMode},
		"the group may read it":     {do: chmod(0o640), want: credential.ErrMode},
		"everybody may write it":    {do: chmod(0o602), want: credential.ErrMode},
		"it can be run":             {do: chmod(0o700), want: credential.ErrMode},
		"it is read-only":           {do: chmod(0o400), want: credential.ErrMode},
		"it is set-uid":             {do: chmod(0o4600), want: credential.ErrMode},
		"it is sticky":              {do: chmod(0o1600), want: credential.ErrMode},
		"it is another user's":      {do: func(t *testing.T, path string) { must(t, os.Chown(path, 12345, 12345)) }, want: credential.ErrOwner, root: true},
		"it is nobody's":            {do: func(t *testing.T, path string) { must(t, os.Chown(path, 65534, 0)) }, want: credential.ErrOwner, root: true},
		"it has a second name":      {do: func(t *testing.T, path string) { must(t, os.Link(path, filepath.Dir(path)+"/../second")) }, want: credential.ErrLinks},
		"a link":                    {do: instead(func(t *testing.T, there, path string) { must(t, os.Symlink(there, path)) }), want: credential.ErrKind},
		"a link that is relative":   {do: instead(func(t *testing.T, there, path string) { must(t, os.Symlink("../../there", path)) }), want: credential.ErrKind},
		"a link to nothing":         {do: instead(func(t *testing.T, there, path string) { must(t, os.Symlink("nothing", path)) }), want: credential.ErrKind},
		"a link to itself":          {do: instead(func(t *testing.T, there, path string) { must(t, os.Symlink(filepath.Base(path), path)) }), want: credential.ErrKind},
		"a hard link":               {do: instead(func(t *testing.T, there, path string) { must(t, os.Link(there, path)) }), want: credential.ErrLinks},
		"a pipe":                    {do: instead(func(t *testing.T, there, path string) { must(t, syscall.Mkfifo(path, 0o600)) }), want: credential.ErrKind},
		"a directory":               {do: instead(func(t *testing.T, there, path string) { must(t, os.Mkdir(path, 0o700)) }), want: credential.ErrKind},
		"a socket":                  {do: instead(socket), want: credential.ErrKind},
		"empty":                     {do: rewrite(func(string) string { return "" }), want: credential.ErrForm},
		"cut short":                 {do: rewrite(func(s string) string { return s[:len(s)/2] }), want: credential.ErrForm},
		"without its end":           {do: rewrite(func(s string) string { return s[:len(s)-1] }), want: credential.ErrForm},
		"with a second value":       {do: rewrite(func(s string) string { return s + s }), want: credential.ErrForm},
		"with blanks":               {do: rewrite(func(s string) string { return " " + s }), want: credential.ErrForm},
		"with an unknown key":       {do: rewrite(func(s string) string { return `{"x":1,` + s[1:] }), want: credential.ErrForm},
		"with a key twice":          {do: rewrite(func(s string) string { return `{"token":"dws1.other",` + s[1:] }), want: credential.ErrForm},
		"with a key in other case":  {do: rewrite(func(s string) string { return strings.Replace(s, "token", "Token", 1) }), want: credential.ErrForm},
		"without a token":           {do: rewrite(func(s string) string { return strings.Replace(s, `"token"`, `"t"`, 1) }), want: credential.ErrForm},
		"with a token of two lines": {do: rewrite(func(s string) string { return strings.Replace(s, "SECRET", `SECRET\r\nX: y`, 1) }), want: credential.ErrForm},
		"null":                      {do: rewrite(func(string) string { return "null\n" }), want: credential.ErrForm},
		"a list":                    {do: rewrite(func(s string) string { return "[" + strings.TrimSpace(s) + "]\n" }), want: credential.ErrForm},
		"a bare token":              {do: rewrite(func(string) string { return token }), want: credential.ErrForm},
		"too large":                 {do: rewrite(func(s string) string { return s + strings.Repeat(" ", 4<<10) }), want: credential.ErrSize},
		"large and empty":           {do: func(t *testing.T, path string) { must(t, os.Truncate(path, 1<<40)) }, want: credential.ErrSize},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if tc.root && os.Geteuid() != 0 {
				t.Skip("needs root to give a file to another user")
			}
			dir := runtimeDir(t)
			good := session(1)
			older(t, write(t, dir, good), time.Hour)
			path := write(t, dir, session(2))
			tc.do(t, path)
			got, refused, err := credential.Find(dir, nil)
			if err != nil || got != good || len(refused) != 1 || !errors.Is(refused[0], tc.want) {
				t.Fatalf("found %+v, refused %v, %v; want the good one and %v", got, refused, err, tc.want)
			}
			if text := refused[0].Error(); !strings.Contains(text, path) || strings.Contains(text, "SECRET") {
				t.Errorf("the reason is %q", text)
			}
		})
	}
}

func socket(t *testing.T, _, path string) {
	short, err := os.MkdirTemp("", "dw") // the path of a socket is limited to about 100 bytes
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(short) })
	ln, err := net.Listen("unix", filepath.Join(short, "s"))
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	must(t, os.Rename(filepath.Join(short, "s"), path))
}

func TestAnExpiredSessionIsPassedBy(t *testing.T) {
	t.Parallel()
	dir := runtimeDir(t)
	f := session(1)
	f.Expires = time.Now().Add(-time.Second).UTC().Truncate(time.Second)
	write(t, dir, f)
	if got, refused, err := credential.Find(dir, nil); !errors.Is(err, credential.ErrNone) || len(refused) != 1 || !errors.Is(refused[0], credential.ErrExpired) {
		t.Errorf("%+v, %v, %v", got, refused, err)
	}
}

func TestAReaderSeesNoPartialFile(t *testing.T) {
	t.Parallel()
	dir := runtimeDir(t)
	write(t, dir, session(0))
	until := time.Now().Add(500 * time.Millisecond)
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for n := 0; time.Now().Before(until); n++ {
				f := session(1 + w*1000 + n%3)
				if _, err := credential.Write(dir, f); err != nil {
					t.Error(err)
				}
				if err := credential.Remove(dir, f.SessionID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for time.Now().Before(until) {
			if _, err := credential.Sweep(dir, func(id string) bool { return strings.HasSuffix(id, "1") }); err != nil {
				t.Error(err)
			}
		}
	})
	for time.Now().Before(until) {
		if _, refused, err := credential.Find(dir, nil); err != nil || len(refused) > 0 {
			t.Errorf("refused %v, %v", refused, err)
		}
	}
	wg.Wait()
}

func TestAReasonQuotesNothingOfTheFile(t *testing.T) {
	t.Parallel()
	dir := runtimeDir(t)
	path := write(t, dir, session(1))
	b, err := json.Marshal(map[string]any{"token": []string{token}})
	must(t, err)
	must(t, os.WriteFile(path, b, 0o600))
	_, refused, _ := credential.Find(dir, nil)
	if want := path + ": " + credential.ErrForm.Error(); len(refused) != 1 || refused[0].Error() != want {
		t.Errorf("got %v, want %s", refused, want)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
