package doortest

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Provider is an MCP server that requires OAuth tokens, together with the authorization server
// that issues them, over https on loopback with a certificate signed by CA. It is strict: codes
// and refresh tokens are valid for one use, and a refresh token that is used twice ends the
// sign-in. Browse acts as a user who agrees.
type Provider struct {
	URL string // of both; the MCP server is at /mcp
	CA  []byte // PEM; a client must trust it to reach the provider

	server *httptest.Server
	over   chan struct{}

	mu     sync.Mutex
	mode   string
	seen   []string
	codes  map[string]url.Values
	access map[string]string // scopes by token
	grants map[string]*grant // by refresh token
	made   int
}

type grant struct {
	scopes string
	used   bool
}

// NewProvider starts one. Close ends it.
func NewProvider() (*Provider, error) {
	cert, ca, err := loopbackCertificate()
	if err != nil {
		return nil, err
	}
	p := &Provider{CA: ca, over: make(chan struct{}), codes: map[string]url.Values{}, access: map[string]string{}, grants: map[string]*grant{}}
	p.server = httptest.NewUnstartedServer(p)
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	p.server.StartTLS()
	p.URL = p.server.URL
	return p, nil
}

// Close ends the provider and its open answers.
func (p *Provider) Close() {
	close(p.over)
	p.server.CloseClientConnections()
	p.server.Close()
}

// Set changes the answers from now on:
//
//	good           as it should
//	grace          a refresh token may come again
//	hang-refresh   a refresh is done, and its answer never sent
//	short          tokens are good for a second
//	other-issuer, no-pkce, javascript, redirect    what is wrong with its metadata
//	wrong-iss      it names another issuer when the browser goes back
//	down           the token endpoint fails
//	github         a refusal of the token endpoint has status 200 and a code of GitHub
//	entra          a refresh is refused until the user is seen
//	echo           refusals repeat the token, code or secret that was presented, in each text of the answer
//
// Two words are not modes and act once: expire invalidates all access tokens, revoke also all
// refresh tokens.
func (p *Provider) Set(mode string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch mode {
	case "revoke":
		clear(p.grants)
		clear(p.access)
	case "expire":
		clear(p.access)
	default:
		p.mode = mode
	}
}

func (p *Provider) is(modes ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(modes, p.mode)
}

// Seen returns the received requests, one per line.
func (p *Provider) Seen() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.seen, "\n") + "\n"
}

// Browse opens an address like the browser of a user who agrees to everything, and follows the
// redirects.
func (p *Provider) Browse(address string) (status int, err error) {
	c := (&Issuer{CA: p.CA}).Client()
	c.CheckRedirect = nil
	resp, err := c.Get(address)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// ServeHTTP implements http.Handler.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	p.seen = append(p.seen, fmt.Sprintf("%s %s [%s] %s", r.Method, r.URL, r.Header.Get("Authorization"), body))
	p.mu.Unlock()
	form, _ := url.ParseQuery(string(body))
	switch r.URL.Path {
	case "/mcp":
		p.mcp(w, r, body)
	case "/.well-known/oauth-protected-resource/mcp":
		send(w, 200, map[string]any{"resource": p.URL + "/mcp", "authorization_servers": []string{p.URL}, "scopes_supported": []string{"read"}})
	case "/.well-known/oauth-authorization-server":
		p.metadata(w, r)
	case "/register":
		send(w, 201, map[string]any{"client_id": "registered", "token_endpoint_auth_method": "none"})
	case "/authorize":
		p.authorize(w, r)
	case "/token":
		p.token(w, r, form)
	case "/revoke":
		p.Set("revoke")
	default:
		http.NotFound(w, r)
	}
}

func send(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have left
}

func (p *Provider) metadata(w http.ResponseWriter, r *http.Request) {
	m := map[string]any{"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
		"registration_endpoint": p.URL + "/register", "revocation_endpoint": p.URL + "/revoke",
		"code_challenge_methods_supported": []string{"S256"}, "authorization_response_iss_parameter_supported": true}
	switch {
	case p.is("other-issuer"):
		m["issuer"] = "https://other.example"
	case p.is("no-pkce"):
		delete(m, "code_challenge_methods_supported")
	case p.is("javascript"):
		m["authorization_endpoint"] = "javascript:alert(1)"
	case p.is("redirect"):
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
		return
	}
	send(w, 200, m)
}

func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p.mu.Lock()
	p.made++
	code := fmt.Sprintf("code-canary-%d", p.made)
	p.codes[code] = q
	p.mu.Unlock()
	back := url.Values{"code": {code}, "state": q["state"], "iss": {p.URL}}
	if p.is("wrong-iss") {
		back.Set("iss", "https://other.example")
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (p *Provider) token(w http.ResponseWriter, r *http.Request, form url.Values) {
	scopes, problem := p.redeem(form)
	switch {
	case p.is("down"):
		send(w, 503, map[string]any{"error": "temporarily_unavailable"})
		return
	case form.Get("resource") != p.URL+"/mcp":
		problem = "invalid_target"
	}
	if p.refuse(w, r, form, problem) {
		return
	}
	life := 3600
	if p.is("short") {
		life = 1
	}
	p.mu.Lock()
	p.made++
	m := map[string]any{"access_token": fmt.Sprintf("access-canary-%d", p.made), "token_type": "Bearer", "expires_in": life, "scope": scopes}
	p.access[m["access_token"].(string)] = scopes
	if form.Get("grant_type") != "client_credentials" {
		m["refresh_token"] = fmt.Sprintf("refresh-canary-%d", p.made)
		p.grants[m["refresh_token"].(string)] = &grant{scopes: scopes}
	}
	p.mu.Unlock()
	if form.Get("grant_type") == "refresh_token" && p.is("hang-refresh") {
		select {
		case <-p.over:
		case <-r.Context().Done():
		}
		return
	}
	send(w, 200, m)
}

// refuse answers a token request that has a problem, and every refresh in some modes. It reports whether it did.
func (p *Provider) refuse(w http.ResponseWriter, r *http.Request, form url.Values, problem string) bool {
	refresh := form.Get("grant_type") == "refresh_token"
	switch {
	case p.is("github") && (refresh || problem != ""):
		send(w, 200, map[string]any{"error": "bad_refresh_token", "error_description": "The refresh token passed is incorrect or expired."})
	case p.is("entra") && refresh:
		send(w, 400, map[string]any{"error": "interaction_required", "error_codes": []int{50076}, "error_description": "AADSTS50076"})
	case p.is("echo"):
		said := form.Encode() + " " + r.Header.Get("Authorization")
		w.Header().Set("WWW-Authenticate", `Basic realm="`+said+`"`)
		send(w, 400, map[string]any{"error": said, "error_description": said, "error_uri": "https://as.example/?" + said})
	case problem != "":
		send(w, 400, map[string]any{"error": problem, "error_description": "/srv/private"})
	default:
		return false
	}
	return true
}

// redeem returns the scopes of a code, a refresh token or a client, or the problem with it.
func (p *Provider) redeem(form url.Values) (scopes, problem string) {
	grace := p.is("grace")
	p.mu.Lock()
	defer p.mu.Unlock()
	switch form.Get("grant_type") {
	case "authorization_code":
		q := p.codes[form.Get("code")]
		delete(p.codes, form.Get("code"))
		sum := sha256.Sum256([]byte(form.Get("code_verifier")))
		if q == nil || base64.RawURLEncoding.EncodeToString(sum[:]) != q.Get("code_challenge") || form.Get("redirect_uri") != q.Get("redirect_uri") {
			return "", "invalid_grant"
		}
		return q.Get("scope"), ""
	case "refresh_token":
		g := p.grants[form.Get("refresh_token")]
		if g == nil || g.used && !grace {
			clear(p.grants)
			clear(p.access)
			return "", "invalid_grant"
		}
		g.used = true
		return g.scopes, ""
	case "client_credentials":
		return form.Get("scope"), ""
	}
	return "", "unsupported_grant_type"
}

// mcp is the MCP server, of the legacy era: its tool whoami returns the scopes of the token, and
// its tool admin requires one more scope.
func (p *Provider) mcp(w http.ResponseWriter, r *http.Request, body []byte) {
	p.mu.Lock()
	scopes, ok := p.access[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	p.mu.Unlock()
	var q struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name string `json:"name"`
		} `json:"params"`
	}
	_ = json.Unmarshal(body, &q) // a malformed body is refused below
	metadata := `Bearer resource_metadata="` + p.URL + `/.well-known/oauth-protected-resource/mcp"`
	if said := r.Header.Get("Authorization"); p.is("echo") {
		metadata += `, realm="` + said + `", error_description="` + said + `", scope="` + said + `"`
	}
	switch {
	case !ok:
		w.Header().Set("WWW-Authenticate", metadata)
		w.WriteHeader(http.StatusUnauthorized)
	case q.Params.Name == "admin" && !slices.Contains(strings.Fields(scopes), "admin"):
		w.Header().Set("WWW-Authenticate", metadata+`, error="insufficient_scope", scope="admin"`)
		w.WriteHeader(http.StatusForbidden)
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case q.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	default:
		p.answer(w, q.ID, q.Method, scopes)
	}
}

func (p *Provider) answer(w http.ResponseWriter, id json.RawMessage, method, scopes string) {
	m := map[string]any{"jsonrpc": "2.0", "id": id}
	switch method {
	case "initialize":
		m["result"] = map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{"tools": map[string]any{}},
			"serverInfo": map[string]any{"name": "provider", "version": "1"}}
	case "server/discover":
		m["error"] = map[string]any{"code": -32601, "message": "Method not found"}
	case "tools/list":
		object := map[string]any{"type": "object"}
		m["result"] = map[string]any{"tools": []any{map[string]any{"name": "whoami", "inputSchema": object}, map[string]any{"name": "admin", "inputSchema": object}}}
	default:
		m["result"] = map[string]any{"content": []any{map[string]any{"type": "text", "text": "scopes: " + scopes}}}
	}
	send(w, 200, m)
}
