package process

import (
	"maps"
	"path/filepath"
	"slices"
)

// Profile is a named set of grants for a kind of server. Relative paths are relative to the user's home.
type Profile struct {
	Read, Write []string // credentials and sockets, which are hidden in every other grant
	Public      []string // granted to read, and hidden in no other grant
	Nested      bool     // the server makes namespaces of its own
}

// profiles returns the known profiles. Each grants credentials, or a way out of the sandbox, so none is granted by
// default.
func profiles() map[string]Profile {
	return map[string]Profile{
		"aws":         {Read: []string{".aws"}, Write: []string{".aws/cli/cache", ".aws/sso/cache"}},
		"azure":       {Write: []string{".azure"}},
		"browsers":    {Public: []string{".cache/ms-playwright", ".cache/puppeteer"}, Nested: true},
		"docker":      {Read: []string{".docker"}, Write: []string{"/run/docker.sock", ".docker/run/docker.sock", ".docker/desktop", ".colima/default/docker.sock", ".rd/docker.sock"}},
		"gcloud":      {Write: []string{".config/gcloud"}},
		"git":         {Public: []string{".gitconfig", ".config/git"}},
		"github":      {Read: []string{".config/gh"}},
		"huggingface": {Read: []string{".cache/huggingface/token", ".cache/huggingface/stored_tokens"}, Public: []string{".cache/huggingface"}},
		"kubernetes":  {Read: []string{".kube", ".minikube"}},
		"mcp-remote":  {Write: []string{".mcp-auth"}},
		"npm":         {Read: []string{".npmrc"}},
		"podman":      {Write: []string{"/run/podman/podman.sock"}},
	}
}

// ProfileNames returns the names of all profiles, sorted.
func ProfileNames() []string {
	return slices.Sorted(maps.Keys(profiles()))
}

// Grant adds grants to the sandbox. A word is a path, or the name of a profile.
func (s *Sandbox) Grant(read, write []string, home string) {
	for _, word := range read {
		if !s.grantProfile(word, home) {
			s.Read = append(s.Read, word)
		}
	}
	for _, word := range write {
		if !s.grantProfile(word, home) {
			s.Write = append(s.Write, word)
		}
	}
}

func (s *Sandbox) grantProfile(name, home string) bool {
	p, ok := profiles()[name]
	if !ok {
		return false
	}
	s.Nested = s.Nested || p.Nested
	s.Read = slices.Concat(s.Read, pathsBelow(home, p.Public), pathsBelow(home, p.Read))
	s.Write = append(s.Write, pathsBelow(home, p.Write)...)
	return true
}

func pathsBelow(home string, paths []string) []string {
	var all []string
	for _, path := range paths {
		if !filepath.IsAbs(path) {
			path = filepath.Join(home, path)
		}
		all = append(all, path)
	}
	return all
}
