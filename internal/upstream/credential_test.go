package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// purse is a credential that keeps the refusals and has a newer token after each. The server takes the newest alone.
type purse struct {
	mu      sync.Mutex
	token   int
	refused []string
	err     error // instead of a new token
	spent   bool  // nothing better is to be had
}

func (p *purse) Authorize(context.Context) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.token == 0 {
		return "", nil
	}
	return fmt.Sprint("Bearer t", p.token), nil
}

func (p *purse) Refused(_ context.Context, used string, resp *http.Response) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = append(p.refused, used+" "+resp.Header.Get("WWW-Authenticate"))
	if p.err != nil || p.spent {
		return false, p.err
	}
	p.token++
	return true, nil
}

// guarded is a server that accepts only the Authorization header in want.
func guarded(t *testing.T, want *atomic.Value) *fakeWeb {
	return newFakeWeb(t, func(f *fakeWeb) {
		f.stream = func(w http.ResponseWriter, r *http.Request) { events(w); <-r.Context().Done() }
		f.call = func(w http.ResponseWriter, r *http.Request, _ fakeMessage) bool {
			if r.Header.Get("Authorization") == want.Load() {
				return false
			}
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
	})
}

// A request that is refused for its credential is sent again once, whole and with a better credential, because it has
// not run.
func TestCredentialIsRenewedAndTheRequestRepeated(t *testing.T) {
	t.Parallel()
	var want atomic.Value
	want.Store("Bearer t1")
	f := guarded(t, &want)
	p := &purse{}
	s := f.server(func(_ *Definition, d *Deps) { d.Credential = p })
	c := dialLegacy(t, s, nil)
	mustCall(t, c, tool("a"), nil)
	want.Store("Bearer t2")
	if got := mustCall(t, c, tool("b", `"x":1`), nil); string(got.Result) != `{"name":"b","arguments":{"x":1}}` {
		t.Errorf("the repeated request said %s", got.Result)
	}
	if got := fmt.Sprint(p.refused); got != "[ Bearer Bearer t1 Bearer]" {
		t.Errorf("refused: %s", got)
	}
	// Every request carries it: calls, notifications, streams and the end of the session.
	c.Listen()
	eventually(t, "the stream", func() bool { return len(f.requests(func(s seen) bool { return s.httpMethod == http.MethodGet })) == 1 })
	c.Close()
	waitDone(t, c)
	for _, s := range f.requests(func(s seen) bool { return s.httpMethod != http.MethodPost }) {
		if s.header.Get("Authorization") != "Bearer t2" {
			t.Errorf("%s carried %q", s.httpMethod, s.header["Authorization"])
		}
	}
	want.Store("Bearer never")
	if _, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("refused twice: %v", err)
	}
	if n := len(p.refused); n != 3 {
		t.Errorf("asked %d times", n)
	}
}

// A dial for which a person has to sign in first fails with ErrSignIn, and no other transport is tried. Other
// troubles with the credential have other errors.
func TestSignInIsNeeded(t *testing.T) {
	t.Parallel()
	var want atomic.Value
	want.Store("Bearer never")
	f := guarded(t, &want)
	p := &purse{err: fmt.Errorf("nobody has agreed: %w", ErrSignIn)}
	s := f.server(func(_ *Definition, d *Deps) { d.Credential = p })
	if _, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil); !errors.Is(err, ErrSignIn) || wrapped(err) != 1 {
		t.Errorf("legacy: %v", err)
	}
	if _, _, err := s.DialModern(testContext(t), []byte(modernMeta), nil); !errors.Is(err, ErrSignIn) || wrapped(err) != 1 {
		t.Errorf("modern: %v", err)
	}
	p.err = errors.New("the authorization server is away")
	if _, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil); !errors.Is(err, ErrNotSent) || wrapped(err) != 1 {
		t.Errorf("no token to be had: %v", err)
	}
	p.err, p.spent = nil, true
	if _, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("refused for another reason: %v", err)
	}
	for _, r := range f.requests(func(seen) bool { return true }) {
		if r.httpMethod != http.MethodPost {
			t.Errorf("tried %s too", r.httpMethod)
		}
	}
}

// The credential goes to the origin of the configured URL alone. A request to another origin is not sent.
func TestCredentialStaysWithItsOrigin(t *testing.T) {
	t.Parallel()
	own, other := newFakeWeb(t, nil), newFakeWeb(t, nil)
	p := &purse{token: 1}
	s := own.server(func(_ *Definition, d *Deps) { d.Credential = p })
	for _, f := range []*fakeWeb{own, other} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URL+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := s.roundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
	}
	if got := own.methods("x")[0].header.Get("Authorization"); got != "Bearer t1" {
		t.Errorf("its own got %q", got)
	}
	if len(other.requests(func(seen) bool { return true })) != 0 {
		t.Error("the other was reached: allow_private is for one origin")
	}
}
