package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestOnlyWhatLiesInARootIsOpened(t *testing.T) {
	t.Parallel()
	dir := must(filepath.EvalSymlinks(t.TempDir()))
	for _, d := range []string{"root/work", "root-other", "elsewhere"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"root/out": "../elsewhere", "in": "root/work", "alias": "root", "root/up": "..", "root/self": "."} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "root/file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, root, want string }{
		{"root", "root", "root"}, {"root/work", "root", "root/work"}, {"root/work/", "root/", "root/work"},
		{"in", "root", "root/work"}, {"root/work", "alias", "root/work"}, {"alias/work", "root", "root/work"}, {"root/self", "root", "root"},
		{"root/out", "root", ""}, {"root/up", "root", ""}, {"root/../elsewhere", "root", ""}, {"root-other", "root", ""}, {"root/out/..", "root", ""},
		{"root/file", "root", ""}, {"root/missing", "root", ""}, {"root", "missing", ""}, {"elsewhere", "root", ""},
	} {
		f, real, err := OpenFolder(dir+"/"+c.path, []string{dir + "/" + c.root})
		if f != nil {
			f.Close()
		}
		if c.want == "" && err == nil || c.want != "" && real != filepath.Join(dir, c.want) {
			t.Errorf("%s in %s: %s, %v; want %q", c.path, c.root, real, err, c.want)
		}
	}
	if _, _, err := OpenFolder("root", []string{"/"}); !errors.Is(err, ErrOutside) {
		t.Errorf("a relative path: %v", err)
	}
	if _, _, err := OpenFolder(dir, nil); !errors.Is(err, ErrOutside) {
		t.Errorf("without roots: %v", err)
	}
	if f, real, err := OpenFolder(dir, []string{"/"}); err != nil || real != dir {
		t.Errorf("the root of everything: %s, %v", real, err)
	} else {
		f.Close()
	}
}

// A path that leads elsewhere at the start than when it was checked gains nothing: the server runs in the checked
// directory, or not at all.
func TestASwappedDirectoryGainsNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{Off, Contain, Strict} {
		for _, how := range []string{"stays", "link", "parent"} {
			t.Run(mode+" "+how, func(t *testing.T) {
				t.Parallel()
				s := newStage(t, Options{})
				s.mode = mode
				// Not below /tmp, where a contained server has its own.
				dir := must(os.MkdirTemp("/var/tmp", "doorward"))
				t.Cleanup(func() { os.RemoveAll(dir) })
				work, other := dir+"/a/work", dir+"/other"
				for _, d := range []string{work, other + "/work"} {
					if err := os.MkdirAll(d, 0o755); err != nil {
						t.Fatal(err)
					}
				}
				f, real, err := OpenFolder(work, []string{dir + "/a"})
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				switch how {
				case "link":
					err = errors.Join(os.Rename(work, dir+"/a/gone"), os.Symlink("../other", work))
				case "parent":
					err = errors.Join(os.Rename(dir+"/a", dir+"/gone"), os.Symlink("other", dir+"/a"))
				}
				if err != nil {
					t.Fatal(err)
				}
				p, err := s.Start(Spec{Server: "s", Path: "/bin/sh", Args: []string{"-c", "pwd -P; echo planted >here"}, Env: s.env(),
					Dir: real, Folder: f, Sandbox: Sandbox{Mode: mode}})
				if err == nil {
					defer p.Stdout.Close()
					s.end(p, 5*time.Second)
				}
				for _, d := range []string{other, other + "/work"} {
					if _, err := os.Stat(d + "/here"); err == nil {
						t.Errorf("it ran in %s", d)
					}
				}
				if how == "stays" {
					if b, err := os.ReadFile(work + "/here"); string(b) != "planted\n" {
						t.Errorf("it did not run where it should: %q, %v", b, err)
					}
				}
			})
		}
	}
}

// A server starts in the directory that its daemon holds, also if the daemon is undumpable and not root, and below
// /tmp, which is covered.
func TestAHeldDirectoryIsWhereTheServerStarts(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		for _, base := range []string{"/var/tmp", "/tmp"} {
			dir := must(os.MkdirTemp(base, "doorward"))
			t.Cleanup(func() { os.RemoveAll(dir) })
			who.own(dir)
			who.file(dir+"/work/file", "x")
			for _, mode := range []string{Contain, Strict} {
				got := s.attempts(who, order{Dir: dir + "/work", Roots: []string{dir}, Sandbox: Sandbox{Mode: mode}}, "cwd", "write "+dir+"/work/new")
				s.refused(got, dir+"/work", "cwd")
				s.refused(got, "ok", "write "+dir+"/work/new")
				if b, _ := os.ReadFile(dir + "/work/new"); string(b) != "written" {
					t.Errorf("what it wrote there is %q", b)
				}
				os.Remove(dir + "/work/new")
			}
		}
	})
}

// Doorward's own files are hidden from a server, except those that this server is to have.
func TestOneServerSeesItsOwnOfWhatIsHidden(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		s.place(who)
		dir := must(os.MkdirTemp("/var/tmp", "doorward"))
		t.Cleanup(func() { os.RemoveAll(dir) })
		who.own(dir)
		for _, name := range []string{"state/key", "state/run/mine.token", "state/run/other.token"} {
			who.file(dir+"/"+name, "secret")
		}
		for _, mode := range []string{Contain, Strict} {
			got := s.attempts(who, order{Hide: []string{dir + "/state", dir + "/state/run"},
				Sandbox: Sandbox{Mode: mode, Read: []string{dir}, Own: []string{dir + "/state/run/mine.token", dir + "/state/missing"}}},
				"read "+dir+"/state/run/mine.token", "read "+dir+"/state/run/other.token", "read "+dir+"/state/key",
				"list "+dir+"/state", "list "+dir+"/state/run", "overwrite "+dir+"/state/run/mine.token")
			s.refused(got, "[secret]", "read "+dir+"/state/run/mine.token")
			s.refused(got, "ENOENT", "read "+dir+"/state/run/other.token", "read "+dir+"/state/key")
			s.refused(got, "[run]", "list "+dir+"/state")
			s.refused(got, "[mine.token]", "list "+dir+"/state/run")
			s.refused(got, "EROFS", "overwrite "+dir+"/state/run/mine.token")
		}
	})
}

// Contains is true for the server's processes, however deep and however orphaned, and for no others.
func TestATreeContainsItsProcessesAlone(t *testing.T) {
	eachMode(t, Options{}, func(t *testing.T, s *stage) {
		p := s.role("as-parent", "2", "stay")
		s.expect(p, "ready")
		other := s.role("as-parent", "1", "stay")
		s.expect(other, "ready")
		within, foreign := 0, 0
		for _, pid := range s.alive() {
			comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			if strings.HasPrefix(string(comm), "doorward-") {
				continue // a stage
			}
			mine, theirs := p.Contains(pid), other.Contains(pid)
			if mine == theirs {
				t.Errorf("process %d: %v, %v", pid, mine, theirs)
			}
			if mine {
				within++
			} else if theirs {
				foreign++
			}
		}
		if within != 3 || foreign != 2 {
			t.Errorf("%d and %d processes, want 3 and 2", within, foreign)
		}
		for what, pid := range map[string]int{"the daemon": os.Getpid(), "init": 1, "none": 0, "no such": 1 << 22, "the supervisor": p.PID(), "negative": -1} {
			if p.Contains(pid) {
				t.Errorf("%s (%s) counts as within", what, strconv.Itoa(pid))
			}
		}
		pids := s.alive()
		p.Kill()
		s.end(p, 5*time.Second)
		for _, pid := range pids {
			if p.Contains(pid) {
				t.Errorf("process %d counts as within a tree that has ended", pid)
			}
		}
	})
}
