package process

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCredentialsOfProfilesStayHidden: a whole home is granted without what the profiles grant, except for the profile
// that is named. What a profile grants that is no secret is there.
func TestCredentialsOfProfilesStayHidden(t *testing.T) {
	eachUser(t, func(t *testing.T, s *stage, who *inmate) {
		home := s.place(who)
		for _, p := range profiles() {
			for _, path := range slices.Concat(p.Public, p.Read, p.Write) {
				if !filepath.IsAbs(path) {
					who.file(canaryIn(home, path), canaryOf(path))
				}
			}
		}
		who.file(home+"/.config/git/credentials", "canary")
		for _, named := range append(ProfileNames(), "none") {
			if profiles()[named].Nested {
				continue // refused together with a grant in which something is hidden
			}
			for kind, box := range map[string]Sandbox{"named": {Named: []string{home}}, "read": {Read: []string{home}}, "write": {Write: []string{home}}} {
				if named != "none" && kind != "named" {
					continue
				}
				box.Mode = Contain
				if named != "none" {
					box.Grant([]string{named}, nil, home)
				}
				o := order{Homes: []string{home}, Env: []string{"HOME=" + home}, Sandbox: box, Args: []string{"read " + home + "/.config/git/credentials"}}
				wanted := map[string]bool{o.Args[0]: false}
				for name, p := range profiles() {
					for _, path := range slices.Concat(p.Public, p.Read, p.Write) {
						if attempt := "read " + canaryIn(home, path); !filepath.IsAbs(path) {
							wanted[attempt] = wanted[attempt] || name == named || slices.Contains(p.Public, path)
							o.Args = append(o.Args, attempt)
						}
					}
				}
				said := s.prison(who, o)
				for attempt, want := range wanted {
					if got := said[attempt]; strings.Contains(got, "canary") != want {
						t.Errorf("%s, profile %s: %s: %s", kind, named, attempt, got)
					}
				}
				if got := said["read "+home+"/.npmrc"]; !strings.Contains(got, "registry=https://npm.example.com/") {
					t.Errorf("%s, profile %s: the settings of npm: %s", kind, named, got)
				}
			}
		}
	})
}

// canaryIn returns a file at a path of a profile, or in it if that is a directory.
func canaryIn(home, path string) string {
	if base := filepath.Base(path); strings.HasSuffix(base, ".sock") || slices.Contains([]string{".npmrc", ".gitconfig", "token", "stored_tokens"}, base) {
		return filepath.Join(home, path)
	}
	return filepath.Join(home, path, "x")
}

func canaryOf(path string) string {
	if path == ".npmrc" {
		return "registry=https://npm.example.com/\n//npm.example.com/:_authToken=canary\n"
	}
	return "canary"
}
