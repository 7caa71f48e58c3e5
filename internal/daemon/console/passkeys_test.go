package console

import "testing"

// TestTheOriginIsTheOneThatABrowserSends: a browser leaves out the default port of a scheme, and
// no other port.
func TestTheOriginIsTheOneThatABrowserSends(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ scheme, listener, want string }{
		{"http", "127.0.0.1:7866", "http://localhost:7866"},
		{"https", "[::1]:7866", "https://localhost:7866"},
		{"http", "127.0.0.1:80", "http://localhost"},
		{"https", "127.0.0.1:443", "https://localhost"},
		{"http", "127.0.0.1:443", "http://localhost:443"},
		{"https", "127.0.0.1:80", "https://localhost:80"},
	} {
		q := &request{v: Visit{Scheme: tc.scheme, Listener: tc.listener}, s: &session{}}
		if got := (passkeyPages{}).visit(q).Origin; got != tc.want {
			t.Errorf("%s on %s: %s, want %s", tc.scheme, tc.listener, got, tc.want)
		}
	}
}
