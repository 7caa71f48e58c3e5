package signin

import (
	"errors"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// Connections of other programs, idle or with a part of a request, do not keep the browser from its answer: only the
// newest few stay open, and each of them ends by itself.
func TestStrangersDoNotBlockTheCallback(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	store := newStore(t)
	l, err := Begin(t.Context(), store, p.settings(), anyPort)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, err := url.Parse(l.URL)
	if err != nil {
		t.Fatal(err)
	}
	redirect, err := url.Parse(u.Query().Get("redirect_uri"))
	if err != nil {
		t.Fatal(err)
	}
	var all []net.Conn
	for i := range 10 * mostOpen {
		c, err := net.Dial("tcp", redirect.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if all = append(all, c); i%2 == 0 {
			_, _ = c.Write([]byte("GET /"))
		}
	}
	for i, c := range all[:len(all)-mostOpen] {
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d of %d is open", i, len(all))
		}
	}
	browse(t, l.URL)
	if _, err := l.Wait(t.Context()); err != nil {
		t.Errorf("the sign-in: %v", err)
	}
}

// The scopes of an answer are the same whatever separates them.
func TestGrantedScopesAreSeparatedByCommasToo(t *testing.T) {
	t.Parallel()
	for _, words := range [][]string{{"repo"}, {"repo", "gist"}, {"repo", "read:org", "gist"}} {
		for _, between := range []string{" ", ","} {
			text := strings.Join(words, between)
			if got := readScopes([]byte(`"` + text + `"`)); !slices.Equal(got, words) {
				t.Errorf("%s: %q", text, got)
			}
		}
	}
}
