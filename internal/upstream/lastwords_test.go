package upstream

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTheReasonOfAProcessComesFirst: of the lines that a process printed before it ended, the
// one that says why is first, wherever it was printed, and what npm prints about itself is none.
func TestTheReasonOfAProcessComesFirst(t *testing.T) {
	notice := []string{"npm notice", "npm notice New minor version of npm available! 11.19.1 -> 11.21.2", "npm notice Changelog: https://example.com", "npm notice To update run: npm install -g npm@11.21.2", "npm notice"}
	for _, tc := range []struct {
		name        string
		lines, want []string
	}{
		{"last", []string{"Starting server 1.2", "loading", "Error: API_KEY is missing"}, []string{"Error: API_KEY is missing", "Starting server 1.2", "loading"}},
		{"between", []string{"Starting", "Error: no key", "bye"}, []string{"Error: no key", "Starting", "bye"}},
		{"long ago", []string{"Error: no key", "a", "b", "c", "d", "e", "f"}, []string{"Error: no key", "b", "c", "d", "e", "f"}},
		{"none", []string{"a", "b"}, []string{"a", "b"}},
		{"notices", append([]string{"Error: no key"}, notice...), []string{"Error: no key"}},
		{"notices alone", notice, nil},
		{"a package that is installed first", []string{"npm warn exec The following package was not found and will be installed: x@1", "Fatal error: no key"},
			[]string{"Fatal error: no key", "npm warn exec The following package was not found and will be installed: x@1"}},
		{"no such package", []string{"npm error code E404", "npm error 404 Not Found - GET https://registry.example/x", "npm error 404"},
			[]string{"npm error 404 Not Found - GET https://registry.example/x", "npm error code E404", "npm error 404"}},
		{"no such version", []string{"npm error code ETARGET", "npm error notarget No matching version found for x@99."},
			[]string{"npm error notarget No matching version found for x@99.", "npm error code ETARGET"}},
		{"npm of Node.js 18", []string{"npm ERR! code E404", "npm ERR! 404 Not Found - GET https://registry.example/x"},
			[]string{"npm ERR! 404 Not Found - GET https://registry.example/x", "npm ERR! code E404"}},
		{"no network", []string{"npm error code ENOTFOUND", "npm error syscall getaddrinfo", "npm error errno ENOTFOUND", "npm error network request to https://registry.example/x failed, reason: getaddrinfo ENOTFOUND"},
			[]string{"npm error network request to https://registry.example/x failed, reason: getaddrinfo ENOTFOUND", "npm error code ENOTFOUND", "npm error syscall getaddrinfo", "npm error errno ENOTFOUND"}},
		{"no right", []string{"npm error code EACCES", "npm error errno -13", "npm error The operation was rejected", "npm error Error: EACCES: permission denied, mkdir '/x'"},
			[]string{"npm error Error: EACCES: permission denied, mkdir '/x'", "npm error code EACCES", "npm error errno -13", "npm error The operation was rejected"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s Server
			s.diagnostics.begin()
			for _, line := range tc.lines {
				s.diagnostics.add(line)
			}
			if _, lines := s.LastWords(); cmp.Diff(tc.want, lines) != "" {
				t.Error(cmp.Diff(tc.want, lines))
			}
		})
	}
}
