package upstream

import "testing"

// TestTheReasonNamesWhatIsMissing: the first line of what a program said names the package, program
// or image that does not exist, whatever it prints around it.
func TestTheReasonNamesWhatIsMissing(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"npm 11, package", []string{"npm error code E404", "npm error 404 Not Found - GET https://registry.example.com/no-such", "npm error 404",
			"npm error 404  The requested resource 'no-such@*' could not be found or you do not have permission to access it.", "npm error 404",
			"npm error 404 Note that you can also install from a", "npm error 404 tarball, folder, http url, or git url.", "npm error A complete log of this run can be found in: /x.log"},
			"npm error 404 Not Found - GET https://registry.example.com/no-such"},
		{"npm 8, package", []string{"npm ERR! code E404", "npm ERR! 404 Not Found - GET https://registry.example.com/no-such - Not found", "npm ERR! 404 ", "npm ERR! 404  'no-such@*' is not in this registry."},
			"npm ERR! 404 Not Found - GET https://registry.example.com/no-such - Not found"},
		{"npm, version", []string{"npm error code ETARGET", "npm error notarget No matching version found for is-odd@99.99.99.", "npm error A complete log of this run can be found in: /x.log"},
			"npm error notarget No matching version found for is-odd@99.99.99."},
		{"npm, registry", []string{"npm error code ECONNREFUSED", "npm error syscall connect", "npm error errno ECONNREFUSED",
			"npm error FetchError: request to http://127.0.0.1:9/is-odd failed, reason: connect ECONNREFUSED 127.0.0.1:9"},
			"npm error FetchError: request to http://127.0.0.1:9/is-odd failed, reason: connect ECONNREFUSED 127.0.0.1:9"},
		{"npm, folder", []string{"npm error code EACCES", "npm error syscall mkdir", "npm error path /var/my own cache", "npm error errno -13", "npm error Error: EACCES: permission denied, mkdir '/var/my own cache'"},
			"npm error Error: EACCES: permission denied, mkdir '/var/my own cache'"},
		{"npx from cold", []string{"npm warn exec The following package was not found and will be installed: x@1.0.0", "set API_KEY: access denied"}, "set API_KEY: access denied"},
		{"uvx, package", []string{"  × No solution found when resolving tool dependencies:", "  ╰─▶ Because no-such was not found in the package registry and you require", "      no-such, we can conclude that your requirements are unsatisfiable."},
			"╰─▶ Because no-such was not found in the package registry and you require"},
		{"uvx, version", []string{"  × No solution found when resolving tool dependencies:", "  ╰─▶ Because there is no version of x==99 and you require x==99, we can"},
			"╰─▶ Because there is no version of x==99 and you require x==99, we can"},
		{"pip", []string{"WARNING: retrying", "ERROR: Could not find a version that satisfies the requirement no-such (from versions: none)", "ERROR: No matching distribution found for no-such"},
			"ERROR: Could not find a version that satisfies the requirement no-such (from versions: none)"},
		{"Python", []string{"starting", "/usr/bin/python3: No module named no_such"}, "/usr/bin/python3: No module named no_such"},
		{"sh", []string{"starting", "/usr/bin/sh: 1: no-such: not found"}, "/usr/bin/sh: 1: no-such: not found"},
		{"env", []string{"starting", "env: 'no-such': No such file or directory"}, "env: 'no-such': No such file or directory"},
		{"docker", []string{"Unable to find image 'example/none:1' locally", "docker: Error response from daemon: pull access denied for example/none, repository does not exist or may require 'docker login'", "",
			"Run 'docker run --help' for more information"}, "docker: Error response from daemon: pull access denied for example/none, repository does not exist or may require 'docker login'"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s Server
			s.diagnostics.begin()
			for _, line := range tc.lines {
				s.diagnostics.add(line)
			}
			if _, lines := s.LastWords(); lines[0] != tc.want {
				t.Errorf("first line %q, want %q", lines[0], tc.want)
			}
		})
	}
}
