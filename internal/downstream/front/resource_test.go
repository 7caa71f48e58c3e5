package front

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/test/doortest"
)

var door = &Resource{URL: "https://door.example.com", Issuer: "https://id.example.com/realm",
	Scopes: []string{"admin", "read", "write"}, Basic: []string{"read", "write"}}

const metadataAt = `resource_metadata="https://door.example.com/.well-known/oauth-protected-resource`

// refusing opens a door whose Authenticate returns the error that the header Refuse names.
func refusing(t *testing.T, res *Resource) *house {
	t.Helper()
	h := open(t, Options{Resource: res})
	before := h.door.o.Authenticate
	h.door.o.Authenticate = func(r *http.Request) (*principal.Principal, error) {
		switch r.Header.Get("Refuse") {
		case "malformed":
			return nil, ErrMalformed
		case "unavailable":
			return nil, ErrUnavailable
		}
		return before(r)
	}
	return h
}

func TestAChallengeSaysWhereTokensComeFrom(t *testing.T) {
	t.Parallel()
	const nobody = "Bearer realm=\"doorward\""
	scope := `, scope="read write"`
	for _, tt := range []struct {
		name, path string
		res        *Resource
		header     []string
		status     int
		want       string
	}{
		{"nothing presented", "/mcp/notes", door, []string{"Who", "nobody"}, 401, nobody + ", " + metadataAt + `/mcp/notes"` + scope},
		{"the aggregate", "/mcp", door, []string{"Who", "nobody"}, 401, nobody + ", " + metadataAt + `/mcp"` + scope},
		{"a query", "/mcp?x=/mcp/y", door, []string{"Who", "nobody"}, 401, nobody + ", " + metadataAt + `/mcp"` + scope},
		{"another path", "/sse/notes", door, []string{"Who", "nobody"}, 401, nobody + ", " + metadataAt + `"` + scope},
		{"a path that nothing has", "/mcp/a\"b", door, []string{"Who", "nobody"}, 401, nobody + ", " + metadataAt + `"` + scope},
		{"a name that is too long", "/mcp/" + strings.Repeat("a", 65), door, []string{"Who", "nobody"}, 401, nobody + ", " + metadataAt + `"` + scope},
		{"a token presented", "/mcp", door, []string{"Who", "nobody", "Authorization", "Bearer x"}, 401, nobody + `, error="invalid_token", ` + metadataAt + `/mcp"` + scope},
		{"another scheme", "/mcp", door, []string{"Who", "nobody", "Authorization", "Basic x"}, 401, nobody + ", " + metadataAt + `/mcp"` + scope},
		{"malformed", "/mcp", door, []string{"Refuse", "malformed"}, 400, nobody + `, error="invalid_request", ` + metadataAt + `/mcp"`},
		{"not now", "/mcp", door, []string{"Refuse", "unavailable"}, 503, ""},
		{"no issuer", "/mcp", nil, []string{"Who", "nobody"}, 401, nobody},
		{"no issuer, a token presented", "/mcp", nil, []string{"Who", "nobody", "Authorization", "bearer x"}, 401, nobody + `, error="invalid_token"`},
		{"no issuer, malformed", "/mcp", nil, []string{"Refuse", "malformed"}, 400, nobody + `, error="invalid_request"`},
	} {
		h := refusing(t, tt.res)
		a := h.do("GET", tt.path, "", tt.header...)
		if a.status != tt.status || a.header.Get("Www-Authenticate") != tt.want {
			t.Errorf("%s: %d %s, want %d %s", tt.name, a.status, a.header.Get("Www-Authenticate"), tt.status, tt.want)
		}
		if a.status == 503 && a.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", tt.name)
		}
		if !slices.Equal(h.refuse, []int{tt.status}) {
			t.Errorf("%s: recorded %v", tt.name, h.refuse)
		}
	}
}

func TestTheMetadataIsPublicAndNoOracle(t *testing.T) {
	t.Parallel()
	h := refusing(t, door)
	const at = "/.well-known/oauth-protected-resource"
	for path, resource := range map[string]string{at: "", at + "/mcp": "/mcp", at + "/mcp/notes": "/mcp/notes", at + "/mcp/hidden": "/mcp/hidden"} {
		a := h.do("GET", path, "", "Who", "nobody")
		var doc map[string]any
		if err := json.Unmarshal([]byte(a.body), &doc); err != nil || a.status != 200 || doc["resource"] != door.URL+resource {
			t.Errorf("%s: %d %s, %v", path, a.status, a.body, err)
		}
		if a.header.Get("Content-Type") != "application/json" || a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: headers %v", path, a.header)
		}
	}
	for path, status := range map[string]int{at + "/": 404, at + "/mcp/": 404, at + "/mcp/a/b": 404, at + "/MCP": 404, at + "/health": 404, at + "s": 401} {
		if a := h.do("GET", path, "", "Who", "nobody"); a.status != status {
			t.Errorf("%s: %d, want %d", path, a.status, status)
		}
	}
	for _, method := range []string{"POST", "DELETE", "OPTIONS"} {
		if a := h.do(method, at, "", "Who", "nobody"); a.status != 405 || a.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d", method, a.status)
		}
	}
	if a := h.do("GET", at, "", "Origin", "https://evil.example.com"); a.status != 403 {
		t.Errorf("a foreign Origin: %d", a.status)
	}
	closed := refusing(t, nil)
	for who, status := range map[string]int{"nobody": 401, "": 404} {
		if a := closed.do("GET", at, "", "Who", who); a.status != status {
			t.Errorf("no issuer, %q: %d, want %d", who, a.status, status)
		}
	}
}

func TestAMissingScopeIsA403WithAChallenge(t *testing.T) {
	t.Parallel()
	h := open(t, Options{Resource: door})
	denied := Reply{Error: &wire.Error{Code: 1403, Message: "Denied by policy", Data: []byte(`{"ref":7}`)}, NeedScope: "write"}
	h.serve = func(_ context.Context, x *Exchange) Reply {
		if x.Method == "streaming" {
			x.Notify("notifications/progress", []byte(`{}`))
		}
		return denied
	}
	want := `Bearer realm="doorward", error="insufficient_scope", ` + metadataAt + `/mcp/s", scope="write"`
	id := h.session("2025-11-25")
	a := h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":1,"method":"x/y"}`, "Mcp-Session-Id", id)
	if a.status != 403 || a.header.Get("Www-Authenticate") != want || a.body != `{"jsonrpc":"2.0","id":1,"error":{"code":1403,"message":"Denied by policy","data":{"ref":7}}}` {
		t.Errorf("legacy: %d %s %s", a.status, a.header.Get("Www-Authenticate"), a.body)
	}
	a = h.do("POST", "/mcp/s", modernCall, modernHeaders...)
	if a.status != 403 || a.header.Get("Www-Authenticate") != want {
		t.Errorf("modern: %d %s", a.status, a.header.Get("Www-Authenticate"))
	}
	a = h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":2,"method":"streaming"}`, "Mcp-Session-Id", id)
	if a.status != 200 || !strings.Contains(a.body, `"code":1403`) {
		t.Errorf("a stream that had begun: %d %s", a.status, a.body)
	}
	denied.NeedScope = ""
	a = h.do("POST", "/mcp/s", `{"jsonrpc":"2.0","id":3,"method":"x/y"}`, "Mcp-Session-Id", id)
	if a.status != 200 || a.header.Get("Www-Authenticate") != "" {
		t.Errorf("when no scope would help: %d", a.status)
	}
}

const modernCall = `{"jsonrpc":"2.0","id":1,"method":"x/y","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`

var modernHeaders = []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "x/y"}

func TestATokenWithoutScopesIsChallengedOnTheAggregateOnly(t *testing.T) {
	t.Parallel()
	res := *door
	res.Missing = func(who *principal.Principal) string {
		if who == alice {
			return "read write"
		}
		return ""
	}
	h := open(t, Options{Resource: &res})
	h.known = func(string) bool { return false }
	a := h.do("POST", "/mcp", modernCall, modernHeaders...)
	if want := `Bearer realm="doorward", error="insufficient_scope", ` + metadataAt + `/mcp", scope="read write"`; a.status != 403 || a.header.Get("Www-Authenticate") != want {
		t.Errorf("the aggregate: %d %s", a.status, a.header.Get("Www-Authenticate"))
	}
	if a := h.do("POST", "/mcp/s", modernCall, modernHeaders...); a.status != 404 || a.header.Get("Www-Authenticate") != "" {
		t.Errorf("a server: %d", a.status)
	}
	if a := h.do("POST", "/mcp", modernCall, append(modernHeaders, "Who", "bob")...); a.status != 404 {
		t.Errorf("a caller that no scope would help: %d", a.status)
	}
	if h.reached() != 0 {
		t.Error("the message reached the handler")
	}
}

// The client side of the official Go SDK parses the challenge and finds the metadata.
func TestTheSDKReadsChallengeAndMetadata(t *testing.T) {
	t.Parallel()
	res := *door
	h := open(t, Options{Resource: &res})
	res.URL = h.url // as configured for a daemon that is reached there
	for _, path := range []string{"/mcp", "/mcp/notes"} {
		a := h.do("POST", path, "{}", "Who", "nobody", "Authorization", "Bearer x")
		var challenges []doortest.Challenge
		doortest.AskSDK(t, &challenges, append([]string{"challenge"}, a.header["Www-Authenticate"]...)...)
		if len(challenges) != 1 || challenges[0].Scheme != "bearer" {
			t.Fatalf("%s: %v", path, challenges)
		}
		p := challenges[0].Params
		if p["error"] != "invalid_token" || p["scope"] != "read write" || p["realm"] != "doorward" {
			t.Errorf("%s: %v", path, p)
		}
		var meta struct {
			AuthorizationServers   []string `json:"authorization_servers"`
			ScopesSupported        []string `json:"scopes_supported"`
			BearerMethodsSupported []string `json:"bearer_methods_supported"`
			ResourceName           string   `json:"resource_name"`
		}
		doortest.AskSDK(t, &meta, "metadata", p["resource_metadata"], h.url+path)
		if !slices.Equal(meta.AuthorizationServers, []string{door.Issuer}) || !slices.Equal(meta.ScopesSupported, door.Scopes) ||
			!slices.Equal(meta.BearerMethodsSupported, []string{"header"}) || meta.ResourceName != "Doorward" {
			t.Errorf("%s: %+v", path, meta)
		}
	}
	doortest.AskSDK(t, new(any), "metadata", h.url+wellKnown, h.url)
}
