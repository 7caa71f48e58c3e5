package client

import (
	"net/url"
	"testing"
)

// TestANameStaysOneSegmentOfThePath: whatever a server's name is, it is the last segment of the
// route and no query, fragment or other path.
func TestANameStaysOneSegmentOfThePath(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"notes", "my.server", "my server", "a/b", "../x", "a?b=c", "a#b", "a%2fb", "é"} {
		u, err := url.Parse(base + Path(name))
		if err != nil || u.Path != "/mcp/"+name || u.RawQuery != "" || u.Fragment != "" {
			t.Errorf("%q: %v, %v", name, u, err)
		}
	}
}
