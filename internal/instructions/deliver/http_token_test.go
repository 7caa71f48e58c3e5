package deliver

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Every bad token has the same answer, byte for byte, on every route.
func TestEveryBadTokenIsTheSameRefusal(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	good := d.fullToken()
	ended, endedID := d.issue("uid:1000", document.Structural)
	d.end(endedID)
	others, _ := d.issue("uid:1001", document.Behavioural, document.Structural)
	stranger := build(t, plan{})
	foreign, _ := stranger.issue("uid:1000", document.Behavioural)
	bound, _, err := d.keeper.Issue(t.Context(), session.Request{Subject: "uid:1000", Scope: []string{document.Structural}, Bind: "boot/77@7"}, said)
	d.must(err)
	started, _ := d.issue("spawn:abc", document.Structural)
	flipped := []byte(good)
	flipped[len(flipped)/2] ^= 1

	nothing := d.want(401, "unauthenticated", me, "GET", "/auth/instructions", "")
	unix := map[string][]string{
		"ended": as(ended), "another uid's": as(others), "another installation's": as(foreign), "bound to another process": as(bound),
		"one flipped bit": as(string(flipped)), "cut": as(good[:len(good)-1]), "longer": as(good + "A"), "padded": as(good + "="), "empty": as(session.Prefix),
		"huge": as(session.Prefix + strings.Repeat("A", 2000)), "a started agent's": as(started), "quoted": as(`"` + good + `"`),
		"unknown": as("dw_nobody-knows-this-token-here"), "an agent's own": as("dwa_0123456789012345678901234567"),
		"another scheme": {"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("a:"+good))},
		"no scheme":      {"Authorization", good}, "two in one": {"Authorization", "Bearer " + good + ", Bearer " + good},
		"beside, ended": {"Doorward-Session", ended}, "beside, with a scheme": {"Doorward-Session", "Bearer " + good},
		"upper case": as("DWS1." + strings.TrimPrefix(good, session.Prefix)),
	}
	for name, headers := range unix {
		for _, c := range [][3]string{{"GET", "/auth/instructions"}, {"GET", "/auth/templates/plan"}, {"POST", "/auth/templates/plan/render", "{}"}, {"GET", "/auth/events"}, {"DELETE", "/auth/session"}, {"GET", "/auth/status"}} {
			r := d.do(me, c[0], c[1], c[2], headers...)
			if r.status != 401 || r.body != nothing.body || r.header.Get("WWW-Authenticate") != nothing.header.Get("WWW-Authenticate") {
				t.Errorf("%s, %s %s: %d %s %s", name, c[0], c[1], r.status, r.header.Get("WWW-Authenticate"), r.body)
			}
		}
	}
	tcp := map[string][]string{
		"ended": as(ended), "another installation's": as(foreign), "one flipped bit": as(string(flipped)), "a started agent's": as(started),
		"unknown": as("dw_nobody-knows-this-token-here"), "beside": {"Doorward-Session", good}, "none": nil,
	}
	for name, headers := range tcp {
		for _, path := range []string{"/auth/instructions", "/auth/status", "/auth/nothing", "/auth/admin/status", "/auth/templates/plan"} {
			if r := d.do(loopback, "GET", path, "", headers...); r.status != 401 || r.body != nothing.body {
				t.Errorf("TCP, %s, %s: %d %s", name, path, r.status, r.body)
			}
		}
	}
	d.want(200, "", me, "GET", "/auth/instructions", "", as(good)...)
	if d.keeper.Stats().Live != 4 {
		t.Errorf("a bad token ended a session: %d live", d.keeper.Stats().Live)
	}
}

// The reason why a token was refused is told to the operator, as one of a fixed set
// of words.
func TestARefusedTokenIsToldToTheOperator(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	ended, id := d.issue("uid:1000", document.Structural)
	d.end(id)
	others, _ := d.issue("uid:1001", document.Structural)
	for _, c := range []struct {
		headers []string
		want    string
	}{
		{as(ended), session.Revoked}, {as(others), session.Binding}, {as(session.Prefix + "x"), session.Malformed}, {as("dw_unknown-unknown-unknown"), "bearer"},
		{[]string{"Authorization", "Basic eA=="}, "place"},
	} {
		before := len(d.reasons())
		d.want(401, "unauthenticated", me, "GET", "/auth/instructions", "", c.headers...)
		if got := d.reasons()[before:]; len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: %v", c.want, got)
		}
	}
	before := len(d.reasons())
	d.want(401, "unauthenticated", me, "GET", "/auth/instructions", "")
	if len(d.reasons()) != before {
		t.Error("a request without a token is reported as a refused token")
	}
}

func TestATokenIsShownOnce(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	good := d.fullToken()
	for name, headers := range map[string][]string{
		"two in Authorization":   {"Authorization", "Bearer " + good, "Authorization", "Bearer " + good},
		"two beside":             {"Doorward-Session", good, "Doorward-Session", good},
		"one in each":            {"Authorization", "Bearer " + good, "Doorward-Session", good},
		"a bearer and a session": {"Authorization", "Bearer " + bearerCI, "Doorward-Session", good},
		"another scheme beside":  {"Authorization", "Basic eA==", "Doorward-Session", good},
		"an empty one beside":    {"Authorization", "Bearer ", "Doorward-Session", good},
	} {
		for _, path := range []string{"/auth/instructions", "/auth/session", "/auth/nothing", "/auth/admin/status"} {
			if r := d.do(me, "GET", path, "", headers...); r.status != 400 || r.code() != "malformed" {
				t.Errorf("%s, %s: %d %s", name, path, r.status, r.body)
			}
		}
	}
	d.want(400, "malformed", loopback, "GET", "/auth/instructions", "", "Authorization", "Bearer "+bearerCI, "Doorward-Session", good)
	// A started agent authenticates with a token of its own in Authorization.
	agent := caller{who: "spawn:abc", net: "unix", tree: "boot/9@9 boot/1@1"}
	own, _ := d.issue("spawn:abc", document.Structural)
	d.gate.SetPolicy(d.rules(`@id("agents") permit (principal, action, resource) when { principal.name == "spawn:abc" };`))
	d.want(200, "", agent, "GET", "/auth/session", "", "Authorization", "Bearer dwa_0123456789012345678901234567", "Doorward-Session", own)
	// A token of another principal does not count from the agent's process tree.
	for _, token := range []string{good, bearerCI, d.structuralToken()} {
		d.want(401, "unauthenticated", agent, "GET", "/auth/instructions", "", "Authorization", "Bearer dwa_0123456789012345678901234567", "Doorward-Session", token)
	}
	d.want(401, "unauthenticated", agent, "GET", "/auth/instructions", "", "Authorization", "Bearer "+own)
}

// A token in the URL is refused in every spelling, on every path and method, before
// anything else is checked.
func TestATokenInTheURLIsRefused(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	good := d.fullToken()
	escaped := ""
	for _, c := range []byte(good) {
		escaped += "%" + strings.ToUpper(string("0123456789abcdef"[c>>4])) + string("0123456789abcdef"[c&15])
	}
	for _, query := range []string{
		"token=" + good, "token=x", "token=", "token", "TOKEN=x", "Token=x", "t%6fken=x", "%74%6F%6b%65%6e=x", "%2574oken=x", "access_token=x", "accessToken=x",
		"access-token=x", "session_token=x", "authorization=x", "Authorization=Bearer+x", "doorward-session=x", "token[]=x", "a=b&token=x", "a=b;token=x", "&&token=x",
		"q=" + good, "q=" + url.QueryEscape(good), "q=" + escaped, "q=" + url.QueryEscape(escaped), "q=+" + good, "q=%22" + good + "%22", "q=Bearer%20" + good, "q=bearer+" + good,
		"q=x" + good, good, good + "=1", "q=DWS1." + good[5:], "q=" + bearerCI, "q=dwa_x", "q=Dw_x", "q=%64w_x", "format=md&q=%zz&token=x", "q=1&q=2&x=dws1.x",
		"q=eyJhbGciOiJub25lIn0.e30.c2ln",
	} {
		for _, c := range []struct {
			by     caller
			method string
			path   string
		}{{me, "GET", "/auth/instructions"}, {loopback, "GET", "/auth/instructions"}, {me, "POST", "/auth/session"}, {loopback, "GET", "/auth/health"}, {me, "GET", "/auth/nothing"},
			{me, "PUT", "/auth/admin/templates/plan"}, {me, "GET", "/auth"}} {
			r := d.do(c.by, c.method, c.path+"?"+query, "", "Authorization", "Bearer "+good)
			if r.status != 400 || r.status == 400 && r.code() != "token_in_url" {
				t.Errorf("%s %s?%s: %d %s", c.method, c.path, query, r.status, r.body)
			}
			if strings.Contains(r.body, good[:20]) {
				t.Errorf("the answer shows it: %s", r.body)
			}
		}
	}
	for _, path := range []string{"/auth/templates/" + good, "/auth/" + strings.ToUpper(good), "/auth/templates/dws1%2ex", "/auth/templates/dws1.notes"} {
		d.want(400, "token_in_url", me, "GET", path, "", as(good)...)
	}
	for _, query := range []string{"", "?", "?format=md", "?format=json&max_bytes=600"} {
		d.want(200, "", me, "GET", "/auth/instructions"+query, "", as(good)...)
	}
	if logs := d.logs.String(); strings.Contains(logs, good[5:30]) || strings.Contains(logs, "format=") {
		t.Errorf("the log: %s", logs)
	}
}

// Ahead answers GET /auth/health and leaves paths outside /auth/ alone.
func TestAheadLeavesOtherPathsAlone(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/", "/mcp", "/authx", "/authx/health", "/health", "/Auth/health", "//auth/health", "/x/auth/health"} {
		w := httptest.NewRecorder()
		if Ahead(w, httptest.NewRequest("GET", "http://localhost"+path+"?token=x", nil), path) || w.Body.Len() > 0 {
			t.Errorf("%s is answered", path)
		}
	}
	for _, method := range []string{"POST", "DELETE", "PUT"} {
		if Ahead(httptest.NewRecorder(), httptest.NewRequest(method, "/auth/health", nil), "/auth/health") {
			t.Errorf("%s /auth/health is answered", method)
		}
	}
	w := httptest.NewRecorder()
	if !Ahead(w, httptest.NewRequest("GET", "/auth/health", nil), "/auth/health") || w.Body.String() != `{"status":"ok"}` {
		t.Errorf("health: %s", w.Body)
	}
}

// Over TCP a session token reads, renews and ends its own session. It opens no
// route of the operator and makes no further session.
func TestASessionTokenOverTCP(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	good := as(d.fullToken())
	d.want(200, "", loopback, "GET", "/auth/instructions", "", good...)
	d.want(200, "", loopback, "GET", "/auth/voice", "", good...)
	d.want(200, "", loopback, "GET", "/auth/session", "", good...)
	d.want(404, "not_found", loopback, "GET", "/auth/nothing", "", good...)
	nothing := d.want(404, "not_found", me, "GET", "/auth/nothing", "")
	for path, of := range table {
		path = strings.NewReplacer(anyName, "plan", anySession, "0123456789abcdef").Replace(path)
		for method := range of {
			if !strings.HasPrefix(path, "admin/") {
				continue
			}
			before := len(d.records())
			for _, headers := range [][]string{good, as(bearerCI), append([]string{"Sec-Doorward", "1"}, good...)} {
				if r := d.do(loopback, method, "/auth/"+path, "", headers...); r.status != 404 || r.body != nothing.body {
					t.Errorf("%s /auth/%s over TCP: %d %s", method, path, r.status, r.body)
				}
			}
			if after := d.records(); len(after) != before+3 || after[before].Decision != audit.Deny || after[before].Rule != ruleLocal || after[before].Action != "admin" {
				t.Errorf("%s /auth/%s: %+v", method, path, after[before:])
			}
		}
	}
	// It makes no further session: that would extend it without end.
	if r := d.do(loopback, "POST", "/auth/session", "", good...); r.status != 403 {
		t.Errorf("a session makes a session: %d %s", r.status, r.body)
	}
	// It can be renewed.
	var again Issued
	d.want(201, "", loopback, "POST", "/auth/session/renew", "", good...).into(t, &again)
	d.want(200, "", loopback, "GET", "/auth/instructions", "", as(again.Token)...)
	d.want(204, "", loopback, "DELETE", "/auth/session", "", as(again.Token)...)
	for _, token := range [][]string{good, as(again.Token)} {
		d.want(401, "unauthenticated", loopback, "GET", "/auth/instructions", "", token...)
	}
}

// The session of a bearer token has the scope of that token and ends with it.
func TestTheSessionOfABearerTokenEndsWithIt(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	var made Issued
	d.want(201, "", loopback, "POST", "/auth/session", "", as(bearerCI)...).into(t, &made)
	if len(made.Scope) != 1 || made.Scope[0] != document.Structural {
		t.Errorf("the scope of a token's session: %v", made.Scope)
	}
	d.want(200, "", loopback, "GET", "/auth/templates/plan", "", as(made.Token)...)
	d.want(401, "unauthenticated", me, "GET", "/auth/templates/plan", "", as(made.Token)...) // the caller of the socket is another principal
	d.want(403, "not_permitted", loopback, "POST", "/auth/session", "", as(bearerScoped)...)
	l := d.listen(t, loopback, as(made.Token)...)
	d.withdraw(bearerCI)
	d.want(401, "unauthenticated", loopback, "GET", "/auth/templates/plan", "", as(made.Token)...)
	if e := l.event(eventTime); e != "session.revoked {}" {
		t.Errorf("%s", e)
	}
	if e := l.event(eventTime); e != "" {
		t.Errorf("after the end: %s", e)
	}
	// After a restart the token is looked up by its name.
	token, _ := d.issue("token:narrow", document.Structural)
	d.withdraw(bearerScoped)
	d.want(401, "unauthenticated", loopback, "GET", "/auth/session", "", as(token)...)
	// An access token cannot be looked up, so its session does not survive a restart.
	var oauth Issued
	d.want(201, "", loopback, "POST", "/auth/session", "", as("eyJ.oauth.token")...).into(t, &oauth)
	d.want(200, "", loopback, "GET", "/auth/templates/plan", "", as(oauth.Token)...)
	d.s.web.forget(oauth.SessionID) // as after a restart
	d.want(401, "unauthenticated", loopback, "GET", "/auth/templates/plan", "", as(oauth.Token)...)
}

// The session of a scoped token has the scope of the token over TCP too.
func TestTheScopeOfATokenGoesWithItsSession(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	token, _ := d.issue("token:narrow", document.Structural) // issued in process: the route refuses a scoped token
	who, err := d.s.Authenticate(d.shows(token))
	d.must(err)
	if f, _ := who.Fact("scope"); f.Value != "server:notes" || f.Grade != principal.Verified {
		t.Errorf("%s", who.FactsJSON())
	}
	d.want(404, "not_found", loopback, "GET", "/auth/templates/plan", "", as(token)...)
}

func (d *desk) shows(token string) *http.Request {
	r := httptest.NewRequest("GET", "/auth/instructions", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

func TestASessionTokenOverTCPIsItsVerifiedSubject(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	token, id := d.issue("uid:1000", document.Structural)
	who, err := d.s.Authenticate(d.shows(token))
	d.must(err)
	if f, _ := who.Fact("session"); who.Name() != "uid:1000" || f.Value != id || f.Grade != principal.Verified || !who.Local() {
		t.Errorf("%s %s", who.Name(), who.FactsJSON())
	}
	if f, _ := who.Fact("uid"); f.Grade == principal.Attested {
		t.Error("the uid of a token's bearer counts as attested")
	}
	if _, ok := who.Fact(principal.FactInstance); ok {
		t.Error("a token's bearer has an instance, although its process is unknown")
	}
	for name, r := range map[string]*http.Request{
		"none": httptest.NewRequest("GET", "/auth/instructions", nil), "a bearer token": d.shows(bearerCI), "an agent's": d.shows("dwa_x"), "nothing of it": d.shows(session.Prefix),
	} {
		if who, err := d.s.Authenticate(r); err == nil || who.Valid() || strings.Contains(err.Error(), "dw") {
			t.Errorf("%s: %v %v", name, who, err)
		}
	}
}

// The header Doorward-Session of a request to MCP gives its caller's own session,
// given once and without a scheme; everything else is refused.
func TestDeliveryTakesOneTokenOfTheCallersOwn(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	token, id := d.issue("uid:1000", document.Structural)
	others, _ := d.issue("uid:1001", document.Structural)
	agents, agentsID := d.issue("spawn:abc", document.Structural)
	user, agent := principal.New("uid:1000").WithLocal(), principal.New("spawn:abc").WithLocal()
	ask := func(who *principal.Principal, unix bool, values ...string) (string, error) {
		r := httptest.NewRequest("POST", "/mcp", nil)
		for _, v := range values {
			r.Header.Add("Doorward-Session", v)
		}
		return d.s.Delivery(r.WithContext(contextWith(r, link{unix: unix, processes: []string{"boot/9@9"}, complete: true})), who)
	}
	for name, c := range map[string]struct {
		who    *principal.Principal
		unix   bool
		values []string
		want   string // "" with ok: none
		ok     bool
	}{
		"none":                      {user, true, nil, "", true},
		"its own":                   {user, true, []string{token}, id, true},
		"over TCP":                  {principal.New("loopback:uid=1000"), false, []string{token}, id, true},
		"an agent's own":            {agent, true, []string{agents}, agentsID, true},
		"an agent's over TCP":       {principal.New("loopback:uid=1000"), false, []string{agents}, "", false},
		"another's":                 {user, true, []string{others}, "", false},
		"its parent's, by an agent": {agent, true, []string{token}, "", false},
		"twice":                     {user, true, []string{token, token}, "", false},
		"an empty one":              {user, true, []string{""}, "", false},
		"with a scheme":             {user, true, []string{"Bearer " + token}, "", false},
		"an unknown bearer token":   {user, true, []string{"dw_unknown-unknown-unknown"}, "", false},
		"an agent's door token":     {user, true, []string{"dwa_x"}, "", false},
		"a bearer token, by agent":  {agent, true, []string{bearerCI}, "", false},
	} {
		got, err := ask(c.who, c.unix, c.values...)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%s: %q %v", name, got, err)
		}
		if err != nil && (strings.Contains(err.Error(), "dws1") || strings.Contains(err.Error(), "dw_")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := ask(user, true, bearerCI); err != nil || !strings.HasPrefix(got, bearerMark) {
		t.Errorf("a bearer token: %q %v", got, err)
	}
}

// TestAnEndedSessionCostsGuidanceAndNoTools: the token of an ended session leaves
// an MCP connection without guidance, with the reason, and without tools only under
// fail_closed. A client that sends Doorward-Renews is refused, so that it gets a new
// token.
func TestAnEndedSessionCostsGuidanceAndNoTools(t *testing.T) {
	t.Parallel()
	user := principal.New("uid:1000").WithLocal()
	ends := map[string]func(d *desk, id string){
		"by its holder":  func(d *desk, id string) { d.ends(id, session.ReasonEnded) },
		"by an operator": func(d *desk, id string) { d.ends(id, session.ReasonRevoked) },
		"with a process": func(d *desk, id string) { d.ends(id, session.ReasonProcess) },
		"by time":        func(d *desk, id string) { d.ends(id, session.ReasonExpired) },
	}
	for name, end := range ends {
		for _, closed := range []bool{false, true} {
			for _, unix := range []bool{false, true} {
				t.Run(fmt.Sprint(name, closed, unix), func(t *testing.T) {
					t.Parallel()
					d := openDesk(t, plan{failClosed: closed})
					token, id := d.issue("uid:1000", document.Structural)
					end(d, id)
					r := httptest.NewRequest("POST", "/mcp", nil)
					r.Header.Set("Doorward-Session", token)
					r = r.WithContext(contextWith(r, link{unix: unix, processes: []string{"boot/9@9"}, complete: true}))
					got, err := d.s.Delivery(r, user)
					if err != nil {
						t.Fatalf("the connection is refused: %v", err)
					}
					act := gate.Act{Who: user, Delivery: got}
					reader, why := d.s.readers.readerOf(act)
					if reader != nil || why != Expired {
						t.Errorf("it reads as %+v, told %q", reader, why)
					}
					if why := d.s.Refuses(gate.Act{Who: user, Delivery: got, Action: "tools/call", Server: "notes", Name: "x"}); (why != "") != closed {
						t.Errorf("fail_closed %v: tools are refused with %q", closed, why)
					}
					r.Header.Set("Doorward-Renews", "1")
					if _, err := d.s.Delivery(r, user); err == nil {
						t.Error("a client that can renew its token is not refused")
					}
				})
			}
		}
	}
}

// ends ends a session without the server.
func (d *desk) ends(id, reason string) {
	d.t.Helper()
	_, err := d.keeper.End(context.Background(), id, reason, said)
	d.must(err)
}

// No part of a token or a text is in a record or in the program's log, whatever was
// requested.
func TestNothingOfATokenOrATextIsWrittenDown(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	token, id := d.openSession(me, `{"client":{"name":"marker-client"},"project":"demo"}`)
	text := d.do(me, "GET", "/auth/instructions", "", as(token)...)
	d.do(me, "GET", "/auth/templates/verdict", "", as(token)...)
	d.do(me, "POST", "/auth/templates/verdict/render", `{"vars":{"case":"marker-value"}}`, as(token)...)
	d.do(me, "POST", "/auth/templates/verdict/render", `{"vars":{"marker-variable":"marker-value"}}`, as(token)...)
	d.do(me, "GET", "/auth/instructions?token="+token, "")
	d.do(me, "GET", "/auth/instructions", "", as(token[:len(token)-3]+"AAA")...)
	d.do(me, "GET", "/auth/templates/marker-unknown", "", as(bearerCI)...)
	d.do(me, "GET", "/auth/instructions", "", as("dw_marker-unknown-token-marker")...)
	d.do(me, "PUT", "/auth/admin/templates/fresh", `{"content":"---\nname: fresh\nclass: template\n---\nmarker-document\n"}`)
	d.do(me, "PUT", "/auth/admin/templates/broken", `{"content":"marker-document {{"}`)
	d.do(me, "GET", "/auth/admin/templates/judge?version=production", "")
	d.do(me, "POST", "/auth/admin/canary", `{"ref":"`+refIn(t, text.body)+`"}`)
	var ci, again Issued
	d.want(201, "", me, "POST", "/auth/admin/sessions", `{"scope":"structural"}`).into(t, &ci)
	d.want(201, "", me, "POST", "/auth/session/renew", "", as(token)...).into(t, &again)
	d.do(me, "DELETE", "/auth/session", "", as(again.Token)...)
	raw, err := auditlog.Tail(d.dir, 1_000_000)
	d.must(err)
	written := d.logs.String() + strings.Join(d.reasons(), " ")
	for _, line := range raw {
		written += string(line)
	}
	secrets := []string{"umber heron", "lighthouse", "marker-value", "marker-variable", "marker-document", refIn(t, text.body), bearerCI, "dw_", "dws1", text.header.Get("ETag")}
	for _, s := range []string{token, ci.Token, again.Token} {
		for _, part := range strings.Split(s, ".")[2:] {
			secrets = append(secrets, part, part[:16])
		}
	}
	for _, s := range secrets {
		if strings.Contains(written, s) {
			t.Errorf("%q is written down", s)
		}
	}
	if !strings.Contains(written, id) || !strings.Contains(written, `"templates":"judge,plan"`) {
		t.Error("the record names neither the session nor its documents")
	}
}
