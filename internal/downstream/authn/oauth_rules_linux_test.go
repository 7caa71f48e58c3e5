package authn

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// choice is one way to write a part of a token. A token is valid if all its choices are.
type choice struct {
	valid  bool
	fields []string
}

func valid(fields ...string) choice { return choice{true, fields} }
func wrong(fields ...string) choice { return choice{false, fields} }

// choicesOf lists, for each rule of docs/oauth.md, tokens that keep it and tokens that break it.
func choicesOf(issuer string) map[string][]choice {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	return map[string][]choice{
		"signature": {valid("alg=EdDSA", "key=ed"), valid("alg=ES256", "key=ec"), valid("alg=EdDSA", "key=ed", "kid="), wrong("alg=none", "key=ed"),
			wrong("alg=nOnE", "key=ed"), wrong("alg=HS256", "key=ed"), wrong("alg=HS256", "key=ec"), wrong("alg=", "key=ed"), wrong("alg=EdDSA", "key=ed-attacker", "kid=ed"),
			wrong("alg=EdDSA", "key=ed-attacker", "kid="), wrong("alg=ES256", "key=ec-attacker", "kid=ec"), wrong("alg=ES256", "key=ec", "kid=ed"),
			wrong("alg=ES384", "key=ec384"), wrong("alg=EdDSA", "key=ed", "kid=../../../../dev/null"), wrong("alg=EdDSA", "key=ed", "kid=ed\x00"),
			wrong("alg=EdDSA", "key=ed", "kid="+strings.Repeat("k", 300)), wrong("alg=EdDSA", "key=ed", "flip=signature"), wrong("alg=EdDSA", "key=ed", "kid=' OR 1=1 --")},
		"places of keys": {valid(), valid("jku=https://attacker.example/jwks"), valid("x5u=https://attacker.example/x"), valid("jwk=ed-attacker"), valid("jku=file:///etc/passwd", "x5u=http://169.254.169.254/")},
		"type":           {valid("typ=at+jwt"), valid("typ=JWT"), valid("typ="), valid("typ=Application/AT+jwt"), wrong("typ=dpop+jwt"), wrong("typ=id_token+jwt"), wrong("typ=jose")},
		"extensions":     {valid(), wrong("crit=b64"), wrong("crit=exp"), wrong("cnf=x"), wrong(`claim=cnf:null`)},
		"issuer":         {valid(), wrong("iss=" + issuer + "/"), wrong("iss=" + strings.ToUpper(issuer)), wrong("iss="), wrong(`claim=iss:["` + issuer + `"]`), wrong("iss=https://other.example")},
		"audience": {valid("aud=" + ourURL), valid("aud=" + ourURL + "/"), valid("aud=" + ourURL + "/mcp"), valid("aud=" + ourURL + "/mcp/notes"), valid("aud=a," + ourURL),
			valid("aud=" + ourURL + "," + ourURL), wrong("aud=a,b"), wrong(`claim=aud:[]`), wrong(`claim=aud:[["` + ourURL + `"]]`), wrong(`claim=aud:{"0":"` + ourURL + `"}`),
			wrong(`claim=aud:null`), wrong(`claim=aud:["` + ourURL + `",7]`), wrong("aud=" + ourURL + ":443"), wrong("aud=" + ourURL + "@evil.example"), wrong("aud=" + ourURL + "/mcp?x"), wrong("aud=" + ourURL + " x")},
		"expiry": {valid("exp=1h"), valid("exp=30500ms"), valid("exp=1000h"), wrong("exp=0s"), wrong("exp=-1ms"), wrong("exp=-30s"), wrong("exp="), wrong(`claim=exp:"9999999999"`),
			wrong(`claim=exp:1e300`), wrong(`claim=exp:-1`), wrong(`claim=exp:null`), wrong(`claim=exp:[9999999999]`)},
		"not before": {valid(), valid("nbf=-1h"), valid("nbf=45s"), wrong("nbf=90s"), wrong("nbf=24h"), wrong(`claim=nbf:null`), wrong(`claim=nbf:"1"`)},
		"issued":     {valid("iat="), valid("iat=-1000h"), valid("iat=45s"), wrong("iat=90s"), wrong(`claim=iat:"now"`)},
		"subject":    {valid("sub=ada"), valid("sub=a#b"), wrong("sub="), wrong(`claim=sub:7`), wrong(`claim=sub:""`), wrong("sub=a\u202eb"), wrong(`claim=sub:["ada"]`), wrong("sub=" + strings.Repeat("s", 256))},
		"client":     {valid(), valid("client_id=c"), valid("azp=c"), valid(`claim=cid:"c"`), wrong(`claim=client_id:7`), wrong("client_id=a\x1bb")},
		"scope":      {valid(), valid("scope=notes"), valid(`claim=scp:["notes","look"]`), valid(`claim=scope:["notes"]`), wrong(`claim=scope:7`), wrong(`claim=scope:[["notes"]]`), wrong("scope=n\u00e9")},
		"other": {valid(), valid(`claim=realm_access:{"roles":["admin"]}`), valid("claim=deep:" + deep(4000)), valid(`claim=ISS:"x"`), valid(`claim=Exp:1`), wrong("claim=deep:" + deep(6500)),
			valid(`claim=big:"` + strings.Repeat("x", 8000) + `"`), wrong(`claim=big:"` + strings.Repeat("x", 16000) + `"`)},
	}
}

// A token is accepted if and only if it keeps every rule, whatever else is in it: each wrong choice alone, and generated
// combinations of all choices.
func TestATokenIsAcceptedIfItKeepsEveryRule(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	rules := choicesOf(g.idp.URL)
	present := func(picked map[string]choice) {
		t.Helper()
		want, fields := true, []string{}
		for _, c := range picked {
			want = want && c.valid
			fields = append(fields, c.fields...)
		}
		token := g.mint(t, fields...)
		g.clock.advance(time.Since(g.clock.Now())) // its times are from now
		p, err := g.presentAnew(token)
		if (err == nil) != want || err != nil && !errors.Is(err, ErrUnauthenticated) && !errors.Is(err, ErrUnverifiable) {
			t.Errorf("accepted %v, want %v: %.300q (%v)", err == nil, want, fmt.Sprint(picked), err)
		}
		if err == nil && !strings.HasPrefix(p.Name(), "oauth:"+g.idp.URL+"#a") {
			t.Errorf("it is %q", p.Name())
		}
	}
	first := map[string]choice{}
	for rule, choices := range rules {
		first[rule] = choices[0]
	}
	vary := func(rule string, c choice) map[string]choice {
		out := map[string]choice{rule: c}
		for r, f := range first {
			if r != rule {
				out[r] = f
			}
		}
		return out
	}
	for rule, choices := range rules {
		for _, c := range choices {
			present(vary(rule, c))
		}
	}
	r := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	for range 500 {
		picked := map[string]choice{}
		for rule, choices := range rules {
			kept := choices[:0:0]
			for _, c := range choices {
				if c.valid || r.IntN(40) == 0 { // about half of the tokens are valid
					kept = append(kept, c)
				}
			}
			picked[rule] = kept[r.IntN(len(kept))]
		}
		present(picked)
	}
	if n := g.idp.Hits("attacker"); n != 0 {
		t.Errorf("an address in a token was fetched %d times", n)
	}
}
