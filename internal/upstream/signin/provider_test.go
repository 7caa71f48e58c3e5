package signin

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
	"github.com/go-json-experiment/json"
)

// provider is an MCP server and its authorization server behind one real socket. It is strict: a code and a refresh token
// are good for one use, and using either twice ends all that came of it. A test makes it misbehave by its fields, which
// are set before the first request.
type provider struct {
	*httptest.Server
	t testing.TB

	prm      map[string]any // nil: 404
	meta     map[string]any
	answer   url.Values            // overrides of the authorization response; an empty value removes
	before   func(r *http.Request) // of the token endpoint
	life     int                   // of access tokens, in seconds; 0: 3600
	scope    string                // in the challenge
	granted  string                // in token answers; "": what was asked for
	noReuse  bool                  // no refresh tokens
	tokenErr string                // the token endpoint's only answer

	mu      sync.Mutex
	seen    []seen
	codes   map[string]url.Values // of authorization requests, by code
	refresh map[string]string     // what each refresh token is good for: its scopes; "" when used
	access  map[string]string     // scopes by access token
	clients int
	made    int
}

// seen is one request as it came.
type seen struct {
	path string
	auth string
	form url.Values
	body string
}

func newProvider(t testing.TB, change func(*provider)) *provider {
	t.Helper()
	p := &provider{t: t, codes: map[string]url.Values{}, refresh: map[string]string{}, access: map[string]string{}}
	p.Server = httptest.NewUnstartedServer(p)
	p.Start()
	t.Cleanup(p.Close)
	p.prm = map[string]any{"resource": p.URL + "/mcp", "authorization_servers": []string{p.URL}, "scopes_supported": []string{"read"}}
	p.meta = map[string]any{"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
		"registration_endpoint": p.URL + "/register", "revocation_endpoint": p.URL + "/revoke",
		"code_challenge_methods_supported": []string{"plain", "S256"}, "authorization_response_iss_parameter_supported": true}
	if change != nil {
		change(p)
	}
	return p
}

// settings are those of a server of this provider, found out automatically.
func (p *provider) settings() Settings {
	return Settings{Server: "docs", URL: p.URL + "/mcp?key=query-secret", AllowPrivate: true, Grant: GrantCode}
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	form, _ := url.ParseQuery(string(body))
	p.mu.Lock()
	p.seen = append(p.seen, seen{r.URL.Path, r.Header.Get("Authorization"), form, string(body)})
	p.mu.Unlock()
	switch r.URL.Path {
	case "/mcp":
		p.serve(w, r)
	case "/.well-known/oauth-protected-resource/mcp":
		writeJSON(w, p.prm)
	case "/.well-known/oauth-authorization-server":
		writeJSON(w, p.meta)
	case "/authorize":
		p.authorize(w, r)
	case "/token":
		p.token(w, r, form)
	case "/register":
		p.register(w, string(body))
	case "/revoke":
		p.mu.Lock()
		delete(p.refresh, form.Get("token"))
		clear(p.access)
		p.mu.Unlock()
	default:
		http.NotFound(w, r)
	}
}

func writeJSON(w http.ResponseWriter, v map[string]any) {
	if v == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	b, _ := json.Marshal(v)
	w.Header().Set("Content-Type", "application/json")
	w.Write(b)
}

// serve is the MCP server: 200 with the token's scopes, or a challenge.
func (p *provider) serve(w http.ResponseWriter, r *http.Request) {
	scopes, ok := p.holds(r.Header.Get("Authorization"))
	if ok {
		io.WriteString(w, scopes)
		return
	}
	challenge := `Bearer realm="mcp", resource_metadata="` + p.URL + `/.well-known/oauth-protected-resource/mcp"`
	if p.scope != "" {
		challenge += `, scope="` + p.scope + `"`
	}
	w.Header().Set("WWW-Authenticate", challenge)
	w.WriteHeader(http.StatusUnauthorized)
}

func (p *provider) holds(authorization string) (scopes string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	scopes, ok = p.access[strings.TrimPrefix(authorization, "Bearer ")]
	return scopes, ok
}

// authorize is a person who agrees to everything.
func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	for _, name := range []string{"response_type", "client_id", "redirect_uri", "state", "code_challenge", "code_challenge_method", "resource"} {
		if len(q[name]) != 1 || q.Get(name) == "" {
			p.t.Errorf("the authorization request has no %s: %s", name, r.URL)
		}
	}
	p.mu.Lock()
	p.made++
	code := fmt.Sprintf("code-%d", p.made)
	p.codes[code] = q
	p.mu.Unlock()
	back := url.Values{"code": {code}, "state": q["state"], "iss": {p.meta["issuer"].(string)}}
	maps.Copy(back, p.answer)
	for name, values := range p.answer {
		if values[0] == "" {
			back.Del(name)
		}
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (p *provider) register(w http.ResponseWriter, body string) {
	p.mu.Lock()
	p.clients++
	id := fmt.Sprintf("client-%d", p.clients)
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"client_id":%q,"redirect_uris":[],"token_endpoint_auth_method":"none","body":%q}`, id, body)
}

func (p *provider) token(w http.ResponseWriter, r *http.Request, form url.Values) {
	if p.before != nil {
		p.before(r)
	}
	scopes, code := "", p.tokenErr
	if code == "" {
		scopes, code = p.judge(form)
	}
	if code != "" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":%q,"error_description":"/srv/private \u001b[31m"}`, code)
		return
	}
	p.issue(w, form, scopes)
}

// judge says what a token request is worth: scopes, or an error code.
func (p *provider) judge(form url.Values) (scopes, code string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if want, _ := p.prm["resource"].(string); p.prm != nil && form.Get("resource") != want {
		return "", "invalid_target"
	}
	switch form.Get("grant_type") {
	case "authorization_code":
		q := p.codes[form.Get("code")]
		delete(p.codes, form.Get("code"))
		sum := sha256.Sum256([]byte(form.Get("code_verifier")))
		if q == nil || base64.RawURLEncoding.EncodeToString(sum[:]) != q.Get("code_challenge") ||
			form.Get("redirect_uri") != q.Get("redirect_uri") || form.Get("client_id") != q.Get("client_id") {
			return "", "invalid_grant"
		}
		return q.Get("scope"), ""
	case "refresh_token":
		scopes, ok := p.refresh[form.Get("refresh_token")]
		if !ok || scopes == "" {
			clear(p.refresh) // it was used before: all that came of it is void
			clear(p.access)
			return "", "invalid_grant"
		}
		p.refresh[form.Get("refresh_token")] = ""
		return scopes, ""
	case "client_credentials":
		return form.Get("scope"), ""
	}
	return "", "unsupported_grant_type"
}

func (p *provider) issue(w http.ResponseWriter, form url.Values, scopes string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made++
	life := p.life
	if life == 0 {
		life = 3600
	}
	if p.granted != "" {
		scopes = p.granted
	}
	m := map[string]any{"access_token": fmt.Sprintf("access-canary-%d", p.made), "token_type": "bearer", "expires_in": life, "scope": scopes}
	p.access[m["access_token"].(string)] = scopes
	if form.Get("grant_type") != "client_credentials" && !p.noReuse {
		m["refresh_token"] = fmt.Sprintf("refresh-canary-%d", p.made)
		p.refresh[m["refresh_token"].(string)] = scopes + " "
	}
	writeJSON(w, m)
}

// spoil makes the server forget every access token, as if their time were over.
func (p *provider) spoil() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.access)
}

// asked are the requests to a path so far.
func (p *provider) asked(path string) []seen {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []seen
	for _, s := range p.seen {
		if s.path == path {
			out = append(out, s)
		}
	}
	return out
}

func newStore(t testing.TB) *Store {
	t.Helper()
	s, err := OpenStore(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func anyPort(port int) (net.Listener, error) {
	return net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
}

// ownPort is anyPort with ports that no other test gets before the end of t: a later sign-in of
// the same registration uses its port again.
func ownPort(t testing.TB) func(port int) (net.Listener, error) {
	return func(port int) (net.Listener, error) {
		if port == 0 {
			port = doortest.FreePort(t)
		}
		return anyPort(port)
	}
}

// browse is a browser: it goes where it is sent, and back.
func browse(t testing.TB, address string) {
	t.Helper()
	c := doortest.Client()
	c.Timeout = 10 * time.Second
	resp, err := c.Get(address)
	if err != nil {
		t.Error(err)
		return
	}
	resp.Body.Close()
}

// login signs a person in.
func login(t testing.TB, store *Store, s Settings) (Result, error) {
	t.Helper()
	l, err := Begin(t.Context(), store, s, ownPort(t))
	if err != nil {
		return Result{}, err
	}
	defer l.Close()
	browse(t, l.URL)
	return l.Wait(t.Context())
}

func mustLogin(t testing.TB, store *Store, s Settings) Result {
	t.Helper()
	r, err := login(t, store, s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newSource(t testing.TB, s Settings, store *Store, notice func(string)) *Source {
	t.Helper()
	src, err := NewSource(s, store, slog.New(slog.DiscardHandler), notice)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// call makes a call as an upstream does: with what the source says, and once more when it says so.
func call(t testing.TB, src *Source, address string) (status int, body string, err error) {
	t.Helper()
	status, body, used, resp, err := attempt(t, src, address)
	if err != nil || status/100 == 2 {
		return status, body, err
	}
	again, err := src.Refused(t.Context(), used, resp)
	if err == nil && again {
		status, body, _, _, err = attempt(t, src, address)
	}
	return status, body, err
}

func attempt(t testing.TB, src *Source, address string) (status int, body, used string, resp *http.Response, err error) {
	t.Helper()
	used, err = src.Authorize(t.Context())
	if err != nil {
		return 0, "", "", nil, err
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, address, nil)
	if used != "" {
		req.Header.Set("Authorization", used)
	}
	resp, err = doortest.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), used, resp, nil
}
