package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// planted are links that a server can leave in a directory S that it writes, before the configuration's path S/run is opened
// again. Each leads to the directory vault, which is granted to none.
var planted = map[string][][2]string{
	"absolute":          {{"S/run", "BASE/vault"}},
	"relative":          {{"S/run", "../vault"}},
	"through the root":  {{"S/run", "../../../../../../../../../../BASE/vault"}},
	"a chain":           {{"S/run", "a"}, {"S/a", "sub/b"}, {"S/sub/b", "../../vault"}},
	"above":             {{"S/x", ".."}, {"S/run", "x/vault"}},
	"out and in again":  {{"S/run", "../S/sub/out"}, {"S/sub/out", "BASE/vault"}},
	"to a link outside": {{"S/run", "../door"}},
}

// A link that a server leaves in a directory that it writes grants nothing outside of it at the next start, in no kind
// of grant, neither to this server nor to another.
func TestPlantedLinksGrantNothing(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		for form, links := range planted {
			for _, named := range []string{"/S/run", "/trusted", "/S/sub/../run"} {
				base := s.vault(who, links)
				box := Sandbox{Mode: Contain, Write: []string{base + "/S"}}
				for of, o := range map[string]order{
					"paths": {Sandbox: Sandbox{Mode: Contain, Write: []string{base + "/S", base + named}, Read: []string{base + named, base + named + "/secret"},
						Named: []string{base + named, base + named + "/secret"}, Listed: []string{base + named}}},
					"other paths": {Shared: []string{base + "/S"}, Sandbox: Sandbox{Mode: Contain, Write: []string{base + named},
						Read: []string{base + named}, Named: []string{base + named + "/secret"}, Listed: []string{base + named}}},
					"directory":       {Dir: base + named, Sandbox: box},
					"other directory": {Dir: base + named, Shared: []string{base + "/S"}, Sandbox: Sandbox{Mode: Contain}},
					"program":         {Path: base + named + "/program", Args: []string{"as-prisoner"}, Sandbox: box},
					"module path":     {Env: []string{"PATH=" + base + named}, Sandbox: box},
				} {
					s.seesNothing(who, base, o, form+" as "+of+" by "+named)
				}
			}
		}
	})
}

// vault makes S with the links in it, and vault with a secret and a program. trusted and door are links of the user's own.
func (s *stage) vault(who *inmate, links [][2]string) string {
	s.t.Helper()
	base := s.place(who)
	who.file(base+"/vault/secret", "canary")
	who.file(base+"/S/sub/file", "granted")
	if out, err := exec.Command("cp", who.self(), base+"/vault/program").CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	for _, l := range append(links, [2]string{"trusted", "S/run"}, [2]string{"door", "vault"}) {
		if err := os.Symlink(strings.ReplaceAll(l[1], "BASE", base), filepath.Join(base, l[0])); err != nil {
			s.t.Fatal(err)
		}
	}
	return base
}

// seesNothing fails the test if the server can read the canary by any of its names, or change it.
func (s *stage) seesNothing(who *inmate, base string, o order, what string) {
	s.t.Helper()
	for _, path := range []string{"/vault/secret", "/S/run/secret", "/trusted/secret", "/door/secret"} {
		o.Args = append(o.Args, "read "+base+path)
	}
	o.Args = append(o.Args, "write "+base+"/vault/secret", "read secret")
	for attempt, result := range s.prison(who, o) {
		if strings.Contains(result, "canary") {
			s.t.Errorf("%s: %s: %s", what, attempt, result)
		}
	}
	if b, _ := os.ReadFile(base + "/vault/secret"); string(b) != "canary" {
		s.t.Errorf("%s: the secret is %q", what, b)
	}
}

// Links of the user's own are followed, and so are those that stay inside, or lead to what every server sees.
func TestHonestLinksAreFollowed(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		base := s.vault(who, [][2]string{{"S/run", "sub"}, {"S/sh", "/bin/sh"}, {"S/abs", "BASE/S/sub"}})
		got := s.attempts(who, order{Dir: base + "/trusted", Sandbox: Sandbox{Mode: Contain, Write: []string{base + "/S"},
			Read: []string{base + "/door"}, Named: []string{base + "/S/abs/file"}}},
			"read file", "read "+base+"/door/secret", "read "+base+"/S/abs/file", "read "+base+"/S/run/file")
		s.refused(got, "[granted]", "read file", "read "+base+"/S/abs/file", "read "+base+"/S/run/file")
		s.refused(got, "[canary]", "read "+base+"/door/secret")
		said := s.prison(who, order{Path: base + "/S/sh", Args: []string{"-c", "echo said: it runs"}, Sandbox: Sandbox{Mode: Contain, Write: []string{base + "/S"}}})
		if said["said"] != "it runs" {
			t.Errorf("a program that is a link to the system's: %v", said)
		}
	})
}

// The reason names the link when a server is not started for it, and so does the measure when the server sees less for
// a link in a list of paths.
func TestALinkThatLeadsOutIsNamed(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		base := s.vault(who, planted["relative"])
		for kind, o := range map[string]order{
			"directory": {Dir: base + "/S/run"},
			"read":      {Sandbox: Sandbox{Read: []string{base + "/S/run"}}},
			"named":     {Sandbox: Sandbox{Named: []string{base + "/S/run"}}},
			"program":   {Path: base + "/S/run/program"},
		} {
			o.Sandbox.Mode, o.Shared = Contain, []string{base + "/S"}
			said := s.prison(who, o)
			if want := "starting server s: sandbox: " + base + "/S/run"; !strings.HasPrefix(said["not started"], want) || !strings.Contains(said["not started"], errLeadsOut.Error()) {
				t.Errorf("%s: the reason is %v", kind, said)
			}
		}
		said := s.prison(who, order{Sandbox: Sandbox{Mode: Contain, Write: []string{base + "/S"}, Listed: []string{base + "/S/run"}}})
		if !strings.Contains(said["measure root by allow-list"], "leads elsewhere: "+base+"/S/run") {
			t.Errorf("the measure says %v", said)
		}
	})
}
