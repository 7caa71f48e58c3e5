package signin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/doorward/doorward/internal/base/secret"
)

// at has a handler answer at a path, in place of the provider, which it gets as well.
func (p *provider) at(path string, h func(w http.ResponseWriter, r *http.Request, provider http.Handler)) {
	inner := p.Config.Handler
	p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path {
			h(w, r, inner)
			return
		}
		inner.ServeHTTP(w, r)
	})
}

func answerWith(status int, body string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// refused signs in, has every later refresh answered with status and body, makes a call whose token is refused, and
// returns what the source says.
func refused(t *testing.T, status int, body string) (src *Source, store *Store, err error) {
	t.Helper()
	p := newProvider(t, nil)
	store = newStore(t)
	mustLogin(t, store, p.settings())
	age(t, store)
	p.spoil()
	p.at("/token", answerWith(status, body))
	src = newSource(t, p.settings(), store, nil)
	_, _, err = call(t, src, p.URL+"/mcp")
	return src, store, err
}

// A refusal that only a person can resolve ends the sign-in and names the command, whatever the status: Entra has
// interaction_required, GitHub 200 with bad_refresh_token, Atlassian 403.
func TestARefusalForAPersonEndsTheSignIn(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"invalid_grant", "invalid_client", "unauthorized_client", "invalid_scope", "interaction_required", "login_required",
		"consent_required", "account_selection_required", "insufficient_user_authentication", "bad_refresh_token", "incorrect_client_credentials"} {
		for _, status := range []int{200, 400, 401, 403} {
			t.Run(fmt.Sprint(code, " ", status), func(t *testing.T) {
				t.Parallel()
				src, store, err := refused(t, status, `{"error":"`+code+`","error_description":"<b>no</b>","error_uri":"https://as.example/x"}`)
				need, trouble := src.Needs()
				if !errors.Is(err, ErrSignIn) || need != "doorward login docs" || trouble != nil {
					t.Errorf("%v; need %q, trouble %v", err, need, trouble)
				}
				if all, _, _ := store.List(); len(all) != 1 || all[0].State != "sign-in needed" {
					t.Errorf("listed %+v", all)
				}
			})
		}
	}
}

// A refusal without a known code keeps the sign-in, because it may pass, and names the command, because it may not. One
// that says that it will pass names none.
func TestARefusalWithoutAKnownCodeKeepsTheSignIn(t *testing.T) {
	t.Parallel()
	for body, unclear := range map[string]bool{
		`{"error":"a_code_of_its_own"}`: true, `{"error":{"code":"x"}}`: true, `{"message":"no"}`: true, `<h1>no</h1>`: true,
		`{"error":"temporarily_unavailable"}`: false, `{"error":"server_error"}`: false,
	} {
		for _, status := range []int{200, 400, 401, 403, 408, 429, 500, 503} {
			if status == 200 && !strings.Contains(body, `"error"`) {
				continue
			}
			src, store, err := refused(t, status, body)
			_, trouble := src.Needs()
			if err == nil || errors.Is(err, ErrSignIn) || trouble == nil {
				t.Fatalf("%d %s: %v; trouble %v", status, body, err, trouble)
			}
			want := unclear && status < 500 && status != 408 && status != 429
			if got := strings.Contains(trouble.Error(), "run doorward login docs"); got != want {
				t.Errorf("%d %s: it says %q", status, body, trouble)
			}
			if e, ok := store.find("docs", src.target.resource); !ok || e.Refresh == "" {
				t.Errorf("%d %s: the refresh token is gone", status, body)
			}
		}
	}
}

// A machine whose client is refused is told apart from one whose authorization server fails.
func TestARefusedMachine(t *testing.T) {
	t.Parallel()
	for body, final := range map[string]bool{`{"error":"invalid_client"}`: true, `{"error":"unauthorized_client"}`: true, `{"error":"invalid_scope"}`: true,
		`{"error":"temporarily_unavailable"}`: false, `{}`: false} {
		p := newProvider(t, nil)
		p.at("/token", answerWith(400, body))
		s := p.settings()
		s.Grant, s.ClientID, s.ClientSecret, s.Issuer = GrantMachine, "robot", secret.New("client-canary"), p.URL
		_, _, err := call(t, newSource(t, s, newStore(t), nil), p.URL+"/mcp")
		if err == nil || errors.Is(err, ErrRefused) != final || errors.Is(err, ErrSignIn) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// A registration that the authorization server has forgotten is not used again: it is dropped when a refresh shows it,
// and the operator is told when a sign-in does.
func TestAForgottenRegistrationIsReplaced(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	store := newStore(t)
	mustLogin(t, store, p.settings())
	l, err := Begin(t.Context(), store, p.settings(), anyPort)
	if err != nil {
		t.Fatal(err)
	}
	forgotten := true
	p.at("/token", func(w http.ResponseWriter, r *http.Request, provider http.Handler) {
		if forgotten {
			answerWith(401, `{"error":"invalid_client"}`)(w, r, nil)
			return
		}
		provider.ServeHTTP(w, r)
	})
	browse(t, l.URL)
	if _, err := l.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "run doorward logout docs") {
		t.Errorf("a sign-in with it: %v", err)
	}
	l.Close() // the port that was registered is free again
	age(t, store)
	p.spoil()
	if _, _, err := call(t, newSource(t, p.settings(), store, nil), p.URL+"/mcp"); !errors.Is(err, ErrSignIn) {
		t.Errorf("a call: %v", err)
	}
	forgotten = false
	mustLogin(t, store, p.settings())
	if n := len(p.asked("/register")); n != 2 {
		t.Errorf("registered %d times", n)
	}
}

// A running daemon uses a new sign-in within seconds, though its own token is still valid: it may be for another account.
func TestANewSignInReplacesATokenThatIsValid(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	store := newStore(t)
	mustLogin(t, store, p.settings())
	src := newSource(t, p.settings(), store, nil)
	first, _ := src.Authorize(t.Context())
	mustLogin(t, store, p.settings())
	src.looked.Store(0) // some seconds later
	second, err := src.Authorize(t.Context())
	e, _ := store.find("docs", src.target.resource)
	if second == first || second != "Bearer "+e.Access || err != nil {
		t.Errorf("the token before the second sign-in is used: %v, %v", second == first, err)
	}
	if third, _ := src.Authorize(t.Context()); third != second {
		t.Error("it changed again")
	}
}

// The metadata of an authorization server are found in each of their places when the places before have what sites
// answer at an unknown address: an error, a page, or a redirect to one.
func TestMetadataAreFoundBehindPages(t *testing.T) {
	t.Parallel()
	unknown := map[string]http.HandlerFunc{
		"404":        http.NotFound,
		"405":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) },
		"a page":     func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<!doctype html><h1>Welcome</h1>") },
		"a redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/sign-in", http.StatusFound) },
	}
	for realm, places := range map[string][]string{
		"":       {"/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"},
		"/realm": {"/.well-known/oauth-authorization-server/realm", "/.well-known/openid-configuration/realm", "/realm/.well-known/openid-configuration"},
	} {
		for n := range places {
			for name, answer := range unknown {
				t.Run(fmt.Sprint(name, places[n]), func(t *testing.T) {
					t.Parallel()
					p := newProvider(t, func(p *provider) {
						p.meta["issuer"] = p.URL + realm
						p.prm["authorization_servers"] = []string{p.URL + realm}
					})
					for i, place := range places {
						p.at(place, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
							if i == n {
								writeJSON(w, p.meta)
								return
							}
							answer(w, r)
						})
					}
					p.at("/sign-in", func(http.ResponseWriter, *http.Request, http.Handler) { t.Error("a redirect was followed") })
					if r, err := login(t, newStore(t), p.settings()); err != nil || r.Issuer != p.URL+realm {
						t.Errorf("%+v %v", r, err)
					}
				})
			}
		}
	}
}

// The server's own metadata are found in the second place, and a server that redirects every stranger to its page too.
func TestResourceMetadataAreFoundBehindPages(t *testing.T) {
	t.Parallel()
	toPage := func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		http.Redirect(w, r, "/sign-in", http.StatusFound)
	}
	p := newProvider(t, nil)
	p.at("/mcp", toPage)
	p.at("/.well-known/oauth-protected-resource/mcp", toPage)
	p.at("/.well-known/oauth-protected-resource", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { writeJSON(w, p.prm) })
	mustLogin(t, newStore(t), p.settings())

	// An address that the server itself names has to have them.
	p = newProvider(t, nil)
	p.at("/.well-known/oauth-protected-resource/mcp", toPage)
	if _, err := login(t, newStore(t), p.settings()); err == nil || !strings.Contains(err.Error(), "not at the address that the server names") {
		t.Errorf("%v", err)
	}
}

// An issuer that its metadata write with another slash at the end is refused, and the error says how to sign in.
func TestAnIssuerWithAnotherSlash(t *testing.T) {
	t.Parallel()
	p := newProvider(t, func(p *provider) { p.meta["issuer"] = p.URL + "/" })
	s := p.settings()
	if _, err := login(t, newStore(t), s); err == nil || !strings.Contains(err.Error(), "oauth.authorization_server") {
		t.Errorf("%v", err)
	}
	s.Issuer = p.URL + "/"
	mustLogin(t, newStore(t), s)
}

// A client is registered with a secret where the authorization server accepts no other, and proves it in the way that was
// registered.
func TestRegistrationWithASecret(t *testing.T) {
	t.Parallel()
	for method, announced := range map[string][]string{methodPost: {methodPost}, methodBasic: {methodBasic, "private_key_jwt"}, "": nil} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, func(p *provider) {
				if announced != nil {
					p.meta["token_endpoint_auth_methods_supported"] = announced
				}
			})
			insists := method
			if method == "" {
				insists = methodBasic // the default
			}
			p.at("/register", func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				var m struct {
					Method string `json:"token_endpoint_auth_method"`
				}
				_ = json.UnmarshalRead(r.Body, &m)
				if m.Method != insists {
					answerWith(400, `{"error":"invalid_client_metadata"}`)(w, r, nil)
					return
				}
				answerWith(201, `{"client_id":"made","client_secret":"client-canary","client_secret_expires_at":0,"token_endpoint_auth_method":"`+insists+`"}`)(w, r, nil)
			})
			p.at("/token", func(w http.ResponseWriter, r *http.Request, provider http.Handler) {
				body, _ := io.ReadAll(r.Body)
				form, _ := url.ParseQuery(string(body))
				id, secret := form.Get("client_id"), form.Get("client_secret")
				if insists == methodBasic {
					id, secret, _ = r.BasicAuth()
				}
				if id != "made" || secret != "client-canary" {
					answerWith(401, `{"error":"invalid_client"}`)(w, r, nil)
					return
				}
				form.Set("client_id", id)
				r.Body = io.NopCloser(strings.NewReader(form.Encode()))
				provider.ServeHTTP(w, r)
			})
			store := newStore(t)
			mustLogin(t, store, p.settings())
			age(t, store)
			p.spoil()
			if status, _, err := call(t, newSource(t, p.settings(), store, nil), p.URL+"/mcp"); status != http.StatusOK || err != nil {
				t.Errorf("after a renewal: %d %v", status, err)
			}
		})
	}
}

// A token beside an empty error is a token.
func TestATokenBesideAnEmptyError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`""`, `null`, `false`} {
		p := newProvider(t, nil)
		p.at("/token", answerWith(200, `{"error":`+text+`,"access_token":"access-canary","token_type":"bearer"}`))
		mustLogin(t, newStore(t), p.settings())
	}
}

// A refused registration is not repeated without reason, and the error says how to go on without one.
func TestARefusedRegistrationSaysHowToGoOn(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403, 404, 429, 500} {
		p := newProvider(t, func(p *provider) { p.meta["token_endpoint_auth_methods_supported"] = []string{methodBasic, methodPost} })
		asked := 0
		p.at("/register", func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			asked++
			answerWith(status, `{"error":"access_denied","error_description":"Policy 'Trusted Hosts' rejected request"}`)(w, r, nil)
		})
		_, err := login(t, newStore(t), p.settings())
		if err == nil || !strings.Contains(err.Error(), "set oauth.client_id") || strings.Contains(err.Error(), "Trusted") || asked != 1 {
			t.Errorf("%d: asked %d times: %v", status, asked, err)
		}
	}
}

// A token answer is not refused for a member that the token can do without, because the code or the refresh token before it
// has been used. Every combination of the forms that servers send is read.
func TestTokenAnswersOfManyServers(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	scopes := map[string][]string{"": nil, `,"scope":null`: nil, `,"scope":""`: nil, `,"scope":"a b"`: {"a", "b"}, `,"scope":["a","b"]`: {"a", "b"},
		`,"scope":[]`: nil, `,"scope":[1]`: nil, `,"scope":{"a":1}`: nil, `,"scope":7`: nil}
	lives := map[string]int{"": 0, `,"expires_in":null`: 0, `,"expires_in":60`: 60, `,"expires_in":"60"`: 60, `,"expires_in":60.0`: 60, `,"expires_in":"never"`: 0,
		`,"expires_in":[60]`: 0, `,"expires_in":0`: 0, `,"expires_in":""`: 0}
	refreshes := map[string]string{"": "", `,"refresh_token":null`: "", `,"refresh_token":"r"`: "r", `,"refresh_token":"a,b \"c\\ d"`: `a,b "c\ d`}
	for scope, wantScopes := range scopes {
		for life, seconds := range lives {
			for refresh, want := range refreshes {
				for _, kind := range []string{"bearer", "Bearer", "BEARER"} {
					body := `{"token_type":"` + kind + `","access_token":"a"` + scope + life + refresh + `,"id_token":"x.y.z","user":{"deep":[[[{}]]]}}`
					got, err := readTokens([]byte(body), now)
					var end time.Time
					if seconds > 0 {
						end = now.Add(time.Duration(seconds) * time.Second)
					}
					if err != nil || got.access != "a" || got.refresh != want || !got.expires.Equal(end) || !slices.Equal(got.scopes, wantScopes) {
						t.Errorf("%s: %q %q %v %q %v", body, got.access, got.refresh, got.expires, got.scopes, err)
					}
				}
			}
		}
	}
}

// No redirect of a server or of its authorization server is followed, on any endpoint, by any status, to any address: the
// other host gets neither a token nor a code nor a request.
func TestNoRedirectIsFollowedFromAnyEndpoint(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server", "/register", "/token", "/revoke", "/mcp"} {
		t.Run(endpoint, func(t *testing.T) {
			t.Parallel()
			other := newProvider(t, nil)
			plain, _ := url.Parse(other.URL)
			for _, location := range []string{other.URL + endpoint, "//" + plain.Host + endpoint, "http://localhost:" + plain.Port() + endpoint, "https://" + plain.Host + endpoint, "/elsewhere"} {
				for _, status := range []int{301, 302, 303, 307, 308} {
					p := newProvider(t, nil)
					store := newStore(t)
					mustLogin(t, store, p.settings())
					age(t, store)
					p.spoil()
					p.at(endpoint, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
						w.Header().Set("Location", location)
						w.WriteHeader(status)
					})
					p.at("/elsewhere", func(http.ResponseWriter, *http.Request, http.Handler) {
						t.Errorf("%d to %s was followed", status, location)
					})
					src := newSource(t, p.settings(), store, nil)
					if endpoint != "/mcp" { // there the client of the test would follow
						_, _, _ = call(t, src, p.URL+"/mcp")
					}
					s := p.settings()
					_, _, _ = store.Logout(t.Context(), "docs", &s)
					_, _ = login(t, store, s)
				}
			}
			if len(other.seen) != 0 {
				t.Errorf("the other host got %d requests, the first for %s", len(other.seen), other.seen[0].path)
			}
		})
	}
}
