package signin

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/doortest"
)

func TestChallenges(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]challenge{
		``:                              {},
		`Bearer`:                        {any: true, bearer: true},
		`bearer realm=x`:                {any: true, bearer: true},
		`Basic abc==`:                   {any: true},
		`Basic abc==, Bearer error="x"`: {any: true, bearer: true, err: "x"},
		`Bearer resource_metadata="https://a/b", scope="one two"`:                      {any: true, bearer: true, metadata: "https://a/b", scopes: []string{"one", "two"}},
		`Bearer resource_metadata=https://a/b, scope=one`:                              {any: true, bearer: true, metadata: "https://a/b", scopes: []string{"one"}},
		`Digest realm="a, Bearer scope=no", nonce="x", Bearer scope="yes"`:             {any: true, bearer: true, scopes: []string{"yes"}},
		`Bearer scope="first", Bearer scope="second"`:                                  {any: true, bearer: true, scopes: []string{"first"}},
		`Bearer scope="first", scope="second"`:                                         {any: true, bearer: true, scopes: []string{"first"}},
		`Bearer error="a\"b"`:                                                          {any: true, bearer: true, err: `a"b`},
		`Bearer scope="unterminated`:                                                   {any: true, bearer: true},
		`Bearer scope="a a b ` + "\x01" + ` c"`:                                        {any: true, bearer: true, scopes: []string{"a", "b", "c"}},
		`"Bearer" scope="a"`:                                                           {},
		`=Bearer`:                                                                      {},
		`Bearer ` + strings.Repeat("x", maxChallenge):                                  {},
		`Bearer scope="` + strings.Repeat("s ", 1000) + strings.Repeat("t", 300) + `"`: {any: true, bearer: true, scopes: []string{"s"}},
	} {
		got := parseChallenge(http.Header{"Www-Authenticate": {header}})
		if got.any != want.any || got.bearer != want.bearer || got.err != want.err || got.metadata != want.metadata || !slices.Equal(got.scopes, want.scopes) {
			t.Errorf("%.80s: %+v", header, got)
		}
	}
}

// A well-formed challenge reads as the SDK of the protocol reads it.
func TestChallengesReadAsTheSDKReadsThem(t *testing.T) {
	t.Parallel()
	for _, header := range []string{
		`Bearer realm="example", error="invalid_token", error_description="The access token, expired"`,
		`Bearer resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource", scope="files:read files:write"`,
		`Basic realm="x", Bearer error="insufficient_scope", scope="a b"`, `DPoP algs="ES256", Bearer scope="z"`, `Bearer`,
	} {
		var theirs []doortest.Challenge
		doortest.AskSDK(t, &theirs, "challenge", header)
		i := slices.IndexFunc(theirs, func(c doortest.Challenge) bool { return c.Scheme == "bearer" })
		ours := parseChallenge(http.Header{"Www-Authenticate": {header}})
		params := theirs[i].Params
		if ours.err != params["error"] || ours.metadata != params["resource_metadata"] || strings.Join(ours.scopes, " ") != params["scope"] {
			t.Errorf("%s: %+v, theirs %v", header, ours, params)
		}
	}
}

// No header of a server makes the reader fail, hang or hold more than it may.
func FuzzChallenge(f *testing.F) {
	for _, s := range []string{`Bearer scope="a"`, `a=b`, `Basic x==, Bearer y="\"`, `,,,`, `Bearer x=`, `A B C D=E`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := parseChallenge(http.Header{"Www-Authenticate": {s, s}})
		if c.bearer && !c.any || len(c.scopes) > maxScopes {
			t.Fatalf("%+v", c)
		}
		for _, scope := range c.scopes {
			if !isScope(scope) {
				t.Fatalf("%q is no scope", scope)
			}
		}
	})
}

// A token is accepted if a header can carry it, and its lifetime in each form that servers
// send.
func TestTokenAnswers(t *testing.T) {
	t.Parallel()
	for body, ok := range map[string]bool{
		`{"access_token":"a","token_type":"Bearer"}`:                                       true,
		`{"access_token":"a","token_type":"bearer","expires_in":60}`:                       true,
		`{"access_token":"a","token_type":"bearer","expires_in":"60"}`:                     true,
		`{"access_token":"a","token_type":"bearer","expires_in":1e300}`:                    true,
		`{"access_token":"a","token_type":"bearer","expires_in":-1}`:                       true,
		`{"access_token":"a","token_type":"DPoP"}`:                                         false,
		`{"access_token":"a"}`:                                                             false,
		`{"access_token":"","token_type":"bearer"}`:                                        false,
		`{"access_token":"a b","token_type":"bearer"}`:                                     false,
		`{"access_token":"a\r\nX: y","token_type":"bearer"}`:                               false,
		`{"access_token":"a","token_type":"bearer","refresh_token":"\u0000"}`:              false,
		`{"access_token":"a","access_token":"b","token_type":"bearer"}`:                    false,
		`{"access_token":"` + strings.Repeat("a", maxToken+1) + `","token_type":"bearer"}`: false,
		`[]`: false,
	} {
		if _, err := readTokens([]byte(body), time.Now()); (err == nil) != ok || err != nil && strings.Contains(err.Error(), `X: y`) {
			t.Errorf("%.80s: %v", body, err)
		}
	}
}
