package relay

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/process"
)

// script is an MCP server that a test plays: behind the standard streams of a
// real child process, or on a real HTTP socket. The handshakes, lists and
// subscriptions are answered here; the rest is what the test says.
type script struct {
	t     *testing.T
	name  string
	kind  string // stdio, http or sse
	era   string // legacy, modern or both
	caps  string
	lists map[string]string // results of requests by method
	// serve answers a request that nothing above does; nil: it echoes params.
	serve func(q *query)
	// refuse answers a handshake in its place when it returns true.
	refuse func(q *query) bool
	// status refuses a POST with a bare HTTP status; 0: it does not.
	status func(q *query) int
	// onListen is what a listen honours; "" refuses it. nil: what it asks for.
	onListen func(q *query) string
	// onNotification is told of what wants no answer.
	onNotification func(q *query)
	proceed        chan struct{} // what arrive waits for

	address string // of the socket, or the URL
	mu      sync.Mutex
	seen    []*query
	conns   []*conn
	opened  int
}

const allCaps = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"logging":{},"completions":{}}`

// stdio starts a script behind children.
func stdio(t *testing.T, name, era string) *script {
	return play(t, &script{t: t, name: name, kind: "stdio", era: era, caps: allCaps})
}

// web starts a script on an HTTP socket.
func web(t *testing.T, name, era string) *script {
	return play(t, &script{t: t, name: name, kind: "http", era: era, caps: allCaps})
}

func play(t *testing.T, s *script) *script {
	t.Helper()
	s.proceed = make(chan struct{})
	s.lists = map[string]string{
		"tools/list":               `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`,
		"prompts/list":             `{"prompts":[{"name":"greet"}]}`,
		"resources/list":           `{"resources":[{"uri":"file:///a b","name":"a"}]}`,
		"resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"file:///{p}","name":"p"}]}`,
	}
	switch s.kind {
	case "http":
		s.startWeb()
	case "sse":
		s.startEvents()
	default:
		s.startPipe()
	}
	return s
}

// server is the script as the relay is configured with it.
func (s *script) server(change ...func(*Server, *upstream.Definition)) Server {
	s.t.Helper()
	def := upstream.Definition{Name: s.name, Kind: s.kind, AllowPrivate: true, Timeout: 30 * time.Second}
	if s.kind != "stdio" {
		def.URL = s.address
	} else {
		def.Path, def.Args, def.Env = self(s.t), []string{"pump", s.address}, []string{"GORACE=" + os.Getenv("GORACE")}
	}
	r := Server{Name: s.name, Kind: s.kind, Instances: "auto", Protocol: "auto"}
	for _, f := range change {
		f(&r, &def)
	}
	up, err := upstream.New(def, upstream.Deps{Runner: runner(s.t), Log: slog.New(slog.DiscardHandler), ClientInfo: []byte(`{"name":"doorward","version":"test"}`)})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(up.Close)
	r.Upstream = up
	return r
}

func instances(kind string) func(*Server, *upstream.Definition) {
	return func(s *Server, _ *upstream.Definition) { s.Instances = kind }
}

var sharedRunner = sync.OnceValues(func() (*process.Runner, error) {
	return process.NewRunner(process.Options{Max: -1, Stdin: 300 * time.Millisecond, Term: 300 * time.Millisecond})
})

func runner(t testing.TB) *process.Runner {
	t.Helper()
	r, err := sharedRunner()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func self(t testing.TB) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// conn is one connection of the script: a child, a legacy HTTP session, or one
// for all of modern HTTP.
type conn struct {
	s       *script
	n       int
	session string
	say     func(msg []byte) // outside of any request
	close   func()
	done    chan struct{}

	mu      sync.Mutex
	asks    int
	answers map[string]chan string
	listens []*query
	calls   map[*query]context.CancelFunc
}

func (s *script) connect(session string, say func([]byte), closing func()) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	c := &conn{s: s, n: s.opened, session: session, say: say, close: closing, done: make(chan struct{}),
		answers: make(map[string]chan string), calls: make(map[*query]context.CancelFunc)}
	s.conns = append(s.conns, c)
	return c
}

func (s *script) gone(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, x := range s.conns {
		if x == c {
			s.conns = append(s.conns[:i], s.conns[i+1:]...)
			close(c.done)
			return
		}
	}
}

// open are the connections now, oldest first.
func (s *script) open() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*conn(nil), s.conns...)
}

// connected is how many connections there have ever been.
func (s *script) connected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

// query is one message of Doorward's, and the way to answer it.
type query struct {
	*conn
	wire.Message
	raw    string
	header map[string][]string // HTTP only
	ctx    context.Context     // ends when Doorward cancels
	emit   func(msg []byte)
	began  bool // a listen that change has found, or would have; guarded by the conn
}

func (q *query) result(format string, args ...any) {
	body := format
	if len(args) > 0 {
		body = fmt.Sprintf(format, args...)
	}
	q.emit(rawjson.AppendResult(nil, q.ID, []byte(body)))
}

func (q *query) fail(code int64, message string) {
	q.emit(rawjson.AppendError(nil, q.ID, &wire.Error{Code: code, Message: message}))
}

func (q *query) notify(method, params string) {
	q.emit(rawjson.AppendNotification(nil, method, []byte(params)))
}

// ask puts a question to the client on this request's stream and returns the
// response as it came.
func (q *query) ask(method, params string) string {
	id, answer := q.question()
	q.emit(rawjson.AppendRequest(nil, wire.ID(id), method, []byte(params)))
	return q.wait(answer)
}

func (c *conn) question() (id string, answer chan string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asks++
	id = fmt.Sprintf(`"ask-%d"`, c.asks)
	answer = make(chan string, 1)
	c.answers[id] = answer
	return id, answer
}

func (c *conn) wait(answer chan string) string {
	select {
	case a := <-answer:
		return a
	case <-c.done:
		return "the connection ended"
	case <-c.s.t.Context().Done():
		return "no answer"
	}
}

// put asks outside of any request.
func (c *conn) put(method, params string) string {
	id, answer := c.question()
	c.say(rawjson.AppendRequest(nil, wire.ID(id), method, []byte(params)))
	return c.wait(answer)
}

func (c *conn) tell(method, params string) {
	c.say(rawjson.AppendNotification(nil, method, []byte(params)))
}

// arrive waits for the test to say proceed.
func (q *query) arrive() {
	select {
	case <-q.s.proceed:
	case <-q.s.t.Context().Done():
	}
}

// name is the tool or prompt that a query is about.
func (q *query) name() string {
	n, _ := rawjson.GetString(q.Params, "name")
	return n
}

func (q *query) arg(name string) string {
	text, _ := rawjson.GetString(rawjson.Get(q.Params, "arguments"), name)
	return text
}

// take handles one message of Doorward's.
func (s *script) take(q *query) {
	s.mu.Lock()
	s.seen = append(s.seen, q)
	s.mu.Unlock()
	switch {
	case q.Kind == wire.Response:
		q.mu.Lock()
		answer := q.answers[string(q.ID)]
		delete(q.answers, string(q.ID))
		q.mu.Unlock()
		if answer != nil {
			answer <- q.raw
		}
	case q.Kind == wire.Notification:
		if q.Method == "notifications/cancelled" {
			q.cancel(string(rawjson.Get(q.Params, "requestId")))
		}
		if s.onNotification != nil {
			s.onNotification(q)
		}
	case q.Method == "initialize" || q.Method == "server/discover":
		s.handshake(q)
	case q.Method == "subscriptions/listen":
		s.listen(q)
	default:
		s.answer(q)
	}
}

func (c *conn) cancel(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for q, cancel := range c.calls {
		if string(q.ID) == id {
			cancel()
		}
	}
}

func (s *script) handshake(q *query) {
	if s.refuse != nil && s.refuse(q) {
		return
	}
	switch {
	case q.Method == "initialize" && s.era != "modern":
		version, _ := rawjson.GetString(q.Params, "protocolVersion")
		q.result(`{"protocolVersion":%q,"capabilities":%s,"serverInfo":{"name":%q,"version":"1"},"instructions":"be kind"}`, version, s.caps, s.name)
	case q.Method == "initialize":
		q.fail(-32022, "modern only")
	case s.era != "legacy":
		q.result(`{"supportedVersions":["2026-07-28"],"capabilities":%s,"resultType":"complete","ttlMs":5,"cacheScope":"public","instructions":"be kind","_meta":{"io.modelcontextprotocol/serverInfo":{"name":%q,"version":"1"}}}`, s.caps, s.name)
	default:
		q.fail(-32601, "Method not found")
	}
}

// listen acknowledges and stays until it is cancelled.
func (s *script) listen(q *query) {
	granted := string(rawjson.Get(q.Params, "notifications"))
	if s.onListen != nil {
		granted = s.onListen(q)
	}
	if granted == "" {
		q.fail(-32603, "not now")
		return
	}
	q.mu.Lock()
	q.listens = append(q.listens, q)
	q.began = true
	q.mu.Unlock()
	q.tag("notifications/subscriptions/acknowledged", `{"notifications":`+granted+`}`)
	<-q.ctx.Done()
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, x := range q.listens {
		if x == q {
			q.listens = append(q.listens[:i], q.listens[i+1:]...)
			return
		}
	}
}

// tag sends a notification of a listen.
func (q *query) tag(method, params string) {
	q.emit(rawjson.AppendNotification(nil, method, rawjson.SetIn([]byte(params), "_meta", rawjson.Edit{Key: wire.MetaSubscription, Value: q.ID})))
}

func (s *script) answer(q *query) {
	s.mu.Lock()
	serve, list := s.serve, s.lists[q.Method]
	s.mu.Unlock()
	switch {
	case list != "":
		q.result("%s", list)
	case serve != nil:
		serve(q)
	default:
		q.result(`{"echo":%s}`, orNull(q.Params))
	}
}

func orNull(raw []byte) string {
	if raw == nil {
		return "null"
	}
	return string(raw)
}

// setList changes what a list method answers.
func (s *script) setList(method, result string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists[method] = result
}

// change sends a notification to every listen, and on every legacy connection
// without one.
func (s *script) change(method, params string) {
	for _, c := range s.open() {
		c.mu.Lock()
		listens := append([]*query(nil), c.listens...)
		c.mu.Unlock()
		for _, q := range listens {
			q.tag(method, params)
		}
		if s.era != "modern" && len(listens) == 0 {
			c.tell(method, params)
		}
	}
}

// listening is how many subscriptions/listen are open.
func (s *script) listening() int {
	n := 0
	for _, c := range s.open() {
		c.mu.Lock()
		n += len(c.listens)
		c.mu.Unlock()
	}
	return n
}

// got are the messages of a method so far.
func (s *script) got(method string) []*query {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*query
	for _, q := range s.seen {
		if q.Method == method {
			out = append(out, q)
		}
	}
	return out
}

// last waits for the latest message of a method.
func (s *script) last(method string) *query {
	s.t.Helper()
	eventually(s.t, method+" reaches server "+s.name, func() bool { return len(s.got(method)) > 0 })
	all := s.got(method)
	return all[len(all)-1]
}
