package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/client"
	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/downstream/credential"
	"github.com/doorward/doorward/internal/downstream/peer"
	"github.com/doorward/doorward/test/overload"
)

func TestASessionEndsWithTheAgentAndNotWithItsShells(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ above, want string }{
		{"claude", "claude"},
		{"sh claude", "claude"},
		{"doorward timeout sh env bash claude zsh sshd", "claude"},
		{"dash node systemd", "node"},
		{"bash python3 bash claude", "python3"},
		{"bash sshd", "sshd"},
		{"sh bash systemd", "bash"}, // a terminal without anything round it
		{"sh", "sh"},
		{"bash init", "bash"},
		{"tini", ""},
		{"", ""},
		{"sh init claude", "sh"}, // what is above the first process does not count
	} {
		var above []peer.Process
		for _, name := range strings.Fields(tc.above) {
			above = append(above, peer.Process{Instance: "i-" + name, Name: name})
		}
		want := peer.Process{}
		if tc.want != "" {
			want = peer.Process{Instance: "i-" + tc.want, Name: tc.want}
		}
		if got := agentOf(above); got != want {
			t.Errorf("below %q: %+v, want %q", tc.above, got, tc.want)
		}
	}
}

// inTime calls f with what a client says, or with the input of one that says nothing and stays
// when that is nil. f must return within a hook's time on a clock that the load of the machine
// does not move.
func inTime(t *testing.T, what string, in io.Reader, f func(io.Reader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		quiet, w := io.Pipe()
		defer w.Close()
		if in == nil {
			in = quiet
		}
		began := time.Now()
		f(in)
		if took := time.Since(began); took > hookTime {
			t.Errorf("%s: it took %s", what, took)
		}
	})
}

func TestAHookIsReadWhateverTheClientSays(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		in   io.Reader
		want hookEvent
	}{
		"Claude Code": {strings.NewReader(`{"session_id":"abc","transcript_path":"/t.jsonl","cwd":"/home/u/demo","hook_event_name":"SessionStart","source":"startup","model":"m"}`),
			hookEvent{Name: "SessionStart", CWD: "/home/u/demo", Source: "startup"}},
		"Codex": {strings.NewReader(`{"session_id":"1","cwd":"/w","hook_event_name":"SessionStart","source":"resume","permission_mode":"default","transcript_path":null}`),
			hookEvent{Name: "SessionStart", CWD: "/w", Source: "resume"}},
		"Gemini CLI": {strings.NewReader(`{"session_id":"2","transcript_path":"","cwd":"/g","hook_event_name":"SessionStart","timestamp":"2026-01-01T00:00:00Z","source":"clear"}`),
			hookEvent{Name: "SessionStart", CWD: "/g", Source: "clear"}},
		"another form":        {strings.NewReader(`{"hook_event_name":7,"cwd":"/x"}`), hookEvent{}},
		"garbage":             {strings.NewReader("\x00\xff{{{"), hookEvent{}},
		"half of it":          {strings.NewReader(`{"hook_event_name":"SessionSt`), hookEvent{}},
		"nothing":             {strings.NewReader(""), hookEvent{}},
		"nothing, and no end": {nil, hookEvent{}},
	} {
		inTime(t, what, tc.in, func(in io.Reader) {
			if got := readHook(context.Background(), in); got != tc.want {
				t.Errorf("%s: %+v", what, got)
			}
		})
	}
	if got := readHook(context.Background(), endless{t.Context()}); got != (hookEvent{}) {
		t.Errorf("without an end: %+v", got)
	}
}

func TestHookCommandsExitZeroInTime(t *testing.T) {
	t.Parallel()
	for what, f := range map[string]func(context.Context) error{
		"an error": func(context.Context) error { return errors.New("failed") },
		"a panic":  func(context.Context) error { panic("out of bounds") },
		"a hang":   func(context.Context) error { select {} },
		"a wait":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			if status := runOne(t, newInvocation().harmlessCommand("x", "", f)); status != exitOK {
				t.Errorf("it ends with %d", status)
			}
			if took := time.Since(began); took > 2*hookTime+overload.Late() {
				t.Errorf("it took %s", took)
			}
		})
	}
	never := func(context.Context) error { t.Error("it ran with wrong arguments"); return nil }
	for _, args := range [][]string{{"--no-such-flag"}, {"what"}, {"--config"}} {
		if status := runOne(t, newInvocation().harmlessCommand("x", "", never), args...); status != exitOK {
			t.Errorf("%q: %d", args, status)
		}
	}
}

// runOne runs one command as the program does, and returns its exit status.
func runOne(t *testing.T, c *cobra.Command, args ...string) int {
	t.Helper()
	root := group("doorward", "", c)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetArgs(append([]string{c.Name()}, args...))
	return report(root.ExecuteContextC(t.Context()))
}

func TestTheProjectIsThatOfTheDirectoryWhichTheClientClaims(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own, err := client.Namespace(".")
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := client.Namespace(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ given, dir, want string }{
		{"", dir, claimed}, {"mine", dir, "mine"}, {"Not Valid", dir, claimed}, {"", "relative", own}, {"", filepath.Join(dir, "gone"), own}, {"", "", own},
	} {
		if got := projectOf(tc.given, tc.dir); got != tc.want {
			t.Errorf("%q in %q: %q, want %q", tc.given, tc.dir, got, tc.want)
		}
	}
}

func TestExitStatusFollowsTheDeliveryState(t *testing.T) {
	t.Parallel()
	state := func(state string, valid bool) delivery {
		return delivery{Delivery: client.Delivery{State: state}, Valid: valid}
	}
	for _, tc := range []struct {
		d             delivery
		status, whole int
	}{
		{state("full", true), exitOK, exitOK},
		{state("degraded", true), exitOK, exitFailed},
		{state("refused", true), exitRefused, exitRefused},
		{state("degraded", false), exitRefused, exitRefused},
		{state("refused", false), exitRefused, exitRefused},
		{state("full", false), exitRefused, exitRefused}, // there is nothing to be had
	} {
		for full, want := range map[bool]int{false: tc.status, true: tc.whole} {
			var f *failure
			got := exitOK
			if err := verdict(tc.d, full); errors.As(err, &f) {
				got = f.status
			}
			if got != want {
				t.Errorf("%s, valid %v, full %v: %d, want %d", tc.d.State, tc.d.Valid, full, got, want)
			}
		}
	}
}

// registrar is a daemon that issues sessions and reports the state of delivery.
type registrar struct {
	socket string

	mu     sync.Mutex
	live   map[string]bool // tokens
	made   int
	asked  []client.SessionClaims
	status int // of POST /auth/session; 0: 201
	life   time.Duration
}

func newRegistrar(t *testing.T) *registrar {
	t.Helper()
	dir, err := os.MkdirTemp("", "dw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &registrar{socket: filepath.Join(dir, "s"), live: map[string]bool{}, life: 24 * time.Hour}
	l, err := net.Listen("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /auth/session", r.open)
	mux.HandleFunc("DELETE /auth/session", func(_ http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.live, q.Header.Get("Doorward-Session"))
	})
	mux.HandleFunc("GET /auth/status", func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		token := q.Header.Get("Doorward-Session")
		switch {
		case token == "":
			io.WriteString(w, `{"state":"degraded","reason":"no_token","store":"ok"}`)
		case r.live[token]:
			io.WriteString(w, `{"state":"full","scope":["structural"],"store":"ok","session_id":"0123456789abcdef"}`)
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	srv := &http.Server{Handler: mux}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return r
}

func (r *registrar) open(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var c client.SessionClaims
	_ = json.NewDecoder(q.Body).Decode(&c)
	r.asked = append(r.asked, c)
	if r.status != 0 {
		w.WriteHeader(r.status)
		return
	}
	r.made++
	id := strings.Repeat("0", 15) + string("0123456789abcdef"[r.made])
	token := "dws1.k.number-" + id + ".mac"
	r.live[token] = true
	w.WriteHeader(http.StatusCreated)
	json.NewEncoder(w).Encode(client.Session{Token: token, ID: id, Expires: time.Now().Add(r.life), Scope: []string{"structural"}})
}

func (r *registrar) alive() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.live)
}

// keeperAt returns the keeper for the session of one agent.
func (r *registrar) keeperAt(t *testing.T, dir, agent string) *sessionKeeper {
	t.Helper()
	c := client.New(r.socket, "test")
	t.Cleanup(c.Close)
	return &sessionKeeper{client: c, dir: dir, agent: peer.Process{Instance: "00000000-0000-0000-0000-000000000000/1@" + agent, Name: "agent"}}
}

func private0700(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func files(t *testing.T, dir string) int {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "sessions", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func TestAnAgentHasOneSessionHoweverOftenItStarts(t *testing.T) {
	t.Parallel()
	r, dir := newRegistrar(t), private0700(t)
	k := r.keeperAt(t, dir, "11")
	first, kept, err := k.ensure(t.Context(), "demo-1")
	if err != nil || kept != nil {
		t.Fatal(err, kept)
	}
	again, _, err := k.ensure(t.Context(), "demo-1") // resumed, cleared or compacted
	if err != nil || again.Token != first.Token || files(t, dir) != 1 {
		t.Errorf("%v; the same: %v; %d files", err, again.Token == first.Token, files(t, dir))
	}
	if want := (client.SessionClaims{Client: &client.ClientName{Name: "agent"}, Project: "demo-1", Bind: k.agent.Instance}); len(r.asked) != 1 || r.asked[0].Bind != want.Bind ||
		r.asked[0].Project != want.Project || *r.asked[0].Client != *want.Client {
		t.Errorf("asked %+v", r.asked)
	}
	other, _, err := r.keeperAt(t, dir, "22").ensure(t.Context(), "")
	if err != nil || other.Token == first.Token || files(t, dir) != 2 {
		t.Errorf("another agent: %v, with a session of its own: %v, %d files", err, other.Token != first.Token, files(t, dir))
	}
	if err := k.end(t.Context()); err != nil || files(t, dir) != 1 || r.alive() != 1 {
		t.Errorf("at its end: %v, %d files, %d sessions", err, files(t, dir), r.alive())
	}
}

func TestASessionThatIsOverIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	r, dir := newRegistrar(t), private0700(t)
	k := r.keeperAt(t, dir, "11")
	first, _, err := k.ensure(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	clear(r.live) // revoked
	r.life = enough / 2
	r.mu.Unlock()
	brief, _, err := k.ensure(t.Context(), "")
	if err != nil || brief.Token == first.Token || files(t, dir) != 1 {
		t.Errorf("%v, another: %v, %d files", err, brief.Token != first.Token, files(t, dir))
	}
	after, _, err := k.ensure(t.Context(), "")
	if err != nil || after.Token == brief.Token || files(t, dir) != 1 || r.alive() != 1 {
		t.Errorf("one that ends soon: %v, another: %v, %d files, %d sessions", err, after.Token != brief.Token, files(t, dir), r.alive())
	}
}

func TestASessionThatCannotBeStoredIsReported(t *testing.T) {
	t.Parallel()
	r, dir := newRegistrar(t), t.TempDir()
	if err := os.Symlink(t.TempDir(), filepath.Join(dir, "run")); err != nil {
		t.Fatal(err)
	}
	f, kept, err := r.keeperAt(t, filepath.Join(dir, "run"), "11").ensure(t.Context(), "")
	if err != nil || kept == nil || f.Token == "" {
		t.Errorf("%v, %v", kept, err)
	}
	r.status = 403
	if _, _, err := r.keeperAt(t, private0700(t), "11").ensure(t.Context(), ""); !isRefused(err) {
		t.Errorf("refused by policy: %v", err)
	}
}

func TestWithoutADaemonTheFileOfAnEndedSessionGoes(t *testing.T) {
	t.Parallel()
	r, dir := newRegistrar(t), private0700(t)
	k := r.keeperAt(t, dir, "11")
	if _, _, err := k.ensure(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	k.client = client.New(filepath.Join(dir, "none"), "test")
	if err := k.end(t.Context()); err != nil || files(t, dir) != 0 {
		t.Errorf("%v, %d files", err, files(t, dir))
	}
}

// The test sets environment variables, so it is not parallel.
func TestCheckNamesTheSourceOfItsToken(t *testing.T) {
	r, dir := newRegistrar(t), private0700(t)
	t.Setenv("DOORWARD_SOCKET", "")
	const mine, unknown = "dws1.k.of-the-environment.mac", "dws1.k.of-somebody-else.mac"
	r.live[mine] = true
	k := r.keeperAt(t, dir, "11")
	o := newInvocation()
	o.runtime = dir
	keep := func() {
		t.Helper()
		k.agent = peer.Process{} // a file without a binding is used by every process
		s, err := k.client.OpenSession(t.Context(), client.SessionClaims{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := credential.Write(dir, credential.File{Token: s.Token, SessionID: s.ID, Expires: s.Expires}); err != nil {
			t.Fatal(err)
		}
	}
	look := func(what, session, token, source, reason string, valid bool) {
		t.Helper()
		t.Setenv("DOORWARD_SESSION", session)
		t.Setenv("DOORWARD_TOKEN", token)
		d, err := guidance{o}.delivery(t.Context(), k.client)
		if err != nil || d.Source != source || d.Valid != valid || d.Reason != reason || d.State == "" {
			t.Errorf("%s: %+v, %v", what, d, err)
		}
		text, _ := plainJSON(d)
		if strings.Contains(deliveryText(d)+text, "dws1") || strings.Contains(text, "tiny-one") {
			t.Errorf("%s: a token is shown: %s", what, text)
		}
	}
	look("nothing", "", "", "", "no_token", false)
	keep()
	look("a file", "", "", "session file", "", true)
	look("the environment before it", mine, unknown, "DOORWARD_SESSION", "", true)
	look("the other variable", "", mine, "DOORWARD_TOKEN", "", true)
	look("one that is not accepted any more", unknown, mine, "DOORWARD_SESSION", "expired", false)
	look("one that never was a session's", "", "a-token-of-a-listener", "DOORWARD_TOKEN", "no_token", false)
	look("one that is too short", "tiny-one", mine, "DOORWARD_SESSION", "no_token", false)
}

func TestARefusalOfDeliverySaysWhatToDo(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err    error
		status int
		say    string
	}{
		{&client.Problem{Status: 403, Code: "agent_shell", Why: admin.WhyAgent}, exitRefused, "by a registered agent"},
		{&client.Problem{Status: 403, Code: "agent_shell", Why: admin.WhyUnknown}, exitRefused, "not all processes above"},
		{&client.Problem{Status: 403, Code: "not_permitted", Ref: 9}, exitRefused, "audit record 9"},
		{&client.Problem{Status: 401, Code: "unauthenticated"}, exitRefused, "could not authenticate"},
		{&client.Problem{Status: 404}, exitFailed, "older than this command"},
		{&client.Problem{Status: 404, Code: "not_found"}, exitFailed, "no such document"},
		{&client.Problem{Status: 409, Code: "conflict", Detail: "no earlier"}, exitFailed, "no earlier"},
		{&client.Problem{Status: 409, Code: "remote_store"}, exitFailed, "another Doorward"},
		{&client.Problem{Status: 422, Code: "invalid_document", Problems: []client.DocumentProblem{{File: "voice.md", Line: 3, Text: "no \x1b[2J"}}}, exitFailed, `voice.md:3: no \u001b[2J`},
		{&client.Problem{Status: 429, Code: "rate_limited"}, exitFailed, "too many"},
		{&client.Problem{Status: 418, Code: "something_new"}, exitFailed, "something_new"},
		{&client.Problem{Status: 500}, exitFailed, "500"},
	} {
		err := deliveryFailure(tc.err)
		var f *failure
		if !errors.As(err, &f) || f.status != tc.status || !strings.Contains(err.Error(), tc.say) {
			t.Errorf("%v: %v", tc.err, err)
		}
	}
	if err := deliveryFailure(client.ErrNoDaemon); !errors.Is(err, client.ErrNoDaemon) {
		t.Errorf("without a daemon: %v", err)
	}
	if deliveryFailure(nil) != nil {
		t.Error("nothing is a failure")
	}
}

// The output of a hook contains no token, because it reaches a model or a log.
func TestASessionsStartPrintsNothingSecret(t *testing.T) {
	t.Parallel()
	f := credential.File{Token: "dws1.SECRET", SessionID: "0123456789abcdef", Expires: time.Now().Add(time.Hour)}
	full := client.Delivery{State: "full", Store: "ok", Scope: []string{"structural"}}
	for _, tc := range []struct {
		what  string
		event hookEvent
		json  bool
		d     client.Delivery
		want  string
	}{
		{"a client", hookEvent{Name: "SessionStart"}, false, full, guidanceText},
		{"a client that gets no guidance", hookEvent{Name: "SessionStart"}, false, client.Delivery{State: "degraded", Store: "ok"}, ""},
		{"a client, and there is none", hookEvent{Name: "SessionStart"}, true, client.Delivery{State: "full", Store: "unused"}, ""},
		{"another event", hookEvent{Name: "Stop"}, true, full, ""},
		{"a person", hookEvent{}, false, full, ""},
		{"a script", hookEvent{}, true, full, `"session_id":"0123456789abcdef"`},
	} {
		var out bytes.Buffer
		o := newInvocation()
		o.json = tc.json
		err := guidance{o}.started(&out, tc.event, f, tc.d)
		if got := out.String(); err != nil || tc.want == "" && got != "" || !strings.Contains(got, tc.want) || strings.Contains(got, "SECRET") {
			t.Errorf("%s: %q, %v", tc.what, got, err)
		}
	}
}
