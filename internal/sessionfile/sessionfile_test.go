package sessionfile_test

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

	"github.com/doorward/doorward/internal/sessionfile"
)

const token = "dws1.k0.cGF5bG9hZA.bWFj-MOST_SECRET"

// session is a file that can be used; n tells it from others.
func session(n int) sessionfile.File {
	return sessionfile.File{Token: fmt.Sprintf("%s%d", token, n), SessionID: fmt.Sprintf("%016x", n),
		Bind: fmt.Sprintf("boot/%d@1", n), Expires: time.Now().Add(time.Hour).UTC().Truncate(time.Second)}
}

// runtimeDir is a directory as the daemon makes it.
func runtimeDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	must(t, os.Mkdir(dir, 0o700))
	return dir
}

func write(t *testing.T, dir string, f sessionfile.File) string {
	t.Helper()
	path, err := sessionfile.Write(dir, f)
	must(t, err)
	return path
}

// older gives a file another age.
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
	got, refused, err := sessionfile.Find(dir, func(bind string) bool { return bind == want.Bind })
	if err != nil || len(refused) > 0 || got != want {
		t.Errorf("found %+v, %v, %v", got, refused, err)
	}
	if got, _, err := sessionfile.Find(dir+"/", nil); err != nil || got != want {
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
		if f, refused, err := sessionfile.Find(dir, nil); !errors.Is(err, sessionfile.ErrNone) || refused != nil || f != (sessionfile.File{}) {
			t.Errorf("in %q: %+v, %v, %v", dir, f, refused, err)
		}
		if n, err := sessionfile.Sweep(dir, nil); n != 0 || err != nil {
			t.Errorf("sweeping %q: %d, %v", dir, n, err)
		}
		if err := sessionfile.Remove(dir, "0000000000000001"); err != nil {
			t.Errorf("removing in %q: %v", dir, err)
		}
	}
}

func TestWithoutARuntimeDirectoryNothingIsWritten(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{"", file, filepath.Join(file, "below"), "/proc/1/run"} {
		if path, err := sessionfile.Write(dir, session(1)); err == nil || path != "" {
			t.Errorf("in %q: %s, %v", dir, path, err)
		}
	}
}

func TestWhatIsNoSessionIsNotWritten(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(f *sessionfile.File){
		"no token":           func(f *sessionfile.File) { f.Token = "" },
		"a long token":       func(f *sessionfile.File) { f.Token = strings.Repeat("a", 1025) },
		"a token of lines":   func(f *sessionfile.File) { f.Token += "\nx" },
		"a token with a NUL": func(f *sessionfile.File) { f.Token += "\x00" },
		"no id":              func(f *sessionfile.File) { f.SessionID = "" },
		"a path for an id":   func(f *sessionfile.File) { f.SessionID = "../../../../../x" },
		"another id":         func(f *sessionfile.File) { f.SessionID = "000000000000000G" },
		"a long binding":     func(f *sessionfile.File) { f.Bind = strings.Repeat("a", 129) },
		"a binding of lines": func(f *sessionfile.File) { f.Bind = "a\nb" },
		"no end":             func(f *sessionfile.File) { f.Expires = time.Time{} },
	} {
		dir, f := runtimeDir(t), session(1)
		change(&f)
		if path, err := sessionfile.Write(dir, f); !errors.Is(err, sessionfile.ErrForm) || path != "" || len(names(t, dir)) > 0 {
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
	got, refused, err := sessionfile.Find(dir, nil)
	if err != nil || got != session(3) || len(refused) > 0 {
		t.Errorf("for everybody: %+v, %v, %v", got, refused, err)
	}
	got, refused, err = sessionfile.Find(dir, func(bind string) bool { return bind == session(1).Bind })
	if err != nil || got.Token != session(1).Token || len(refused) != 2 || !errors.Is(refused[0], sessionfile.ErrBinding) {
		t.Errorf("for one: %+v, %v, %v", got, refused, err)
	}
	got, refused, err = sessionfile.Find(dir, func(string) bool { return false })
	if !errors.Is(err, sessionfile.ErrNone) || len(refused) != 4 || got != (sessionfile.File{}) {
		t.Errorf("for a stranger: %+v, %v, %v", got, refused, err)
	}
}

// Each of these is the newest file, so that it would be taken first.
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
	// instead puts something else under the name; there is the good file.
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
		"everybody may read it":     {do: chmod(0o644), want: sessionfile.ErrMode},
		"the group may read it":     {do: chmod(0o640), want: sessionfile.ErrMode},
		"everybody may write it":    {do: chmod(0o602), want: sessionfile.ErrMode},
		"it can be run":             {do: chmod(0o700), want: sessionfile.ErrMode},
		"it is read-only":           {do: chmod(0o400), want: sessionfile.ErrMode},
		"it is set-uid":             {do: chmod(0o4600), want: sessionfile.ErrMode},
		"it is sticky":              {do: chmod(0o1600), want: sessionfile.ErrMode},
		"it is another user's":      {do: func(t *testing.T, path string) { must(t, os.Chown(path, 12345, 12345)) }, want: sessionfile.ErrOwner, root: true},
		"it is nobody's":            {do: func(t *testing.T, path string) { must(t, os.Chown(path, 65534, 0)) }, want: sessionfile.ErrOwner, root: true},
		"it has a second name":      {do: func(t *testing.T, path string) { must(t, os.Link(path, filepath.Dir(path)+"/../second")) }, want: sessionfile.ErrLinks},
		"a link":                    {do: instead(func(t *testing.T, there, path string) { must(t, os.Symlink(there, path)) }), want: sessionfile.ErrKind},
		"a link that is relative":   {do: instead(func(t *testing.T, there, path string) { must(t, os.Symlink("../../there", path)) }), want: sessionfile.ErrKind},
		"a link to nothing":         {do: instead(func(t *testing.T, there, path string) { must(t, os.Symlink("nothing", path)) }), want: sessionfile.ErrKind},
		"a link to itself":          {do: instead(func(t *testing.T, there, path string) { must(t, os.Symlink(filepath.Base(path), path)) }), want: sessionfile.ErrKind},
		"a hard link":               {do: instead(func(t *testing.T, there, path string) { must(t, os.Link(there, path)) }), want: sessionfile.ErrLinks},
		"a pipe":                    {do: instead(func(t *testing.T, there, path string) { must(t, syscall.Mkfifo(path, 0o600)) }), want: sessionfile.ErrKind},
		"a directory":               {do: instead(func(t *testing.T, there, path string) { must(t, os.Mkdir(path, 0o700)) }), want: sessionfile.ErrKind},
		"a socket":                  {do: instead(socket), want: sessionfile.ErrKind},
		"empty":                     {do: rewrite(func(string) string { return "" }), want: sessionfile.ErrForm},
		"cut short":                 {do: rewrite(func(s string) string { return s[:len(s)/2] }), want: sessionfile.ErrForm},
		"without its end":           {do: rewrite(func(s string) string { return s[:len(s)-1] }), want: sessionfile.ErrForm},
		"with a second value":       {do: rewrite(func(s string) string { return s + s }), want: sessionfile.ErrForm},
		"with blanks":               {do: rewrite(func(s string) string { return " " + s }), want: sessionfile.ErrForm},
		"with an unknown key":       {do: rewrite(func(s string) string { return `{"x":1,` + s[1:] }), want: sessionfile.ErrForm},
		"with a key twice":          {do: rewrite(func(s string) string { return `{"token":"dws1.other",` + s[1:] }), want: sessionfile.ErrForm},
		"with a key in other case":  {do: rewrite(func(s string) string { return strings.Replace(s, "token", "Token", 1) }), want: sessionfile.ErrForm},
		"without a token":           {do: rewrite(func(s string) string { return strings.Replace(s, `"token"`, `"t"`, 1) }), want: sessionfile.ErrForm},
		"with a token of two lines": {do: rewrite(func(s string) string { return strings.Replace(s, "SECRET", `SECRET\r\nX: y`, 1) }), want: sessionfile.ErrForm},
		"null":                      {do: rewrite(func(string) string { return "null\n" }), want: sessionfile.ErrForm},
		"a list":                    {do: rewrite(func(s string) string { return "[" + strings.TrimSpace(s) + "]\n" }), want: sessionfile.ErrForm},
		"a bare token":              {do: rewrite(func(string) string { return token }), want: sessionfile.ErrForm},
		"too large":                 {do: rewrite(func(s string) string { return s + strings.Repeat(" ", 4<<10) }), want: sessionfile.ErrSize},
		"large and empty":           {do: func(t *testing.T, path string) { must(t, os.Truncate(path, 1<<40)) }, want: sessionfile.ErrSize},
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
			got, refused, err := sessionfile.Find(dir, nil)
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
	short, err := os.MkdirTemp("", "dw") // a socket's path has little room
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
	if got, refused, err := sessionfile.Find(dir, nil); !errors.Is(err, sessionfile.ErrNone) || len(refused) != 1 || !errors.Is(refused[0], sessionfile.ErrExpired) {
		t.Errorf("%+v, %v, %v", got, refused, err)
	}
}

func TestNobodySeesHalfAFile(t *testing.T) {
	t.Parallel()
	dir := runtimeDir(t)
	write(t, dir, session(0))
	until := time.Now().Add(500 * time.Millisecond)
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for n := 0; time.Now().Before(until); n++ {
				f := session(1 + w*1000 + n%3)
				if _, err := sessionfile.Write(dir, f); err != nil {
					t.Error(err)
				}
				if err := sessionfile.Remove(dir, f.SessionID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for time.Now().Before(until) {
			if _, err := sessionfile.Sweep(dir, func(id string) bool { return strings.HasSuffix(id, "1") }); err != nil {
				t.Error(err)
			}
		}
	})
	for time.Now().Before(until) {
		if _, refused, err := sessionfile.Find(dir, nil); err != nil || len(refused) > 0 {
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
	_, refused, _ := sessionfile.Find(dir, nil)
	if want := path + ": " + sessionfile.ErrForm.Error(); len(refused) != 1 || refused[0].Error() != want {
		t.Errorf("got %v, want %s", refused, want)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
