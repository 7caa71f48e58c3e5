package signin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/test/doortest"
)

// A person signs in: the server's challenge leads to the authorization server, Doorward registers as a native
// application, proves possession of the code, and names the resource in both requests. Then calls carry the token.
func TestSignInFromTheChallengeToTheCall(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	store := newStore(t)
	src := newSource(t, p.settings(), store, nil)
	if _, _, err := call(t, src, p.URL+"/mcp"); !errors.Is(err, ErrSignIn) {
		t.Fatalf("before: %v", err)
	}
	if need, _ := src.Needs(); need != "doorward login docs" {
		t.Errorf("a person hears %q", need)
	}
	l, err := Begin(t.Context(), store, p.settings(), anyPort)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, _ := url.Parse(l.URL)
	q := u.Query()
	if !strings.HasPrefix(l.URL, p.URL+"/authorize?") || q.Get("code_challenge_method") != "S256" || q.Get("resource") != p.URL+"/mcp" ||
		q.Get("scope") != "read" || len(q.Get("state")) < 43 || !strings.HasPrefix(q.Get("redirect_uri"), "http://127.0.0.1:") {
		t.Fatalf("the address is %s", l.URL)
	}
	browse(t, l.URL)
	r, err := l.Wait(t.Context())
	if err != nil || r.Issuer != p.URL || !r.Renews || !slices.Equal(r.Scopes, []string{"read"}) {
		t.Fatalf("%+v %v", r, err)
	}
	if status, body, err := call(t, src, p.URL+"/mcp"); status != http.StatusOK || body != "read" || err != nil {
		t.Errorf("after: %d %s %v", status, body, err)
	}
	if need, _ := src.Needs(); need != "" {
		t.Errorf("a person still hears %q", need)
	}
	if reg := p.asked("/register"); len(reg) != 1 || !strings.Contains(reg[0].body, `"application_type":"native"`) ||
		!strings.Contains(reg[0].body, q.Get("redirect_uri")) {
		t.Errorf("registered with %+v", reg)
	}
	for _, s := range p.seen {
		if strings.Contains(s.body, "query-secret") {
			t.Errorf("%s was told the query of the server's address", s.path)
		}
	}
}

// A sign-in works with the metadata in each place that the specification names, and with each way in which a client can
// be known.
func TestWaysToSignIn(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]struct {
		provider func(*provider)
		settings func(*Settings)
		client   string // that the authorization server hears of
		auth     bool   // in the header
	}{
		"well-known, without a word in the challenge": {provider: func(p *provider) {
			inner := p.Config.Handler
			p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inner.ServeHTTP(dropChallenge{w}, r)
			})
		}},
		"a resource above the server's path": {provider: func(p *provider) { p.prm["resource"] = p.URL }},
		"no resource metadata: 2025-03-26": {provider: func(p *provider) {
			p.prm = nil
			inner := p.Config.Handler
			p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner.ServeHTTP(dropChallenge{w}, r) })
		}},
		"a client id of the operator's": {settings: func(s *Settings) { s.ClientID = "by-hand" }, client: "by-hand"},
		"a secret in the header": {settings: func(s *Settings) {
			s.ClientID, s.ClientSecret, s.Issuer = "by-hand", secret.New("client-canary"), strings.TrimSuffix(s.URL, "/mcp?key=query-secret")
		}, auth: true},
		"a secret in the form": {provider: func(p *provider) { p.meta["token_endpoint_auth_methods_supported"] = []string{"client_secret_post"} },
			settings: func(s *Settings) {
				s.ClientID, s.ClientSecret, s.Issuer = "by-hand", secret.New("client-canary"), strings.TrimSuffix(s.URL, "/mcp?key=query-secret")
			}, client: "by-hand"},
		"a metadata document": {provider: func(p *provider) { p.meta["client_id_metadata_document_supported"] = true },
			settings: func(s *Settings) { s.MetadataURL = "https://me.example/doorward.json" }, client: "https://me.example/doorward.json"},
		"a document where none is taken": {settings: func(s *Settings) { s.MetadataURL = "https://me.example/doorward.json" }, client: "client-1"},
		"iss neither promised nor given": {provider: func(p *provider) {
			delete(p.meta, "authorization_response_iss_parameter_supported")
			p.answer = url.Values{"iss": {""}}
		}},
		"iss given though not promised": {provider: func(p *provider) { delete(p.meta, "authorization_response_iss_parameter_supported") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, nil)
			if way.provider != nil {
				way.provider(p)
			}
			s := p.settings()
			if way.settings != nil {
				way.settings(&s)
			}
			store := newStore(t)
			if way.auth {
				// In the header both client and secret are proven; the fake compares the form.
				p.before = func(r *http.Request) {
					id, pass, _ := r.BasicAuth()
					if id != "by-hand" || pass != "client-canary" {
						t.Errorf("the client says %q", r.Header.Get("Authorization"))
					}
				}
				_, err := login(t, store, s)
				var refused *grantError
				if !errors.As(err, &refused) || refused.code != "invalid_grant" {
					t.Errorf("the id should be in the header alone: %v", err)
				}
				return
			}
			mustLogin(t, store, s)
			if tokens := p.asked("/token"); way.client != "" && tokens[0].form.Get("client_id") != way.client {
				t.Errorf("the client is %q", tokens[0].form.Get("client_id"))
			}
			src := newSource(t, s, store, nil)
			if status, _, err := call(t, src, p.URL+"/mcp"); status != http.StatusOK || err != nil {
				t.Errorf("a call: %d %v", status, err)
			}
		})
	}
}

// dropChallenge hides where the metadata are.
type dropChallenge struct{ http.ResponseWriter }

func (d dropChallenge) WriteHeader(status int) {
	if status == http.StatusUnauthorized {
		d.Header().Set("WWW-Authenticate", "Bearer")
	}
	d.ResponseWriter.WriteHeader(status)
}

// Metadata that are wrong, of a server or of its authorization server, end the sign-in before a person is sent to an
// address and before a registration or a code is sent.
func TestHostileMetadata(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another host was asked: %s %s", r.Method, r.URL)
	}))
	t.Cleanup(other.Close)
	for name, c := range map[string]struct {
		change func(*provider)
		say    string
	}{
		"another issuer":                 {func(p *provider) { p.meta["issuer"] = "https://other.example" }, "another issuer"},
		"an issuer with one slash more":  {func(p *provider) { p.meta["issuer"] = p.URL + "/" }, "another issuer"},
		"no PKCE":                        {func(p *provider) { delete(p.meta, "code_challenge_methods_supported") }, "PKCE"},
		"PKCE in the clear":              {func(p *provider) { p.meta["code_challenge_methods_supported"] = []string{"plain"} }, "PKCE"},
		"javascript":                     {func(p *provider) { p.meta["authorization_endpoint"] = "javascript:alert(1)" }, "authorization_endpoint: the scheme"},
		"data":                           {func(p *provider) { p.meta["authorization_endpoint"] = "data:text/html,x" }, "authorization_endpoint: the scheme"},
		"file":                           {func(p *provider) { p.meta["authorization_endpoint"] = "file:///etc/passwd" }, "authorization_endpoint: the scheme"},
		"in the clear":                   {func(p *provider) { p.meta["authorization_endpoint"] = "http://as.example/authorize" }, "authorization_endpoint: the scheme"},
		"a user in the address":          {func(p *provider) { p.meta["authorization_endpoint"] = "https://a@as.example/" }, "authorization_endpoint: user"},
		"a line in the address":          {func(p *provider) { p.meta["authorization_endpoint"] = "https://as.example/\nhttps://x" }, "authorization_endpoint: a space"},
		"tokens in the clear":            {func(p *provider) { p.meta["token_endpoint"] = "http://as.example/token" }, "token_endpoint: the scheme"},
		"tokens to another port":         {func(p *provider) { p.meta["token_endpoint"] = other.URL + "/token" }, "token_endpoint"},
		"tokens to the metadata service": {func(p *provider) { p.meta["token_endpoint"] = "https://169.254.169.254/token" }, "cloud metadata"},
		"registration to another port":   {func(p *provider) { p.meta["registration_endpoint"] = other.URL + "/r" }, "registration_endpoint"},
		"a private issuer":               {func(p *provider) { p.prm["authorization_servers"] = []string{"https://10.0.0.1"} }, "private address"},
		"an issuer of another port":      {func(p *provider) { p.prm["authorization_servers"] = []string{other.URL} }, "issuer: the scheme"},
		"an issuer with a query":         {func(p *provider) { p.prm["authorization_servers"] = []string{p.URL + "?x=1"} }, "query"},
		"no issuer":                      {func(p *provider) { p.prm["authorization_servers"] = []string{} }, "no authorization server"},
		"another resource":               {func(p *provider) { p.prm["resource"] = "https://other.example/mcp" }, "another resource"},
		"another path":                   {func(p *provider) { p.prm["resource"] = p.URL + "/mc" }, "another resource"},
		"a path below":                   {func(p *provider) { p.prm["resource"] = p.URL + "/mcp/admin" }, "another resource"},
		"metadata elsewhere":             {func(p *provider) { p.prm["resource"] = ""; p.prm["authorization_servers"] = 5 }, "JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, c.change)
			l, err := Begin(t.Context(), newStore(t), p.settings(), anyPort)
			if err == nil {
				l.Close()
				t.Fatalf("a person would be sent to %s", l.URL)
			}
			if !strings.Contains(err.Error(), c.say) {
				t.Errorf("it says %q", err)
			}
			if n := len(p.asked("/register")) + len(p.asked("/token")); n != 0 {
				t.Errorf("%d requests went on", n)
			}
		})
	}
}

// A metadata document is refused if it is redirected, fails, is too long, or is not JSON that all readers read alike.
func TestBadMetadataDocumentsAreRefused(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]http.HandlerFunc{
		"redirected":   func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		"not JSON":     func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("<h1>{}</h1>")) },
		"failing":      func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"twice a name": jsonBody(`{"issuer":"a","issuer":"b"}`),
		"bad UTF-8":    jsonBody("{\"issuer\":\"\xff\"}"),
		"no object":    jsonBody(`[]`),
		"endless":      jsonBody(`{"issuer":"` + strings.Repeat("x", maxDocument) + `"}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, nil)
			inner := p.Config.Handler
			p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/.well-known/oauth-authorization-server":
					serve(w, r)
				case "/elsewhere":
					t.Error("a redirect was followed")
				default:
					inner.ServeHTTP(w, r)
				}
			})
			if _, err := Begin(t.Context(), newStore(t), p.settings(), anyPort); err == nil {
				t.Error("it was believed")
			}
		})
	}
}

func jsonBody(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(text))
	}
}

// An authorization response counts only if it is complete and comes from the issuer that was asked. Of any other, the
// code is not used and the text is not shown.
func TestAuthorizationResponses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer url.Values
		say    string
	}{
		"of another issuer":            {url.Values{"iss": {"https://evil.example"}}, "another authorization server"},
		"of an issuer almost the same": {url.Values{"iss": {"HTTP://127.0.0.1"}}, "another authorization server"},
		"without the promised issuer":  {url.Values{"iss": {""}}, "another authorization server"},
		"twice an issuer":              {url.Values{"iss": {"a", "b"}}, "is not valid"},
		"twice a code":                 {url.Values{"code": {"a", "b"}}, "is not valid"},
		"without a code":               {url.Values{"code": {""}}, "is not valid"},
		"a refusal":                    {url.Values{"code": {""}, "error": {"access_denied"}, "error_description": {"\x1b[31mcanary"}}, "refused: access_denied"},
		"a refusal that is no code":    {url.Values{"code": {""}, "error": {"\x1b[31mcanary"}}, "is not valid"},
		"a refusal of another issuer":  {url.Values{"code": {""}, "error": {"canary"}, "iss": {"https://evil.example"}}, "another authorization server"},
		"a code that is not known":     {url.Values{"code": {"made-up"}}, "invalid_grant"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, func(p *provider) { p.answer = c.answer })
			store := newStore(t)
			_, err := login(t, store, p.settings())
			if err == nil || !strings.Contains(err.Error(), c.say) || strings.Contains(err.Error(), "canary") {
				t.Errorf("it says %v", err)
			}
			if c.say != "invalid_grant" && len(p.asked("/token")) != 0 {
				t.Error("the code was used")
			}
			if all, _, _ := store.List(); len(all) != 0 {
				t.Errorf("stored: %v", all)
			}
		})
	}
}

// Requests to the callback without the right state change nothing: any process of this machine and any page in a
// browser can send them. The response with the state counts once.
func TestCallbackIgnoresRequestsWithoutTheState(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	store := newStore(t)
	l, err := Begin(t.Context(), store, p.settings(), anyPort)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	q := func(v url.Values) string { return l.redirect + "?" + v.Encode() }
	for what, address := range map[string]string{
		"no state": q(url.Values{"code": {"x"}}), "another state": q(url.Values{"code": {"x"}, "state": {token()}}),
		"an error without state": q(url.Values{"error": {"access_denied"}}), "two states": q(url.Values{"code": {"x"}, "state": {"a", "b"}}),
		"another path": strings.Replace(l.redirect, callbackPath, "/", 1),
	} {
		resp, err := doortest.Client().Get(address)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode/100 != 4 || resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %d %v", what, resp.StatusCode, resp.Header)
		}
	}
	req, _ := http.NewRequest(http.MethodGet, l.redirect+"?state=x", nil)
	req.Host = "evil.example"
	if resp, err := doortest.Client().Do(req); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("another Host: %v %v", resp, err)
	}
	browse(t, l.URL)
	browse(t, l.URL) // the second answer comes too late
	if _, err := l.Wait(t.Context()); err != nil {
		t.Errorf("the real answer: %v", err)
	}
	if n := len(p.asked("/token")); n != 1 {
		t.Errorf("%d codes were exchanged", n)
	}
}

// A sign-in that is not finished ends with its context, and its port is free.
func TestAbandonedSignIn(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	l, err := Begin(t.Context(), newStore(t), p.settings(), anyPort)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := l.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it says %v", err)
	}
	l.Close()
	u, _ := url.Parse(l.redirect)
	doortest.Until(t, 20*time.Second, "its port is free", func() bool { // another program may use it for a moment
		again, err := anyPort(atoi(u.Port()))
		if err != nil {
			return false
		}
		again.Close()
		return true
	})
}

func atoi(s string) (n int) {
	for _, c := range s {
		n = n*10 + int(c-'0')
	}
	return n
}

// Signing in again uses the registration and its port again. With another issuer everything begins anew.
func TestRegistrationIsUsedAgainWithItsIssuerOnly(t *testing.T) {
	t.Parallel()
	p, q := newProvider(t, nil), newProvider(t, nil)
	store := newStore(t)
	mustLogin(t, store, p.settings())
	mustLogin(t, store, p.settings())
	if n := len(p.asked("/register")); n != 1 {
		t.Errorf("registered %d times", n)
	}
	p.prm["authorization_servers"] = []string{q.URL} // the server moves to another authorization server
	q.prm["resource"] = p.URL + "/mcp"
	s := p.settings()
	s.Issuer = q.URL
	mustLogin(t, store, s)
	if reg := q.asked("/register"); len(reg) != 1 {
		t.Errorf("registered %d times with the other", len(reg))
	}
	for _, r := range q.asked("/token") {
		if r.form.Get("client_id") != "client-1" || strings.Contains(r.body, "refresh-canary") {
			t.Errorf("the other was told %s", r.body)
		}
	}
	if all, _, _ := store.List(); len(all) != 1 || all[0].Issuer != q.URL {
		t.Errorf("stored: %+v", all)
	}
}

// A redirect URI that is refused is tried as localhost once. If that is refused too, the sign-in fails with the reason.
func TestRefusedRedirect(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(body string) bool{
		"as an address": func(b string) bool { return strings.Contains(b, "127.0.0.1") }, "altogether": func(string) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, nil)
			inner := p.Config.Handler
			p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/register" {
					inner.ServeHTTP(w, r)
					return
				}
				b := make([]byte, r.ContentLength)
				_, _ = r.Body.Read(b)
				if !refuse(string(b)) {
					p.register(w, "")
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				w.Write([]byte(`{"error":"invalid_redirect_uri"}`))
			})
			_, err := login(t, newStore(t), p.settings())
			if name == "altogether" && !errors.Is(err, errRedirectRefused) || name != "altogether" && err != nil {
				t.Errorf("it says %v", err)
			}
		})
	}
}

// A sign-in that would not be safe, or that no person makes, ends before any request.
func TestSettingsThatCannotWork(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	for name, change := range map[string]func(*Settings){
		"in the clear":                  func(s *Settings) { s.URL, s.AllowPrivate = "http://mcp.example.com/mcp", false },
		"in the clear, private allowed": func(s *Settings) { s.URL = "http://mcp.example.com/mcp" },
		"not allowed to be private":     func(s *Settings) { s.AllowPrivate = false },
		"a secret without issuer":       func(s *Settings) { s.ClientID, s.ClientSecret = "x", secret.New("y") },
		"a machine":                     func(s *Settings) { s.Grant = GrantMachine },
	} {
		s := p.settings()
		change(&s)
		if l, err := Begin(t.Context(), newStore(t), s, anyPort); err == nil {
			l.Close()
			t.Errorf("%s: a person would be sent to %s", name, l.URL)
		}
	}
	if len(p.seen) != 0 {
		t.Errorf("asked %v", p.seen)
	}
}
