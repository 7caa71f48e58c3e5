package signin

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
)

// Calls that find the token invalid at the same time cause one refresh, also when they are of two processes with the
// same state. A refresh token is good for one use, and the server ends everything when it sees it twice.
func TestOneRefreshAtATime(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	store := newStore(t)
	mustLogin(t, store, p.settings())
	age(t, store)
	one := newSource(t, p.settings(), store, nil)
	two := newSource(t, p.settings(), &Store{dir: store.dir, seal: store.seal}, nil)
	for round := range 3 {
		p.spoil()
		p.before = func(*http.Request) { time.Sleep(20 * time.Millisecond) }
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if status, _, err := call(t, []*Source{one, two}[i%2], p.URL+"/mcp"); status != http.StatusOK || err != nil {
					t.Errorf("round %d: %d %v", round, status, err)
				}
			})
		}
		wg.Wait()
		age(t, store)
	}
	if n := len(p.asked("/token")); n != 1+3 {
		t.Errorf("%d token requests for one sign-in and three refreshes", n)
	}
}

// age makes the stored token older: a fresh one that is refused is not renewed.
func age(t *testing.T, store *Store) {
	t.Helper()
	e, ok := store.find("docs", storedURL(t, store))
	if !ok {
		t.Fatal("nothing is stored")
	}
	e.Renewed = e.Renewed.Add(-time.Minute)
	if err := store.write(e); err != nil {
		t.Fatal(err)
	}
}

func storedURL(t *testing.T, store *Store) string {
	t.Helper()
	all, _, err := store.all()
	if err != nil || len(all) == 0 {
		t.Fatalf("nothing is stored: %v", err)
	}
	return all[0].URL
}

// A token that is about to end is renewed before a request is sent, and each refresh token replaces the one before.
func TestRefreshBeforeTheEnd(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	store := newStore(t)
	mustLogin(t, store, p.settings())
	old, _ := store.find("docs", storedURL(t, store))
	old.Expires = time.Now().Add(leeway / 2)
	old.Renewed = old.Expires.Add(-time.Hour)
	if err := store.write(old); err != nil {
		t.Fatal(err)
	}
	src := newSource(t, p.settings(), store, nil)
	if status, _, err := call(t, src, p.URL+"/mcp"); status != http.StatusOK || err != nil {
		t.Fatalf("%d %v", status, err)
	}
	if n := len(p.asked("/mcp")); n != 2 { // the sign-in's own question, and the call
		t.Errorf("%d requests reached the server", n)
	}
	refreshes := p.asked("/token")[1:]
	e, _ := store.find("docs", storedURL(t, store))
	if len(refreshes) != 1 || refreshes[0].form.Get("resource") != p.URL+"/mcp" || e.Refresh == refreshes[0].form.Get("refresh_token") {
		t.Errorf("refreshed %d times; the stored token is the used one: %v", len(refreshes), e.Refresh == refreshes[0].form.Get("refresh_token"))
	}
}

// The end of a sign-in at the authorization server gives one notice, and the void refresh token is not sent again. A
// new sign-in is used at once.
func TestRevokedRefreshToken(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	store := newStore(t)
	mustLogin(t, store, p.settings())
	age(t, store)
	var notices atomic.Int32
	src := newSource(t, p.settings(), store, func(what string) {
		if what == NoticeNeeded {
			notices.Add(1)
		}
	})
	p.spoil()
	p.mu.Lock()
	clear(p.refresh)
	p.mu.Unlock()
	for range 3 {
		if _, _, err := call(t, src, p.URL+"/mcp"); !errors.Is(err, ErrSignIn) {
			t.Errorf("a call: %v", err)
		}
	}
	if n := len(p.asked("/token")); n != 2 || notices.Load() != 1 {
		t.Errorf("%d token requests, %d notices", n, notices.Load())
	}
	if all, _, _ := store.List(); len(all) != 1 || all[0].State != "sign-in needed" || all[0].Renews {
		t.Errorf("listed: %+v", all)
	}
	mustLogin(t, store, p.settings()) // while the daemon runs
	if need, _ := src.Needs(); need != "" {
		t.Errorf("after a new sign-in a person still hears %q", need)
	}
	if status, _, err := call(t, src, p.URL+"/mcp"); status != http.StatusOK || err != nil {
		t.Errorf("after a new sign-in: %d %v", status, err)
	}
}

// A token that is refused right after it was issued is not renewed, because another one would not be better.
func TestFreshTokenThatIsRefused(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	store := newStore(t)
	mustLogin(t, store, p.settings())
	p.spoil()
	src := newSource(t, p.settings(), store, nil)
	for range 5 {
		if status, _, err := call(t, src, p.URL+"/mcp"); status == http.StatusOK {
			t.Errorf("%d %v", status, err)
		}
	}
	if n := len(p.asked("/token")); n != 1 {
		t.Errorf("%d token requests", n)
	}
}

// An authorization server that fails ends the refresh, not the sign-in. It is not asked again for a while, and a token
// that is still valid is used.
func TestAuthorizationServerThatFails(t *testing.T) {
	t.Parallel()
	p := newProvider(t, func(p *provider) { p.tokenErr = "" })
	store := newStore(t)
	mustLogin(t, store, p.settings())
	age(t, store)
	p.tokenErr = "temporarily_unavailable"
	p.spoil()
	src := newSource(t, p.settings(), store, nil)
	for range 5 {
		_, _, err := call(t, src, p.URL+"/mcp")
		if err == nil || errors.Is(err, ErrSignIn) || strings.Contains(err.Error(), "private") {
			t.Errorf("a call: %v", err)
		}
	}
	if n := len(p.asked("/token")); n != 2 {
		t.Errorf("%d token requests", n)
	}
	if _, trouble := src.Needs(); trouble == nil {
		t.Error("the operator hears nothing")
	}
	p.tokenErr = ""
	src.mu.Lock()
	src.until = time.Time{}
	src.mu.Unlock()
	if status, _, err := call(t, src, p.URL+"/mcp"); status != http.StatusOK || err != nil {
		t.Errorf("afterwards: %d %v", status, err)
	}
	e := *src.now.Load()
	e.Expires = time.Now().Add(leeway / 2) // due, and good
	e.Renewed = e.Expires.Add(-time.Hour)
	src.now.Store(&e)
	p.tokenErr = "temporarily_unavailable"
	if auth, err := src.Authorize(t.Context()); auth != "Bearer "+e.Access || err != nil {
		t.Errorf("a token that holds: %v", err)
	}
}

// A refresh goes on when the caller that began it leaves, because the new token must not be lost.
func TestRefreshOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	store := newStore(t)
	mustLogin(t, store, p.settings())
	age(t, store)
	p.spoil()
	begun, proceed := make(chan struct{}), make(chan struct{})
	p.before = func(*http.Request) { close(begun); <-proceed }
	src := newSource(t, p.settings(), store, nil)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := src.Refused(ctx, "Bearer "+src.carried(), refusal(401, "Bearer"))
		gone <- err
	}()
	<-begun
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller hears %v", err)
	}
	close(proceed)
	src.Close() // as a daemon that stops does
	p.before = nil
	if status, _, err := call(t, newSource(t, p.settings(), store, nil), p.URL+"/mcp"); status != http.StatusOK || err != nil {
		t.Errorf("the next run: %d %v", status, err)
	}
}

func refusal(status int, challenge string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Www-Authenticate": {challenge}}, Body: http.NoBody}
}

// When a server wants more scopes than were granted, a person is told and the next sign-in asks for all of them. The
// present token stays in use for other calls.
func TestMoreScopesAreWanted(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	store := newStore(t)
	mustLogin(t, store, p.settings())
	src := newSource(t, p.settings(), store, nil)
	again, err := src.Refused(t.Context(), "Bearer "+src.carried(), refusal(403, `Bearer error="insufficient_scope", scope="write admin"`))
	if again || !errors.Is(err, ErrSignIn) {
		t.Fatalf("%v %v", again, err)
	}
	if need, _ := src.Needs(); need != "doorward login docs" {
		t.Errorf("a person hears %q", need)
	}
	if status, _, err := call(t, src, p.URL+"/mcp"); status != http.StatusOK || err != nil {
		t.Errorf("another call: %d %v", status, err)
	}
	if r := mustLogin(t, store, p.settings()); !slices.Equal(r.Scopes, []string{"read", "write", "admin"}) {
		t.Errorf("asked for %v", r.Scopes)
	}
	again, err = src.Refused(t.Context(), "Bearer "+src.carried(), refusal(403, `Bearer error="insufficient_scope", scope="write"`))
	if !again || err != nil {
		t.Errorf("with the new sign-in: %v %v", again, err)
	}
	if again, err := src.Refused(t.Context(), "", refusal(403, "")); again || err != nil {
		t.Errorf("a plain 403: %v %v", again, err)
	}
	if again, err := src.Refused(t.Context(), "", refusal(401, `Basic realm="x"`)); again || err != nil {
		t.Errorf("another scheme: %v %v", again, err)
	}
}

// A machine signs in by itself: with its own secret, for the resource, at the issuer that the operator named.
func TestMachine(t *testing.T) {
	t.Parallel()
	p := newProvider(t, func(p *provider) { delete(p.meta, "code_challenge_methods_supported") })
	s := p.settings()
	s.Grant, s.ClientID, s.ClientSecret, s.Issuer = GrantMachine, "robot", secret.New("client-canary"), p.URL
	store := newStore(t)
	src := newSource(t, s, store, nil)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if status, scopes, err := call(t, src, p.URL+"/mcp"); status != http.StatusOK || scopes != "read" || err != nil {
				t.Errorf("%d %s %v", status, scopes, err)
			}
		})
	}
	wg.Wait()
	asked := p.asked("/token")
	if len(asked) != 1 || asked[0].form.Get("resource") != p.URL+"/mcp" || asked[0].form.Get("scope") != "read" || !strings.HasPrefix(asked[0].auth, "Basic ") {
		t.Errorf("asked %+v", asked)
	}
	if again, err := src.Refused(t.Context(), "Bearer "+src.carried(), refusal(403, `Bearer error="insufficient_scope", scope="write"`)); !again || err != nil {
		t.Errorf("more scopes: %v %v", again, err)
	}
	if e := src.now.Load(); !slices.Equal(e.Scopes, []string{"write", "read"}) {
		t.Errorf("it has %v", e.Scopes)
	}
	if all, _, _ := store.List(); len(all) != 0 {
		t.Error("a machine's token was stored")
	}
	// What the operator fixed stays as it is.
	s.Scopes = []string{"read"}
	src = newSource(t, s, store, nil)
	call(t, src, p.URL+"/mcp")
	if again, _ := src.Refused(t.Context(), "Bearer "+src.carried(), refusal(403, `Bearer error="insufficient_scope", scope="write"`)); again {
		t.Error("more was asked for than the operator allows")
	}
}

// A token belongs to a server at an address: not to another name, not to the same name at another address.
func TestTokensAreOfOneServerAtOneAddress(t *testing.T) {
	t.Parallel()
	p, evil := newProvider(t, nil), newProvider(t, nil)
	store := newStore(t)
	mustLogin(t, store, p.settings())
	other := p.settings()
	other.Server = "other"
	moved := evil.settings()
	for what, s := range map[string]Settings{"another name": other, "another address": moved} {
		src := newSource(t, s, store, nil)
		if auth, err := src.Authorize(t.Context()); auth != "" || err != nil {
			t.Errorf("%s carries a token: %v", what, err)
		}
		if _, _, err := call(t, src, s.URL); !errors.Is(err, ErrSignIn) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// A server that calls itself by another's name is not signed in to.
	evil.prm["resource"] = p.URL + "/mcp"
	if _, err := login(t, store, evil.settings()); err == nil {
		t.Error("signed in for another's resource")
	}
	for _, s := range evil.seen {
		if strings.Contains(s.auth+s.body, "canary") {
			t.Errorf("the other was told %s %s", s.auth, s.body)
		}
	}
}

// A sign-in is not used when the configuration names another client than the one that it was made with.
func TestConfigurationOfAnotherClient(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	s := p.settings()
	s.ClientID = "old"
	store := newStore(t)
	mustLogin(t, store, s)
	age(t, store)
	p.spoil()
	s.ClientID = "new"
	if _, _, err := call(t, newSource(t, s, store, nil), p.URL+"/mcp"); !errors.Is(err, ErrSignIn) {
		t.Errorf("%v", err)
	}
	if n := len(p.asked("/token")); n != 1 {
		t.Errorf("%d token requests", n)
	}
}

// A running daemon stops sending the token of a sign-in that is gone, though the authorization server was not told.
func TestLogoutOfARunningDaemon(t *testing.T) {
	t.Parallel()
	p := newProvider(t, func(p *provider) { delete(p.meta, "revocation_endpoint") })
	store := newStore(t)
	mustLogin(t, store, p.settings())
	src := newSource(t, p.settings(), store, nil)
	if status, _, err := call(t, src, p.URL+"/mcp"); status != http.StatusOK || err != nil {
		t.Fatalf("before: %d %v", status, err)
	}
	s := p.settings()
	if gone, told, err := store.Logout(t.Context(), "docs", &s); gone != 1 || told == nil || err != nil {
		t.Fatalf("%d %v %v", gone, told, err)
	}
	src.looked.Store(0) // some seconds later
	if _, _, err := call(t, src, p.URL+"/mcp"); !errors.Is(err, ErrSignIn) {
		t.Errorf("after: %v", err)
	}
}

// Logging out revokes at the authorization server and leaves nothing here.
func TestLogout(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	store := newStore(t)
	mustLogin(t, store, p.settings())
	s := p.settings()
	gone, told, err := store.Logout(t.Context(), "docs", &s)
	if gone != 1 || told != nil || err != nil {
		t.Errorf("%d %v %v", gone, told, err)
	}
	if r := p.asked("/revoke"); len(r) != 1 || !strings.HasPrefix(r[0].form.Get("token"), "refresh-canary") || r[0].form.Get("client_id") != "client-1" {
		t.Errorf("revoked %+v", r)
	}
	if all, _, _ := store.List(); len(all) != 0 {
		t.Errorf("stored: %+v", all)
	}
	if gone, _, err := store.Logout(t.Context(), "docs", &s); gone != 0 || err != nil {
		t.Errorf("twice: %d %v", gone, err)
	}
}
