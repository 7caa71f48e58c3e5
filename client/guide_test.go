package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/credential"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/overload"
)

// keeper is a daemon that only issues sessions, with a server that answers everything.
type keeper struct {
	t      *testing.T
	socket string

	mu       sync.Mutex
	listener net.Listener
	server   *http.Server
	good     map[string]bool
	made     int
	asked    []string // bodies of POST /auth/session
	ended    []string // tokens
	renewed  []string
	seen     []string // METHOD rpc-method token, of requests to MCP routes
	status   int      // of POST /auth/session; 0: 201
	hang     bool     // it is not answered
	life     time.Duration
	fresh    time.Duration // until the token is to be renewed; 0: its life
	deny     string        // reason that calls without a token are refused with
	nobody   bool          // no token is ever good
	spent    bool          // renewal gives no longer life
	closed   bool          // renewal is refused: policy gives less than the session has
	stay     bool          // DELETE /auth/session is not answered
	failures int           // of POST /auth/session before it works
	opened   int           // sessions
	slow     time.Duration // between the head of a listen's stream and its acknowledgement
	full     int           // further listens that are refused
	short    int           // further listens that end once they are acknowledged
	polite   bool          // these get a result when they end

	forgot bool                                    // the first MCP session is not known
	refuse func(w http.ResponseWriter, id wire.ID) // answers initialize; nil: it is not refused
	greets []time.Time                             // when initialize came
	over   chan struct{}                           // closed when standalone streams end
	shut   string                                  // a method that is answered with an error
	news   chan string                             // methods of notifications on a standalone stream
	begun  int                                     // standalone streams, those that have ended included
	gets   int                                     // standalone streams that have not ended
}

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	dir, err := os.MkdirTemp("", "dw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	k := &keeper{t: t, socket: filepath.Join(dir, "s"), good: map[string]bool{}, life: time.Hour, over: make(chan struct{}), news: make(chan string)}
	k.serve()
	return k
}

// serve runs it until the test ends.
func (k *keeper) serve() {
	l, err := net.Listen("unix", k.socket)
	if err != nil {
		k.t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /auth/session", k.open)
	mux.HandleFunc("POST /auth/session/renew", k.renew)
	mux.HandleFunc("DELETE /auth/session", k.end)
	mux.HandleFunc("/mcp", k.mcp)
	mux.HandleFunc("/mcp/{server}", k.mcp)
	srv := &http.Server{Handler: mux}
	go srv.Serve(l)
	k.t.Cleanup(func() { srv.Close() })
	k.with(func() { k.listener, k.server = l, srv })
}

// busy makes it accept no connection for a time. Those that are open have no further request.
func (k *keeper) busy(d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listener.Close()
	k.server.SetKeepAlivesEnabled(false)
	time.AfterFunc(d, k.serve)
}

func (k *keeper) open(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, string(body))
	if k.hang {
		k.mu.Unlock()
		<-r.Context().Done()
		k.mu.Lock()
		return
	}
	if k.failures > 0 {
		k.failures--
		problem(w, http.StatusServiceUnavailable, "unavailable")
		return
	}
	if k.status != 0 {
		problem(w, k.status, "some_code")
		return
	}
	k.opened++
	k.issue(w, http.StatusCreated)
}

func problem(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"type":"about:blank","title":"x","status":%d,"code":%q}`, status, code)
}

func (k *keeper) issue(w http.ResponseWriter, status int) {
	k.made++
	token := fmt.Sprintf("dws1.k.token-number-%d.mac", k.made)
	k.good[token] = !k.nobody
	fresh := k.fresh
	if fresh == 0 {
		fresh = k.life
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"token": token, "session_id": fmt.Sprintf("%016x", k.opened), "scope": []string{"behavioural"},
		"expires": time.Now().Add(k.life).UTC().Format(time.RFC3339Nano), "refresh_after": time.Now().Add(fresh).UTC().Format(time.RFC3339Nano)})
}

func (k *keeper) renew(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	token := r.Header.Get(protocol.HeaderSession)
	k.renewed = append(k.renewed, token)
	if !k.good[token] {
		problem(w, http.StatusUnauthorized, "unauthenticated")
		return
	}
	if k.closed {
		problem(w, http.StatusForbidden, "not_permitted")
		return
	}
	if !k.spent {
		k.life += time.Hour
	}
	k.fresh = k.life
	k.issue(w, http.StatusOK)
}

func (k *keeper) end(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = append(k.ended, r.Header.Get(protocol.HeaderSession))
	if k.stay {
		k.mu.Unlock()
		<-r.Context().Done()
		k.mu.Lock()
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (k *keeper) mcp(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m, _ := wire.Parse(body, wire.FromClient)
	token := strings.Join(r.Header[protocol.HeaderSession], ",")
	k.mu.Lock()
	k.seen = append(k.seen, strings.TrimSpace(r.Method+" "+m.Method+" "+token))
	bad, deny := token != "" && !k.good[token], k.deny
	unknown, refuse := k.forgot && r.Header.Get("Mcp-Session-Id") == firstID, k.refuse
	shut := m.Method != "" && m.Method == k.shut
	if m.Method == "initialize" {
		k.greets = append(k.greets, time.Now())
	}
	k.mu.Unlock()
	switch {
	case strings.HasSuffix(m.Method, "/lost"):
		panic(http.ErrAbortHandler)
	case strings.HasSuffix(m.Method, "/refused"):
		http.Error(w, token, http.StatusForbidden)
	case bad:
		w.WriteHeader(http.StatusUnauthorized)
	case unknown:
		w.WriteHeader(http.StatusNotFound)
	case refuse != nil && m.Method == "initialize":
		refuse(w, m.ID)
	case shut:
		refusesWith(http.StatusOK, -32602, "Resource not found")(w, m.ID)
	case m.Method == "subscriptions/listen":
		k.listen(w, r, &m)
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		k.with(func() { k.begun, k.gets = k.begun+1, k.gets+1 })
		defer k.with(func() { k.gets-- })
		for over := false; !over; {
			select {
			case <-r.Context().Done():
				over = true
			case <-k.over:
				over = true
			case method := <-k.news:
				fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":%q}\n\n", method)
				w.(http.Flusher).Flush()
			}
		}
	case r.Method == http.MethodDelete || m.Kind != wire.Request:
		w.WriteHeader(http.StatusAccepted)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.Write(k.answer(w, &m, token == "" && deny != "", deny))
	}
}

func (k *keeper) answer(w http.ResponseWriter, m *wire.Message, refuse bool, deny string) []byte {
	switch {
	case refuse:
		data := []byte(`{"ref":1}`)
		if deny != "policy" {
			data = []byte(`{"ref":1,"reason":"` + deny + `"}`)
		}
		return rawjson.AppendError(nil, m.ID, &wire.Error{Code: codeDenied, Message: "Refused", Data: data})
	case m.Method == "initialize":
		w.Header().Set("Mcp-Session-Id", k.sessionID())
		return rawjson.AppendResult(nil, m.ID, []byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{}},"serverInfo":{"name":"s","version":"1"}}`))
	}
	return rawjson.AppendResult(nil, m.ID, []byte(`{"method":"`+m.Method+`"}`))
}

// Ids of the MCP sessions before and after the keeper has forgotten the first.
const (
	firstID  = "AAAAAAAAAAAAAAAAAAAAAA"
	secondID = "BBBBBBBBBBBBBBBBBBBBBB"
)

func (k *keeper) sessionID() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.forgot {
		return secondID
	}
	return firstID
}

// with calls f under the lock of the keeper.
func (k *keeper) with(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

func (k *keeper) requests() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.seen)
}

func (k *keeper) asks() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.asked)
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	doortest.Until(t, 20*time.Second, what, done)
}

func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

// stdio is a client at a shim with its own client of the daemon.
type stdio struct {
	client *Client
	t      *testing.T
	in     io.WriteCloser
	out    *bufio.Scanner
	pipe   *io.PipeReader // below out
	over   func()         // ends the input and waits for the shim
}

func shimAt(t *testing.T, k *keeper, o *GuideOptions) *stdio {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c := New(k.socket, "test")
	log := slog.New(slog.DiscardHandler)
	if o != nil {
		c.Guide(*o)
		if o.Log != nil {
			log = o.Log
		}
	}
	done := make(chan error, 1)
	go func() {
		err := Connect(context.Background(), c, ConnectOptions{In: inR, Out: outW, Log: log})
		c.Close()
		outW.Close()
		done <- err
	}()
	var once sync.Once
	s := &stdio{t: t, client: c, in: inW, out: bufio.NewScanner(outR), pipe: outR}
	s.over = func() {
		once.Do(func() {
			inW.Close()
			if err := <-done; err != nil {
				t.Errorf("the shim ended with %v", err)
			}
		})
	}
	t.Cleanup(s.over)
	return s
}

// says sends one message; hear waits for the next line, for a minute.
func (s *stdio) says(line string) { fmt.Fprintln(s.in, line) }

func (s *stdio) hear() string {
	s.t.Helper()
	limit := time.AfterFunc(time.Minute, func() { s.pipe.CloseWithError(errors.New("nothing came in a minute")) })
	defer limit.Stop()
	if !s.out.Scan() {
		s.t.Fatalf("no more lines: %v", s.out.Err())
	}
	return s.out.Text()
}

const (
	lineInit   = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a-client","version":"7"}}}`
	lineReady  = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	lineModern = `{"jsonrpc":"2.0","id":%d,"method":"%s","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"a-client","version":"7"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	first      = "dws1.k.token-number-1.mac"
	second     = "dws1.k.token-number-2.mac"
)

func modernLine(id int, method string) string { return fmt.Sprintf(lineModern, id, method) }

func (k *keeper) has(line string) bool { return slices.Contains(k.requests(), line) }

func TestTheShimBearsItsTokenOnEveryRequestOfBothErasAndEndsIt(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := shimAt(t, k, &GuideOptions{Ask: true, Project: "demo-00112233"})
	s.says(lineInit)
	s.hear()
	s.says(lineReady)
	s.says(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	s.hear()
	s.says(modernLine(3, "server/discover"))
	s.hear()
	until(t, "the standalone stream is open", func() bool { return k.has("GET  " + first) })
	s.over()
	for _, want := range []string{"POST initialize " + first, "POST notifications/initialized " + first, "POST tools/list " + first,
		"POST server/discover " + first, "GET  " + first, "DELETE  " + first} {
		if !k.has(want) {
			t.Errorf("%q is not among %q", want, k.requests())
		}
	}
	for _, got := range k.requests() {
		if !strings.HasSuffix(got, " "+first) {
			t.Errorf("%q bears no token", got)
		}
	}
	k.with(func() {
		if want := []string{`{"client":{"name":"a-client","version":"7"},"project":"demo-00112233"}`}; !slices.Equal(k.asked, want) {
			t.Errorf("asked with %q", k.asked)
		}
		if !slices.Equal(k.ended, []string{first}) {
			t.Errorf("ended %q", k.ended)
		}
	})
}

// A client reads the same bytes whether its token is issued, refused, expired or unknown.
func TestAClientReadsTheSameInEveryStateOfItsToken(t *testing.T) {
	t.Parallel()
	converse := func(o *GuideOptions, set func(*keeper)) []string {
		k := newKeeper(t)
		set(k)
		s := shimAt(t, k, o)
		var lines []string
		for i, line := range []string{lineInit, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, modernLine(3, "server/discover"), modernLine(4, "tools/call"), "{nonsense"} {
			s.says(line)
			lines = append(lines, s.hear())
			if i == 0 {
				s.says(lineReady)
			}
		}
		s.over()
		return lines
	}
	want := converse(nil, func(*keeper) {})
	for what, set := range map[string]func(*keeper){
		"a token":                    func(*keeper) {},
		"no such routes":             func(k *keeper) { k.status = 404 },
		"refused by policy":          func(k *keeper) { k.status = 403 },
		"too many":                   func(k *keeper) { k.status = 429 },
		"a store that is broken":     func(k *keeper) { k.status = 503 },
		"tokens that are never good": func(k *keeper) { k.nobody = true },
		"a life in the past":         func(k *keeper) { k.life = -time.Hour },
	} {
		if got := converse(&GuideOptions{Ask: true}, set); !slices.Equal(got, want) {
			t.Errorf("%s: the client reads %q, want %q", what, got, want)
		}
	}
	if got := converse(&GuideOptions{Ask: true, Env: env(EnvSession, "a-token-that-nobody-knows")}, func(*keeper) {}); !slices.Equal(got, want) {
		t.Errorf("with a bad token of the environment: %q", got)
	}
}

func TestARefusedTokenIsReplacedOnce(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := shimAt(t, k, &GuideOptions{Ask: true})
	s.says(modernLine(1, "tools/list"))
	s.hear()
	k.with(func() { clear(k.good) }) // the keys were lost
	s.says(modernLine(2, "tools/call"))
	s.hear()
	want := []string{"POST tools/list " + first, "POST tools/call " + first, "POST tools/call " + second}
	if got := k.requests(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestASecondRefusalMeansNoTokenAndNoFurtherQuestion(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	k.nobody = true
	s := shimAt(t, k, &GuideOptions{Ask: true})
	for i := range 3 {
		s.says(modernLine(i, "tools/list"))
		s.hear()
	}
	want := []string{"POST tools/list " + first, "POST tools/list " + second, "POST tools/list", "POST tools/list", "POST tools/list"}
	if got := k.requests(); !slices.Equal(got, want) || k.asks() != 2 {
		t.Errorf("%d questions, %q, want %q", k.asks(), got, want)
	}
}

func TestADaemonThatHasDecidedIsAskedOnce(t *testing.T) {
	t.Parallel()
	for _, status := range []int{404, 403, 401, 429, 400, 201} {
		k := newKeeper(t)
		if k.status = status; status == 201 { // a session that is over already
			k.status, k.life = 0, -time.Hour
		}
		s := shimAt(t, k, &GuideOptions{Ask: true})
		for i := range 3 {
			s.says(modernLine(i, "tools/list"))
			s.hear()
		}
		if k.asks() != 1 || !slices.Equal(k.requests(), []string{"POST tools/list", "POST tools/list", "POST tools/list"}) {
			t.Errorf("%d: %d questions, %q", status, k.asks(), k.requests())
		}
	}
}

func TestAFailureThatMayPassIsTriedAgainAtOnce(t *testing.T) {
	t.Parallel()
	for failures := 1; failures <= 4; failures++ {
		k := newKeeper(t)
		k.failures = failures
		s := shimAt(t, k, &GuideOptions{Ask: true})
		s.says(modernLine(1, "tools/list"))
		s.hear()
		want, asks := []string{"POST tools/list " + first}, failures+1
		if failures == 4 {
			want, asks = []string{"POST tools/list"}, 4
		}
		if got := k.requests(); !slices.Equal(got, want) || k.asks() != asks {
			t.Errorf("after %d failures and %d questions: %q", failures, k.asks(), got)
		}
	}
}

func TestADaemonThatHangsHoldsUpOneRequestForTwoSecondsAtMost(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	k.hang = true
	s := shimAt(t, k, &GuideOptions{Ask: true})
	began := time.Now()
	s.says(modernLine(1, "server/discover"))
	s.hear()
	if took := time.Since(began); took < askBudget || took > fetchBudget+time.Second+overload.Late() {
		t.Errorf("the first took %s", took)
	}
	began = time.Now()
	for i := range 5 {
		s.says(modernLine(i, "tools/list"))
		s.hear()
	}
	if took := time.Since(began); took > askBudget+overload.Late() || k.asks() != 1 {
		t.Errorf("the others took %s, with %d questions", took, k.asks())
	}
}

// TestARequestBehindDoesNotWaitForAToken: with Behind the session is opened in the
// background, so no request waits, even for a daemon that hangs. A token is used once it
// has come.
func TestARequestBehindDoesNotWaitForAToken(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	k.hang = true
	c := New(k.socket, "test")
	c.Guide(GuideOptions{Ask: true, Behind: true})
	defer c.Close()
	began := time.Now()
	if _, err := c.Request(t.Context(), "notes", "tools/list", nil); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > askBudget/2+overload.Late() {
		t.Errorf("it took %s", took)
	}
	k.with(func() { k.hang = false })
	until(t, "a token", func() bool {
		c.guide.mu.Lock()
		c.guide.again = time.Time{} // the pause after the failure is over
		c.guide.mu.Unlock()
		if _, err := c.Request(t.Context(), "notes", "tools/list", nil); err != nil {
			t.Fatal(err)
		}
		return k.has("POST tools/list " + first)
	})
}

func TestConcurrentRequestsOpenOneSession(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	c := New(k.socket, "test")
	c.Guide(GuideOptions{Ask: true})
	defer c.Close()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := c.Request(t.Context(), "", "tools/list", nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, got := range k.requests() {
		if got != "POST tools/list "+first {
			t.Errorf("%q", got)
		}
	}
	if k.asks() != 1 {
		t.Errorf("%d questions", k.asks())
	}
}

func TestTheEnvironmentsTokenComesFirstAndHasNoSuccessor(t *testing.T) {
	t.Parallel()
	const session, token = "dws1.k.of-the-session.mac", "a-bearer-token-of-a-listener"
	for _, tc := range []struct {
		what   string
		env    []string
		good   string
		wanted []string // tokens of the two requests
	}{
		{"the session's variable before the other", []string{EnvSession, session, EnvToken, token}, session, []string{session, session}},
		{"the other alone", []string{EnvSession, " ", EnvToken, token + "\n"}, token, []string{token, token}},
		{"one that is refused", []string{EnvSession, session, EnvToken, token}, token, []string{session, "", ""}},
		{"one that is too short", []string{EnvSession, "short", EnvToken, token}, token, []string{"", ""}},
		{"one that no header can carry", []string{EnvToken, "a-token-with\na-line-end-in-it"}, "", []string{"", ""}},
		{"one that is too long", []string{EnvToken, strings.Repeat("x", 100000)}, "", []string{"", ""}},
	} {
		k := newKeeper(t)
		k.good[tc.good] = true
		run := t.TempDir()
		keep(t, run, "dws1.k.of-a-file.mac", time.Hour)
		s := shimAt(t, k, &GuideOptions{Ask: true, Env: env(tc.env...), RuntimeDir: run})
		for i := range 2 {
			s.says(modernLine(i, "tools/list"))
			s.hear()
		}
		s.over()
		var want []string
		for _, w := range tc.wanted {
			want = append(want, strings.TrimSpace("POST tools/list "+w))
		}
		if got := k.requests(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", tc.what, got, want)
		}
		if k.asks() != 0 || len(k.ended) != 0 {
			t.Errorf("%s: %d sessions asked for, %q ended", tc.what, k.asks(), k.ended)
		}
	}
}

// keep writes a session file.
func keep(t *testing.T, run, token string, life time.Duration) {
	t.Helper()
	if err := os.Chmod(run, 0o700); err != nil {
		t.Fatal(err)
	}
	f := credential.File{Token: token, SessionID: "00112233445566ff", Expires: time.Now().Add(life)}
	if _, err := credential.Write(run, f); err != nil {
		t.Fatal(err)
	}
}

func TestASessionFileIsUsedWhenTheDaemonIsUnavailable(t *testing.T) {
	t.Parallel()
	const token = "dws1.k.of-a-file.mac"
	for _, tc := range []struct {
		status int
		good   bool
		want   []string
	}{
		{503, true, []string{"POST tools/list " + token, "POST tools/list " + token}},
		{429, true, []string{"POST tools/list " + token, "POST tools/list " + token}},
		{404, true, []string{"POST tools/list", "POST tools/list"}},
		{403, true, []string{"POST tools/list", "POST tools/list"}},
		{503, false, []string{"POST tools/list " + token, "POST tools/list", "POST tools/list"}},
	} {
		k := newKeeper(t)
		k.status, k.good[token] = tc.status, tc.good
		run := t.TempDir()
		keep(t, run, token, time.Hour)
		s := shimAt(t, k, &GuideOptions{Ask: true, RuntimeDir: run})
		for i := range 2 {
			s.says(modernLine(i, "tools/list"))
			s.hear()
		}
		s.over()
		if got := k.requests(); !slices.Equal(got, tc.want) {
			t.Errorf("%d: %q, want %q", tc.status, got, tc.want)
		}
		if len(k.ended) != 0 {
			t.Errorf("%d: the token %q, which the client did not request, was ended", tc.status, k.ended)
		}
	}
}

func TestATokenIsRenewedBesideTheRequests(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	k.fresh = time.Millisecond
	c := New(k.socket, "test")
	c.Guide(GuideOptions{Ask: true})
	until(t, "the next token is used", func() bool {
		if _, err := c.Request(t.Context(), "", "tools/list", nil); err != nil {
			t.Fatal(err)
		}
		return k.has("POST tools/list " + second)
	})
	c.Close()
	k.with(func() {
		if len(k.asked) != 1 || !slices.Equal(k.renewed, []string{first}) || !slices.Equal(k.ended, []string{second}) {
			t.Errorf("%d asked, renewed %q, ended %q", len(k.asked), k.renewed, k.ended)
		}
	})
}

// A session that renewal no longer prolongs is replaced by a new one. A daemon prolongs a
// session for its first day only.
func TestASessionAtItsEndIsFollowedByANewOne(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	k.fresh, k.spent = time.Millisecond, true
	c := New(k.socket, "test")
	c.Guide(GuideOptions{Ask: true})
	defer c.Close()
	until(t, "the token of a new session is used", func() bool {
		if _, err := c.Request(t.Context(), "", "tools/list", nil); err != nil {
			t.Fatal(err)
		}
		return k.has("POST tools/list dws1.k.token-number-3.mac")
	})
	k.with(func() {
		if len(k.asked) != 2 || len(k.renewed) != 1 {
			t.Errorf("asked %d times, renewed %d times", len(k.asked), len(k.renewed))
		}
	})
}

func TestASessionThatMayNotBeRenewedIsFollowedByANewOne(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	k.fresh, k.closed = time.Millisecond, true
	c := New(k.socket, "test")
	c.Guide(GuideOptions{Ask: true})
	defer c.Close()
	until(t, "the token of a new session is used", func() bool {
		if _, err := c.Request(t.Context(), "", "tools/list", nil); err != nil {
			t.Fatal(err)
		}
		return k.has("POST tools/list " + second)
	})
	if k.has("POST tools/list") {
		t.Error("a request went without a token")
	}
}

// After a failure, requests do not wait for further attempts. The token is used once an
// attempt succeeds.
func TestAfterAFailureAttemptsAreMadeBesideTheRequests(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	k.status = 403
	c := New(k.socket, "test")
	c.Guide(GuideOptions{Ask: true})
	defer c.Close()
	request := func() time.Duration {
		began := time.Now()
		if _, err := c.Request(t.Context(), "", "tools/list", nil); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	later := func() { // the pause is over
		c.guide.mu.Lock()
		defer c.guide.mu.Unlock()
		c.guide.again = time.Now().Add(-time.Second)
	}
	request()
	k.with(func() { k.status, k.hang = 0, true })
	later()
	if took := request(); took > askBudget/2+overload.Late() {
		t.Errorf("it took %s", took)
	}
	until(t, "the attempt is over", func() bool {
		c.guide.mu.Lock()
		defer c.guide.mu.Unlock()
		return c.guide.try == nil
	})
	k.with(func() { k.hang = false })
	later()
	until(t, "a token", func() bool { request(); return k.has("POST tools/list " + first) })
}

func TestAnIdleShimGetsANewTokenForItsNextRequest(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	s := shimAt(t, k, &GuideOptions{Ask: true})
	s.says(modernLine(1, "tools/list"))
	s.hear()
	s.client.guide.mu.Lock()
	s.client.guide.held.expires = time.Now() // its life is over
	s.client.guide.mu.Unlock()
	s.says(modernLine(2, "tools/call"))
	s.hear()
	if got := k.requests(); !slices.Equal(got, []string{"POST tools/list " + first, "POST tools/call " + second}) {
		t.Errorf("%q", got)
	}
}

func TestACommandGetsASessionOnlyWhenItIsRefusedForWantOfOne(t *testing.T) {
	t.Parallel()
	const token = "dws1.k.of-the-session.mac"
	for _, tc := range []struct {
		what   string
		reason string // of the refusal; policy: none is given
		env    []string
		asks   int
		ok     bool
	}{
		{"no refusal", "", nil, 0, true},
		{"no token", "no_token", nil, 1, true},
		{"expired", "expired", nil, 1, true},
		{"store", "store_unreachable", nil, 1, true},
		{"not permitted", "not_permitted", nil, 1, true},
		{"refused by policy", "policy", nil, 0, false},
		{"a good token of the environment", "no_token", []string{EnvSession, token}, 0, true},
		{"a bad token of the environment", "no_token", []string{EnvSession, token + "x"}, 0, false},
		{"an unusable one", "no_token", []string{EnvSession, "x"}, 0, false},
	} {
		k := newKeeper(t)
		k.deny, k.good[token] = tc.reason, true
		c := New(k.socket, "test")
		c.Guide(GuideOptions{Env: env(tc.env...)})
		_, err := c.Request(t.Context(), "notes", "tools/call", []byte(`{"name":"x"}`))
		var rpc *RPCError
		if tc.ok && err != nil || !tc.ok && (!errors.As(err, &rpc) || rpc.Code != codeDenied) {
			t.Errorf("%s: %v", tc.what, err)
		}
		c.Close()
		if k.asks() != tc.asks || len(k.ended) != tc.asks {
			t.Errorf("%s: %d sessions, %d ended", tc.what, k.asks(), len(k.ended))
		}
	}
}

func TestWithoutADaemonARequestFailsAtOnce(t *testing.T) {
	t.Parallel()
	c := New(filepath.Join(t.TempDir(), "none"), "test")
	c.Guide(GuideOptions{Ask: true})
	defer c.Close()
	began := time.Now()
	if _, err := c.Request(t.Context(), "", "tools/list", nil); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > time.Second+overload.Late() {
		t.Errorf("it took %s", took)
	}
}

// The first request waits for a daemon that starts late, and then carries a token.
func TestADaemonThatComesLateIsAskedForAToken(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	late := &keeper{t: t, socket: k.socket + "2", good: map[string]bool{}, life: time.Hour}
	s := shimAt(t, late, &GuideOptions{Ask: true})
	s.says(lineInit)
	time.Sleep(200 * time.Millisecond) // meanwhile the shim finds no socket, which the test cannot observe
	late.serve()
	s.hear()
	if got := late.requests(); len(got) != 1 || got[0] != "POST initialize "+first {
		t.Errorf("%q", got)
	}
}

func TestTheEndDoesNotWaitForADaemonThatHangs(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	k.stay = true
	c := New(k.socket, "test")
	c.Guide(GuideOptions{Ask: true})
	if _, err := c.Request(t.Context(), "", "tools/list", nil); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c.Close()
	if took := time.Since(began); took < endBudget || took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	k.with(func() {
		if !slices.Equal(k.ended, []string{first}) {
			t.Errorf("ended %q", k.ended)
		}
	})
}

func TestNoPartOfATokenIsLogged(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var text strings.Builder
	w := writerFunc(func(p []byte) (int, error) { mu.Lock(); defer mu.Unlock(); return text.Write(p) })
	log := slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, vars := range [][]string{nil, {EnvSession, "dws1.SECRET-of-the-environment"}, {EnvSession, "SECRET"}, {EnvToken, "SECRET\x01 and a control character"}} {
		k := newKeeper(t)
		k.nobody = true
		s := shimAt(t, k, &GuideOptions{Ask: true, Env: env(vars...), Log: log})
		for _, method := range []string{"notifications/lost", "notifications/refused"} {
			s.says(strings.Replace(modernLine(0, method), `"id":0,`, "", 1))
		}
		for id, method := range []string{"test/lost", "test/refused", "tools/list"} {
			s.says(modernLine(id, method))
			s.hear()
		}
		s.over()
	}
	mu.Lock()
	defer mu.Unlock()
	if strings.Contains(text.String(), "SECRET") || strings.Contains(text.String(), "token-number") {
		t.Errorf("the log says %q", text.String())
	}
	for _, said := range []string{"the environment's token is not used", "the environment's token was refused", "request lost", "notification not delivered", "notification refused"} {
		if !strings.Contains(text.String(), said) {
			t.Errorf("the log does not say %q: %q", said, text.String())
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
