package process

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// street is a machine on which every engine listens: once each is a socket, and once a directory with a socket in it.
// Its /run, /tmp and /var/lib are directories below base that only its own processes see there.
type street struct {
	*stage
	base, home string
	entries    []string // the lists with a name for each star
	sockets    []string
}

// streetDirs lists the directories of the host that a street has of its own.
var streetDirs = []string{"/run", "/tmp", "/var/lib"}

func newStreet(t *testing.T, directories bool) *street {
	t.Helper()
	s := &street{stage: newStage(t, Options{})}
	s.base = s.place(s.inmate())
	s.home = s.base + "/home"
	for _, dir := range append(streetDirs, "/home") {
		if err := os.MkdirAll(s.base+dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("cp", self(), s.base+"/child.test").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, e := range slices.Concat(engines, pathsBelow(s.home, homeEngines)) {
		e = strings.TrimPrefix(strings.ReplaceAll(e, "*", "x"), "/var/run/")
		if !filepath.IsAbs(e) {
			e = "/run/" + e
		}
		if slices.Contains(s.entries, e) {
			continue
		}
		if below(e, s.home) || slices.ContainsFunc(streetDirs, func(dir string) bool { return below(e, dir) }) {
			s.entries = append(s.entries, e)
		}
	}
	for _, e := range s.entries {
		if inner := slices.ContainsFunc(s.entries, func(o string) bool { return below(o, e) }); !inner && !directories {
			s.listen(e)
		} else if directories {
			s.listen(e + "/s")
		}
	}
	return s
}

func (s *street) inmate() *inmate {
	return &inmate{name: "street", t: s.t, uid: os.Getuid(), how: s.enter}
}

// enter makes the directories those of the processes that c starts. They are root in their namespace.
func (s *street) enter(c *exec.Cmd) {
	script := "base=$1; shift; for dir in " + strings.Join(streetDirs, " ") + "; do mount --bind $base$dir $dir || exit; done; exec \"$@\""
	c.Args = append([]string{"/bin/sh", "-c", script, "sh", s.base, s.base + "/child.test"}, c.Args[1:]...)
	c.Path, c.SysProcAttr = "/bin/sh", &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if os.Getuid() != 0 {
		c.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
}

func (s *street) listen(path string) {
	s.t.Helper()
	at := path
	if !below(path, s.home) {
		at = s.base + path
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		s.t.Fatal(err)
	}
	l, err := net.Listen("unix", at)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { l.Close() })
	s.sockets = append(s.sockets, path)
}

// dial starts a server with a sandbox, which tries every socket, and returns what came of it.
func (s *street) dial(box Sandbox) map[string]string {
	s.t.Helper()
	o := order{Homes: []string{s.home}, Path: s.base + "/child.test", Args: []string{"as-prisoner"}, Sandbox: box}
	for _, socket := range s.sockets {
		o.Args = append(o.Args, "dial unix "+socket)
	}
	said := s.prison(s.inmate(), o)
	if said["ended"] != "exit status 0" {
		s.t.Fatalf("%+v: the prisoner did not get to its end: %v", box, said)
	}
	return said
}

// above returns the directories above the sockets by depth, which are not in one another, and last the sockets.
func (s *street) above() [][]string {
	all := make([][]string, 32)
	for _, socket := range s.sockets {
		for dir := filepath.Dir(socket); dir != "/" && dir != s.base; dir = filepath.Dir(dir) {
			depth := strings.Count(dir, "/")
			if !slices.Contains(all[depth], dir) {
				all[depth] = append(all[depth], dir)
			}
		}
	}
	all = append(all, s.sockets)
	return slices.DeleteFunc(all, func(dirs []string) bool { return len(dirs) == 0 })
}

// streetGrants are the kinds of grants that a server can have.
var streetGrants = map[string]func(paths []string) Sandbox{
	"named":  func(paths []string) Sandbox { return Sandbox{Mode: Contain, Named: paths} },
	"write":  func(paths []string) Sandbox { return Sandbox{Mode: Contain, Write: paths} },
	"read":   func(paths []string) Sandbox { return Sandbox{Mode: Strict, Read: paths} },
	"listed": func(paths []string) Sandbox { return Sandbox{Mode: Strict, Listed: paths} },
}

// TestEnginesAreOutOfReachInGrants: no grant lets a server connect to a socket of engines, unless write names it or the
// listed directory that it is in.
func TestEnginesAreOutOfReachInGrants(t *testing.T) {
	t.Parallel()
	for form, directories := range map[string]bool{"sockets": false, "directories": true} {
		for kind, box := range streetGrants {
			t.Run(form+" "+kind, func(t *testing.T) {
				t.Parallel()
				s := newStreet(t, directories)
				for _, paths := range s.above() {
					said := s.dial(box(paths))
					for _, socket := range s.sockets {
						want := kind == "write" && s.named(socket, paths)
						if got := said["dial unix "+socket]; (got == "ok") != want {
							t.Errorf("%v: dialling %s: %s, want success: %v", paths, socket, got, want)
						}
					}
				}
			})
		}
	}
}

// named reports whether paths name a socket, or a listed directory in which no further one leads to the socket.
func (s *street) named(socket string, paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		return within(socket, path) && (slices.Contains(s.entries, path) || path == socket) &&
			!slices.ContainsFunc(s.entries, func(e string) bool { return below(e, path) && within(socket, e) })
	})
}

// TestAnOwnFileInASecretUncoversNothing: a well-known secret stays hidden where a file of Doorward's lies in it.
func TestAnOwnFileInASecretUncoversNothing(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		home := s.place(who)
		for _, name := range []string{".aws/credentials", ".aws/doorward/doorward.yaml", ".aws/doorward/named"} {
			who.file(home+"/"+name, "secret")
		}
		for kind, box := range map[string]Sandbox{"write": {Write: []string{home}}, "read": {Read: []string{home}}, "named": {Named: []string{home, home + "/.aws/doorward/named"}}} {
			box.Mode = Contain
			got := s.attempts(who, order{Hide: []string{home + "/.aws/doorward"}, Homes: []string{home}, Sandbox: box},
				"read "+home+"/.aws/credentials", "read "+home+"/.aws/doorward/doorward.yaml", "read "+home+"/.aws/doorward/named")
			t.Log(kind)
			s.refused(got, "ENOENT", "read "+home+"/.aws/credentials", "read "+home+"/.aws/doorward/doorward.yaml", "read "+home+"/.aws/doorward/named")
		}
	})
}
