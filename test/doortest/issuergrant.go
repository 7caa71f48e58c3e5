package doortest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// codeGrant is an issued code that was not used yet.
type codeGrant struct{ challenge, resource, scope, client, redirect string }

// authorize is the authorization endpoint of OAuth 2.1 for a user who has already agreed. It
// requires PKCE and a resource (RFC 8707).
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("resource") == "" {
		http.Error(w, `{"error":"invalid_request"}`, http.StatusBadRequest)
		return
	}
	code := rand.Text()
	i.mu.Lock()
	i.grants[code] = codeGrant{q.Get("code_challenge"), q.Get("resource"), q.Get("scope"), q.Get("client_id"), q.Get("redirect_uri")}
	i.asked = append(i.asked, q.Get("scope"))
	i.mu.Unlock()
	back.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {i.URL}}.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

// token is the token endpoint. A code is valid once, with its verifier. A client that is not barred gets tokens for
// itself with the secret client-canary; they are valid for MachineLife.
func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("grant_type") == "client_credentials" {
		i.machine(w, r)
		return
	}
	i.mu.Lock()
	g, ok := i.grants[r.FormValue("code")]
	delete(i.grants, r.FormValue("code"))
	i.mu.Unlock()
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !ok || encode(sum[:]) != g.challenge || r.FormValue("resource") != g.resource || r.FormValue("redirect_uri") != g.redirect {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
		return
	}
	token, err := i.Mint("aud="+g.resource, "scope="+g.scope, "client_id="+g.client)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600, "scope": g.scope})
}

// MachineLife is how long tokens of clients for themselves are valid.
const MachineLife = 3 * time.Second

func (i *Issuer) machine(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	barred := i.mode == "barred"
	i.mu.Unlock()
	if barred || r.FormValue("client_secret") != "client-canary" {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error":"invalid_client"}`))
		return
	}
	client := r.FormValue("client_id")
	token, err := i.Mint("aud="+r.FormValue("resource"), "scope="+r.FormValue("scope"), "client_id="+client, "sub="+client, "exp="+MachineLife.String())
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": token, "token_type": "bearer", "expires_in": int(MachineLife.Seconds())})
}

// Asked returns the scopes that clients asked for, one entry for each request.
func (i *Issuer) Asked() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]string(nil), i.asked...)
}
