package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// emptyStreet is a street on which no engine listens.
func emptyStreet(t *testing.T) *street {
	t.Helper()
	s := &street{stage: newStage(t, Options{})}
	s.base = s.place(s.inmate())
	s.home = s.base + "/home"
	for _, dir := range append(streetDirs, "/home") {
		must(0, os.MkdirAll(s.base+dir, 0o700))
	}
	if out, err := exec.Command("cp", self(), s.base+"/child.test").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return s
}

// TestProfilesReachTheirSockets: a server with a profile connects to the sockets that the profile grants, and to those
// of the engines whose directories lie in what it grants.
func TestProfilesReachTheirSockets(t *testing.T) {
	t.Parallel()
	s := emptyStreet(t)
	of := map[string][]string{}
	for name, p := range profiles() {
		granted := pathsBelow(s.home, slices.Concat(p.Read, p.Write))
		for _, path := range slices.Concat(granted, engines, pathsBelow(s.home, homeEngines)) {
			if !strings.HasSuffix(path, ".sock") {
				path += "/docker.sock"
			}
			engine := slices.ContainsFunc(slices.Concat(engines, pathsBelow(s.home, homeEngines)), func(e string) bool { return within(path, e) })
			if engine && !strings.Contains(path, "*") && slices.ContainsFunc(granted, func(g string) bool { return within(path, g) }) {
				of[name] = append(of[name], path)
			}
		}
		slices.Sort(of[name])
		of[name] = slices.Compact(of[name])
		for _, socket := range of[name] {
			s.listen(socket)
		}
	}
	for name, sockets := range of {
		if len(sockets) == 0 {
			continue
		}
		box := Sandbox{Mode: Contain}
		box.Grant([]string{name}, nil, s.home)
		said := s.dial(box)
		for _, socket := range sockets {
			if got := said["dial unix "+socket]; got != "ok" {
				t.Errorf("profile %s: dialling %s: %s", name, socket, got)
			}
		}
	}
	for _, socket := range []string{"/run/docker.sock", s.home + "/.docker/desktop/docker.sock", s.home + "/.docker/run/docker.sock"} {
		if !slices.Contains(of["docker"], socket) {
			t.Errorf("%s is not tried", socket)
		}
	}
}

// TestNamedFilesAreNoEngines: a regular file in a directory of engines is granted if it is named, and is hidden in a
// grant of the directory. A directory in it is granted by write alone.
func TestNamedFilesAreNoEngines(t *testing.T) {
	t.Parallel()
	s := emptyStreet(t)
	file, inner := "/run/user/1000/.mutter-Xwaylandauth.X", "/run/user/1000/agenix/key"
	for _, path := range []string{file, inner} {
		must(0, os.MkdirAll(filepath.Dir(s.base+path), 0o700))
		must(0, os.WriteFile(s.base+path, []byte("seen"), 0o600))
	}
	for kind, box := range streetGrants {
		for _, named := range []string{file, inner, filepath.Dir(inner), filepath.Dir(file), "/run"} {
			said := s.prison(s.inmate(), order{Homes: []string{s.home}, Path: s.base + "/child.test",
				Args: []string{"as-prisoner", "read " + file, "read " + inner}, Sandbox: box([]string{named})})
			for _, path := range []string{file, inner} {
				want := path == named || path == inner && kind == "write" && named == filepath.Dir(inner)
				if got := said["read "+path]; got == "" || (got == "[seen]") != want {
					t.Errorf("%s %s: reading %s: %s, want it seen: %v", kind, named, path, got, want)
				}
			}
		}
	}
}
