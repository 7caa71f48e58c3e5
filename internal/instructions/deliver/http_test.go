package deliver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/test/doortest"
)

// desk is a house with an HTTP server. It does what the daemon does before Serve,
// with facts about the connection that the test gives in headers.
type desk struct {
	*house
	url   string
	looks atomic.Int32 // look-ups of a caller's ancestors

	mu      sync.Mutex
	tokens  map[string]*principal.Principal // bearer tokens that are good
	refused []string                        // reasons, as they came
	agents  []string                        // processes that are registered agents
	lost    map[string]bool                 // principals that hold no more, by name
}

type linkKey struct{}

// link are the facts about a connection.
type link struct {
	who       *principal.Principal
	unix      bool
	processes []string
	complete  bool
}

const (
	bearerCI     = "dw_ci-token-of-32-characters-xyz"
	bearerScoped = "dw_scoped-token-of-32-chars-wxyz"
)

func openDesk(t *testing.T, p plan) *desk {
	t.Helper()
	d := &desk{tokens: map[string]*principal.Principal{
		bearerCI: principal.New("token:ci", principal.Fact{Name: "token", Value: "1", Grade: principal.Verified}),
		bearerScoped: principal.New("token:narrow", principal.Fact{Name: "token", Value: "2", Grade: principal.Verified},
			principal.Fact{Name: "scope", Value: "server:notes", Grade: principal.Verified}),
		"eyJ.oauth.token": principal.New("oauth:https://id.example#ann", principal.Fact{Name: "scope", Value: "instructions", Grade: principal.Verified}),
	}, lost: map[string]bool{}}
	change := p.change
	p.change = func(o *Options) {
		o.Unix = func(r *http.Request) bool { return linkOf(r).unix }
		o.Above = func(r *http.Request) ([]string, bool) {
			d.looks.Add(1)
			return linkOf(r).processes, linkOf(r).complete
		}
		o.Instance = func(r *http.Request) string {
			if p := linkOf(r).processes; len(p) > 0 {
				return p[0]
			}
			return ""
		}
		o.Bearer = func(_ *http.Request, token string) (*principal.Principal, error) { return d.bearer(token) }
		o.Shell = d.shell
		o.Refused = func(_ *http.Request, reason string) { d.note(reason) }
		o.Holds = func(who *principal.Principal) bool { d.mu.Lock(); defer d.mu.Unlock(); return !d.lost[who.Name()] }
		o.Named = d.named
		o.Local = func(r *http.Request) bool { return true }
		if change != nil {
			change(o)
		}
	}
	d.house = build(t, p)
	srv := httptest.NewUnstartedServer(d)
	srv.Start()
	d.url = srv.URL
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return d
}

func linkOf(r *http.Request) link {
	c, _ := r.Context().Value(linkKey{}).(link)
	return c
}

func (d *desk) bearer(token string) (*principal.Principal, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.tokens[token]; p != nil {
		return p, nil
	}
	return nil, errors.New("not a token")
}

// named finds the principal of a bearer token by its name. It does not know the
// subjects of access tokens, as authn does not.
func (d *desk) named(name string) *principal.Principal {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.tokens {
		if p.Name() == name && strings.HasPrefix(name, "token:") {
			return p
		}
	}
	return nil
}

func (d *desk) withdraw(token string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost[d.tokens[token].Name()] = true
	delete(d.tokens, token)
}

func (d *desk) lose(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost[name] = true
}

func (d *desk) note(reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused = append(d.refused, reason)
}

func (d *desk) reasons() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string{}, d.refused...)
}

func (d *desk) shell(_ context.Context, processes []string, complete bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !complete || len(processes) == 0 {
		return errors.New("unknown")
	}
	for _, p := range processes {
		for _, a := range d.agents {
			if p == a {
				return errors.New("an agent")
			}
		}
	}
	return nil
}

// ServeHTTP authenticates a request and serves it. The headers Test-Net, Test-Who
// and Test-Tree are the facts about the connection.
func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := link{unix: r.Header.Get("Test-Net") != "tcp", complete: r.Header.Get("Test-Tree") != ""}
	name := r.Header.Get("Test-Who")
	if c.complete {
		c.processes = strings.Split(r.Header.Get("Test-Tree"), " ")
	}
	for _, h := range []string{"Test-Net", "Test-Who", "Test-Tree"} {
		r.Header.Del(h)
	}
	c.who = principal.New(name)
	if c.unix && strings.HasPrefix(name, "uid:") {
		facts := []principal.Fact{{Name: "uid", Value: strings.TrimPrefix(name, "uid:"), Grade: principal.Attested}}
		if c.complete {
			facts = append(facts, principal.Fact{Name: factProcess, Value: c.processes[0], Grade: principal.Observed})
		}
		c.who = principal.New(name, facts...).WithLocal()
	}
	r = r.WithContext(context.WithValue(r.Context(), linkKey{}, c))
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if Ahead(w, r, path) {
		return
	}
	if !c.unix {
		who, err := d.authenticate(r, c.who)
		if err != nil {
			d.note("door")
			unauthenticated().write(w)
			return
		}
		c.who = who
	}
	d.s.Serve(w, r, c.who)
}

// authenticate does what authn does for a loopback listener that requires no token.
func (d *desk) authenticate(r *http.Request, who *principal.Principal) (*principal.Principal, error) {
	values := r.Header["Authorization"]
	if len(values) == 0 {
		return who, nil
	}
	token, _ := bearerOf(values[0])
	if strings.HasPrefix(token, session.Prefix) {
		return d.s.Authenticate(r)
	}
	return d.bearer(token)
}

// caller is the principal, the network and the processes of a request.
type caller struct{ who, net, tree string }

var (
	me       = caller{who: "uid:1000", net: "unix", tree: "boot/9@9 boot/5@5 boot/1@1"}
	loopback = caller{who: "loopback:uid=1000", net: "tcp"}
)

// reply is an answer as received.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r *reply) code() string {
	var p problem
	if json.Unmarshal([]byte(r.body), &p) != nil {
		return ""
	}
	return p.Code
}

func (r *reply) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.body), v); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
}

// request makes a request. headers alternates names and values.
func (d *desk) request(c caller, method, target, body string, headers ...string) *http.Request {
	d.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	r, err := http.NewRequest(method, d.url, in)
	if err != nil {
		d.t.Fatal(err)
	}
	path, query, _ := strings.Cut(target, "?")
	r.URL.Opaque, r.URL.RawQuery = path, query
	r.URL.ForceQuery = strings.HasSuffix(target, "?")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Test-Who", c.who)
	r.Header.Set("Test-Net", c.net)
	if c.tree != "" {
		r.Header.Set("Test-Tree", c.tree)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		switch name, value := http.CanonicalHeaderKey(headers[i]), headers[i+1]; {
		case value == "":
			r.Header.Del(name)
		case name == "Content-Type":
			r.Header[name] = []string{value}
		default:
			r.Header[name] = append(r.Header[name], value)
		}
	}
	return r
}

// do sends a request and reads the whole answer. It fails the test when the answer
// lacks the headers that every answer has.
func (d *desk) do(c caller, method, target, body string, headers ...string) *reply {
	d.t.Helper()
	r := d.request(c, method, target, body, headers...)
	res, err := doortest.Client().Transport.RoundTrip(r)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, target, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, target, err)
	}
	out := &reply{res.StatusCode, res.Header, string(b)}
	if res.Header.Get("Cache-Control") != "no-store" || res.Header.Get("X-Content-Type-Options") != "nosniff" {
		d.t.Errorf("%s %s: %d is not guarded: %v", method, target, out.status, res.Header)
	}
	if out.status >= 400 && res.Header.Get("Content-Type") != "application/problem+json" {
		d.t.Errorf("%s %s: %d is no problem document: %v", method, target, out.status, res.Header)
	}
	return out
}

// want is do with a check of the status and, for a failure, of the code.
func (d *desk) want(status int, code string, c caller, method, target, body string, headers ...string) *reply {
	d.t.Helper()
	r := d.do(c, method, target, body, headers...)
	if r.status != status || r.code() != code && status >= 400 && method != "HEAD" {
		d.t.Errorf("%s %s %s %v: %d %s; want %d %s", method, target, body, headers, r.status, r.body, status, code)
	}
	return r
}

// openSession makes a session by its route.
func (d *desk) openSession(c caller, body string) (token, id string) {
	d.t.Helper()
	var made Issued
	d.want(201, "", c, "POST", "/auth/session", body).into(d.house.t.(*testing.T), &made)
	return made.Token, made.SessionID
}

func as(token string) []string { return []string{"Authorization", "Bearer " + token} }

// fullToken is the token of a session of both tiers that is bound to no process,
// structuralToken that of one with the structural tier alone.
func (d *desk) fullToken() string {
	token, _ := d.issue("uid:1000", document.Behavioural, document.Structural)
	return token
}

func (d *desk) structuralToken() string {
	token, _ := d.issue("uid:1000", document.Structural)
	return token
}

// listening is an open stream of events.
type listening struct {
	t      *testing.T
	res    *http.Response
	lines  chan string
	cancel context.CancelFunc
}

func (d *desk) listen(t *testing.T, c caller, headers ...string) *listening {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	res, err := doortest.Client().Transport.RoundTrip(d.request(c, "GET", "/auth/events", "", headers...).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	l := &listening{t, res, make(chan string, 100), cancel}
	go func() {
		defer close(l.lines)
		for s := bufio.NewScanner(res.Body); s.Scan(); {
			l.lines <- s.Text()
		}
	}()
	t.Cleanup(func() { cancel(); res.Body.Close() })
	return l
}

// event is the next event, as "name data"; "" at the end of the stream. It fails
// the test when neither comes within the time.
func (l *listening) event(within time.Duration) string {
	l.t.Helper()
	name := ""
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		select {
		case line, open := <-l.lines:
			if !open {
				return ""
			}
			if n, ok := strings.CutPrefix(line, "event: "); ok {
				name = n
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				return name + " " + data
			}
		case <-timer.C:
			l.t.Fatal("the stream neither speaks nor ends")
		}
	}
}

func contextWith(r *http.Request, l link) context.Context {
	return context.WithValue(r.Context(), linkKey{}, l)
}

// eventTime is the longest time that an event or the end of a stream may take.
const eventTime = 5 * time.Second

// records are all records of this package so far.
func (d *desk) records() []logged {
	d.t.Helper()
	raw, err := auditlog.Tail(d.dir, 1_000_000)
	d.must(err)
	var out []logged
	for _, r := range raw {
		var l logged
		d.must(json.Unmarshal(r, &l))
		if l.Source == source {
			out = append(out, l)
		}
	}
	return out
}

// since are the records that f causes.
func (d *desk) since(f func()) []logged {
	d.t.Helper()
	before := len(d.records())
	f()
	return d.records()[before:]
}
