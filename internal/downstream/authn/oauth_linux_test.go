package authn

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/test/doortest"
)

const ourURL = "https://door.example.com"

var scopesOfTests = map[string][]string{
	"notes": {"server:notes", "instructions"}, "look": {"tool:files/read"}, "files": {"server:files", "agent"}, "boss": {"admin"},
}

// guarded is an Authenticator with an issuer behind it.
type guarded struct {
	*world
	idp     *doortest.Issuer
	oauth   *OAuth
	sources int
}

func newGuarded(t testing.TB, algorithms ...string) *guarded {
	t.Helper()
	idp, err := doortest.NewIssuer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(idp.Close)
	g := &guarded{world: newWorld(t), idp: idp}
	g.begin(t, secret.New(envToken), algorithms...)
	return g
}

// begin starts a new Authenticator on the same issuer, which knows no keys.
func (g *guarded) begin(t testing.TB, env secret.Value, algorithms ...string) {
	t.Helper()
	if algorithms == nil {
		algorithms = []string{"RS256", "PS256", "ES256", "EdDSA"}
	}
	problem := func(s string, _ bool) { g.mu.Lock(); defer g.mu.Unlock(); g.problems = append(g.problems, s) }
	o, err := NewOAuth(OAuthOptions{Issuer: g.idp.URL, Audience: ourURL + "/", Scopes: scopesOfTests, Algorithms: algorithms,
		Client: g.idp.Client(), OnProblem: problem, Now: g.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	o.issuer.waits = 20 * time.Second
	t.Cleanup(o.Close)
	g.oauth = o
	g.Authenticator = New(Options{UID: me(), Env: env, Store: g.store, OAuth: o, OnProblem: problem, Now: g.clock.Now})
}

// mint makes a token with the audience of the tests, unless fields name another one.
func (g *guarded) mint(t testing.TB, fields ...string) string {
	t.Helper()
	token, err := g.idp.Mint(append([]string{"aud=" + ourURL}, fields...)...)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (g *guarded) present(token string) (*principal.Principal, error) {
	return g.Authenticate(enforced(), []string{"Bearer " + token})
}

// presentAnew presents a token from a new source, at a time when the issuer may be asked for
// its keys.
func (g *guarded) presentAnew(token string) (*principal.Principal, error) {
	g.oauth.issuer.mu.Lock()
	g.oauth.issuer.next = time.Time{}
	g.oauth.issuer.mu.Unlock()
	c := enforced()
	c.Remote = addr(fmt.Sprintf("198.51.%d.%d", g.sources>>8, g.sources&255))
	g.sources++
	return g.Authenticate(c, []string{"Bearer " + token})
}

func value(p *principal.Principal, name string) string {
	f, _ := p.Fact(name)
	return f.Value
}

func TestAnAccessTokenOfTheIssuerIsAPrincipal(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	for name, fields := range map[string][]string{
		"RS256": nil, "PS256": {"alg=PS256"}, "ES256": {"alg=ES256", "key=ec"}, "EdDSA": {"alg=EdDSA", "key=ed"},
		"typ JWT": {"typ=JWT"}, "no typ": {"typ="}, "typ in full": {"typ=application/at+jwt"}, "typ in any case": {"typ=AT+JWT"},
		"no kid": {"kid="}, "audience with a slash": {"aud=" + ourURL + "/"}, "audience /mcp": {"aud=" + ourURL + "/mcp"},
		"one audience of many": {"aud=https://other.example.com," + ourURL}, "no iat": {"iat="}, "a clock that is ahead": {"iat=20s", "nbf=20s"},
		"a fraction of a second": {"exp=90500ms"}, "keys elsewhere are not looked at": {"jku=https://attacker.example.com/jwks", "x5u=https://attacker.example.com/x", "jwk=rsa-attacker"},
		"other claims": {`claim=nested:{"exp":1}`, `claim=groups:["a"]`},
	} {
		p, err := g.presentAnew(g.mint(t, fields...))
		if err != nil || p.Name() != "oauth:"+g.idp.URL+"#ada" {
			t.Errorf("%s: %q, %v", name, p.Name(), err)
		}
		for _, f := range p.Facts() {
			if want := principal.Verified; f.Grade != want && (f.Name != factClient || f.Grade != principal.Unavailable) {
				t.Errorf("%s: %s is %s", name, f.Name, f.Grade)
			}
		}
	}
	p, err := g.Authenticate(&Caller{Enforce: true, Loopback: true}, []string{"bearer " + g.mint(t)})
	if err != nil || !p.Local() {
		t.Errorf("on loopback: local %v, %v", p.Local(), err)
	}
	if got := g.heard(); got != "" {
		t.Errorf("the operator heard %q", got)
	}
}

func TestTheFactsOfAnAccessTokenAreItsClaims(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	for name, tc := range map[string]struct {
		fields []string
		want   map[string]string
	}{
		"nothing that is known":  {[]string{"scope=openid email"}, map[string]string{factScope: "", factOAuthScope: "email openid", factAudience: ourURL}},
		"no scope":               {nil, map[string]string{factScope: "", factOAuthScope: ""}},
		"the union of two":       {[]string{"scope=look notes", "client_id=editor"}, map[string]string{factScope: "instructions,server:notes,tool:files/read", factOAuthScope: "look notes", factClient: "editor"}},
		"azp is a client":        {[]string{"azp=cli"}, map[string]string{factClient: "cli"}},
		"scp as a list":          {[]string{`claim=scp:["notes","look"]`}, map[string]string{factOAuthScope: "look notes"}},
		"scp as text":            {[]string{`claim=scp:"boss"`}, map[string]string{factScope: "admin"}},
		"for one server alone":   {[]string{"aud=" + ourURL + "/mcp/files", "scope=notes look files boss"}, map[string]string{factScope: "server:files,tool:files/read", factAudience: ourURL + "/mcp/files"}},
		"for two servers":        {[]string{"aud=" + ourURL + "/mcp/files," + ourURL + "/mcp/notes", "scope=notes look"}, map[string]string{factScope: "server:notes,tool:files/read"}},
		"for a server and all":   {[]string{"aud=" + ourURL + "/mcp/files," + ourURL, "scope=boss"}, map[string]string{factScope: "admin"}},
		"for messaging alone":    {[]string{"aud=" + ourURL + "/mcp/agent", "scope=files"}, map[string]string{factScope: "agent"}},
		"for the instructions":   {[]string{"aud=" + ourURL + "/mcp/instructions", "scope=notes files"}, map[string]string{factScope: "instructions"}},
		"a subject with a sign":  {[]string{"sub=a#b c|é"}, map[string]string{factSubject: "a#b c|é"}},
		"the issuer and subject": {nil, map[string]string{factIssuer: g.idp.URL, factSubject: "ada"}},
	} {
		p, err := g.present(g.mint(t, tc.fields...))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for fact, want := range tc.want {
			if got := value(p, fact); got != want {
				t.Errorf("%s: %s is %q, want %q", name, fact, got, want)
			}
		}
		if _, ok := p.Fact(factScope); !ok {
			t.Errorf("%s: without the fact scope, which would mean every server", name)
		}
	}
}

func TestABadAccessTokenIsRefusedWithItsReason(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	good := g.mint(t)
	header, rest, _ := strings.Cut(good, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	for name, tc := range map[string]struct {
		fields []string
		want   Rejection
	}{
		"alg none":                         {[]string{"alg=none"}, badAlgorithm},
		"alg None":                         {[]string{"alg=None"}, badAlgorithm},
		"no alg":                           {[]string{"alg="}, badAlgorithm},
		"HS256 with the public key":        {[]string{"alg=HS256"}, badAlgorithm},
		"an algorithm that is not pinned":  {[]string{"alg=RS512"}, badAlgorithm},
		"an algorithm of another key":      {[]string{"alg=ES256", "key=ec", "kid=rsa"}, badSignature},
		"a key of another curve":           {[]string{"alg=ES256", "key=ec384", "kid=ec"}, badSignature},
		"a weak key":                       {[]string{"key=weak"}, badKey},
		"an unknown key under a known id":  {[]string{"key=rsa-attacker", "kid=rsa"}, badSignature},
		"a key that the token brings":      {[]string{"key=rsa-attacker", "jwk=rsa-attacker", "kid=rsa"}, badSignature},
		"the shared key":                   {[]string{"kid=shared"}, badKey},
		"an extension that must be known":  {[]string{"crit=exp"}, badForm},
		"an ID token's type":               {[]string{"typ=id_token+jwt"}, badType},
		"a logout token":                   {[]string{"typ=logout+jwt"}, badType},
		"an ID token":                      {[]string{"typ=JWT", "aud=editor", "azp=editor"}, badAudience},
		"another issuer":                   {[]string{"iss=https://id.example.com/realm"}, badIssuer},
		"the issuer with a slash":          {[]string{"iss=" + g.idp.URL + "/"}, badIssuer},
		"no issuer":                        {[]string{"iss="}, badIssuer},
		"another audience":                 {[]string{"aud=https://other.example.com"}, badAudience},
		"an audience that begins like us":  {[]string{"aud=" + ourURL + ".example.com"}, badAudience},
		"an audience below us":             {[]string{"aud=" + ourURL + "/admin"}, badAudience},
		"an audience by another case":      {[]string{"aud=" + strings.ToUpper(ourURL)}, badAudience},
		"a server with a slash":            {[]string{"aud=" + ourURL + "/mcp/notes/"}, badAudience},
		"a server with an encoded letter":  {[]string{"aud=" + ourURL + "/mcp/n%6ftes"}, badAudience},
		"no audience":                      {[]string{"aud="}, badAudience},
		"an audience that is no text":      {[]string{"aud=", `claim=aud:[["` + ourURL + `"]]`}, badAudience},
		"expired":                          {[]string{"exp=-1h"}, badExpiry},
		"no expiry":                        {[]string{"exp="}, badExpiry},
		"an expiry that is text":           {[]string{"exp=soon"}, badExpiry},
		"an expiry of null":                {[]string{"exp=", "claim=exp:null"}, badExpiry},
		"an expiry after the end of time":  {[]string{"exp=", "claim=exp:1e300"}, badExpiry},
		"not before the day after":         {[]string{"nbf=24h"}, badTime},
		"issued in the future":             {[]string{"iat=2m"}, badTime},
		"nbf that is text":                 {[]string{"nbf=now"}, badTime},
		"no subject":                       {[]string{"sub="}, badSubject},
		"a subject that is a number":       {[]string{"sub=", "claim=sub:7"}, badSubject},
		"a subject with a control":         {[]string{"sub=a\x1b[2J"}, badSubject},
		"a subject with a hidden letter":   {[]string{"sub=ad\u200ba"}, badSubject},
		"a subject that JSON has to mend":  {[]string{"sub=", `claim=sub:"\ud800"`}, badSubject},
		"a very long subject":              {[]string{"sub=" + strings.Repeat("a", 256)}, badSubject},
		"a client with a control":          {[]string{"client_id=a\n"}, badSubject},
		"a scope that is a number":         {[]string{"claim=scope:1"}, badScope},
		"a scope that is not ASCII":        {[]string{"scope=a\u00e9"}, badScope},
		"a token bound to another key":     {[]string{"cnf=0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}, badBinding},
		"a member twice":                   {[]string{`raw={"iss":"a","iss":"b"}`}, badForm},
		"a list":                           {[]string{`raw=["a"]`}, badForm},
		"two values":                       {[]string{`raw={} {}`}, badForm},
		"no UTF-8":                         {[]string{"raw={\"iss\":\"\xff\"}"}, badForm},
		"one bit of the payload":           {[]string{"flip=payload"}, ""},
		"one bit of the signature":         {[]string{"flip=signature"}, badSignature},
		"the issuer's in another's member": {[]string{"iss=", `claim=ISS:"` + g.idp.URL + `"`}, badIssuer},
	} {
		_, err := g.presentAnew(g.mint(t, tc.fields...))
		var why Rejection
		if !errors.Is(err, ErrUnauthenticated) || !errors.As(err, &why) || tc.want != "" && why != tc.want {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
	for name, token := range map[string]string{
		"no signature": header + "." + payload + ".", "no header": "." + payload + "." + signature, "nothing": "..",
		"padding": good + "=", "spare bits": good[:len(good)-1] + string(next(good[len(good)-1])), "JSON": `{"payload":"a.b.c"}`,
	} {
		if p, err := g.presentAnew(token); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%s: %q, %v", name, p.Name(), err)
		}
	}
	if p, err := g.present(good); err != nil || p.Name() == "" {
		t.Errorf("the good one: %v", err)
	}
}

// next is the next letter of the base64url alphabet. In the last letter of a token it changes
// only bits that have no meaning.
func next(c byte) byte {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return alphabet[strings.IndexByte(alphabet, c)+1]
}

// A token with any single bit changed is refused.
func TestNoChangedTokenIsAccepted(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	good := g.mint(t, "alg=EdDSA", "key=ed")
	if _, err := g.present(good); err != nil {
		t.Fatal(err)
	}
	for at := range good {
		for bit := range 7 {
			b := []byte(good)
			b[at] ^= 1 << bit
			token := string(b)
			if p, err := g.oauth.verify(token, digestOf(token), false, g.clock.Now(), true); err == nil {
				t.Fatalf("bit %d of letter %d is not noticed: %q", bit, at, p.Name())
			}
		}
	}
}

func TestOnlyAlgorithmsOfPublicKeysCanBeConfigured(t *testing.T) {
	t.Parallel()
	for _, a := range []string{"none", "HS256", "HS512", "", "rs256", "ES256K", "dir"} {
		if _, err := NewOAuth(OAuthOptions{Issuer: "https://i", Audience: ourURL, Algorithms: []string{"RS256", a}, Client: doortest.Client()}); err == nil {
			t.Errorf("%q can be configured", a)
		}
	}
	if _, err := NewOAuth(OAuthOptions{Issuer: "https://i", Audience: ourURL, Client: doortest.Client()}); err == nil {
		t.Error("no algorithm at all can be configured")
	}
	g := newGuarded(t, "RS512", "ES384")
	if _, err := g.present(g.mint(t, "alg=RS512")); err != nil {
		t.Errorf("what is pinned: %v", err)
	}
	if _, err := g.present(g.mint(t)); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("RS256, which is not pinned here: %v", err)
	}
}

// A listener accepts static tokens and access tokens side by side. A static token with the
// form of an access token is refused and reported as a problem.
func TestTokensOfBothKindsSideBySide(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	stored, _ := mustNew(t, g.store, "ci", 0, "")
	g.clock.advance(2 * lookEvery)
	for token, want := range map[string]string{envToken: "token:env", stored: "token:ci", g.mint(t): "oauth:" + g.idp.URL + "#ada"} {
		if got, err := g.ask(enforced(), "Bearer "+token); got != want || err != nil {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	own := &Caller{Unix: peerOf(t, func(*exec.Cmd) {})}
	if got, err := g.ask(own, "Bearer "+g.mint(t)); got != principal.UID(me()) || err != nil {
		t.Errorf("on the socket: %q, %v", got, err)
	}
	if _, err := g.ask(&Caller{Loopback: true, OwnerKnown: true, OwnerUID: me()}, "Bearer "+g.mint(t, "exp=-1h")); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("a bad one on loopback without enforcement: %v", err)
	}
	if _, err := g.ask(enforced(), "Bearer "+g.mint(t), "Bearer "+envToken); err != ErrMalformed {
		t.Errorf("two headers: %v", err)
	}
	g.begin(t, secret.New("looks.like.an-access-token"))
	if _, err := g.ask(enforced(), "Bearer looks.like.an-access-token"); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("a static token with the form of an access token: %v", err)
	}
	if c := g.Configured(); c.Set || len(c.Problems) != 1 || !strings.Contains(c.Problems[0], "has the form of an access token") {
		t.Errorf("configured is %+v", c)
	}
}

func TestBadAccessTokensHaveARate(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	good := g.mint(t)
	if _, err := g.present(good); err != nil {
		t.Fatal(err)
	}
	for i := range burst {
		if _, err := g.present(g.mint(t, "flip=signature", fmt.Sprintf("sub=s%d", i))); !errors.Is(err, badSignature) {
			t.Fatalf("failure %d: %v", i, err)
		}
	}
	if _, err := g.present(g.mint(t, "flip=signature")); !errors.Is(err, ErrTooMany) {
		t.Errorf("one more: %v", err)
	}
	if _, err := g.present(good); err != nil {
		t.Errorf("one that is known: %v", err)
	}
	g.clock.advance(refill)
	if _, err := g.present(g.mint(t)); err != nil {
		t.Errorf("after the wait: %v", err)
	}
	if got := g.Failures(); got.Invalid != burst || got.Limited != 1 {
		t.Errorf("counted %+v", got)
	}
}

// FuzzParseJWT: a token is refused or has exactly one spelling, and without a known key none
// is accepted.
func FuzzParseJWT(f *testing.F) {
	o, err := NewOAuth(OAuthOptions{Issuer: "https://i.example", Audience: ourURL, Algorithms: []string{"RS256"}, Client: doortest.Client()})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(o.Close)
	o.issuer.next = time.Unix(1<<40, 0) // it is never asked
	enc := base64.RawURLEncoding.EncodeToString
	for _, s := range [][2]string{
		{`{"alg":"RS256"}`, `{"iss":"https://i.example","aud":"` + ourURL + `","exp":4102444800,"sub":"a","scope":"x y"}`},
		{`{"alg":"none","typ":"JWT","kid":"k"}`, `{"aud":["` + ourURL + `/mcp/n"],"exp":1e9,"scp":["a"],"nbf":null}`}, {`[]`, `{"a":{"b":[1]}}`},
	} {
		f.Add(enc([]byte(s[0])) + "." + enc([]byte(s[1])) + ".AAAA")
	}
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		p, err := parseJWT(token)
		if err != nil {
			if !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("%q: %v", token, err)
			}
			return
		}
		for _, part := range strings.Split(token, ".") {
			if b, err := base64.RawURLEncoding.DecodeString(part); err != nil || enc(b) != part {
				t.Errorf("%q has another spelling", token)
			}
		}
		if c, err := o.check(p, time.Unix(1e9, 0)); err == nil && len(c.audiences) == 0 {
			t.Errorf("%q has no audience", token)
		}
		if who, err := o.verify(token, digestOf(token), false, time.Unix(1e9, 0), true); err == nil {
			t.Errorf("%q is %s", token, who.Name())
		}
	})
}
