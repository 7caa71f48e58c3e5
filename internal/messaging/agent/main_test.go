package agent

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/test/doortest"
)

// house is a server on a real book, with a real gate and a real audit log.
type house struct {
	t    testing.TB
	s    *Server
	db   *store.DB
	book *mail.Book
	gate *gate.Gate
	log  *audit.Log
	dir  string // of the record
	logs *buffer

	ahead atomic.Int64 // how far the clocks of the store and of the sessions are ahead
	later atomic.Int64 // how far the clock of the sessions is ahead of that of the store

	mu      sync.Mutex
	schemas map[string]map[string]*jsonschema.Resolved // of outputs, by tool
	close   func()
}

type buffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// plan is the configuration of a house.
type plan struct {
	rules  string // of the operator's policy file
	mail   mail.Limits
	evict  bool
	limits Limits
	join   bool
	spawn  Spawner
	state  string // of the store; empty: one of its own
	gate   gate.Limits
}

func build(t testing.TB, p plan) *house {
	t.Helper()
	h := &house{t: t, dir: t.TempDir(), logs: &buffer{}}
	logger := slog.New(slog.NewTextHandler(h.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if h.log, err = audit.Open(h.dir, audit.Options{}); err != nil {
		t.Fatal(err)
	}
	h.gate = gate.New(h.rules(p.rules), h.log, p.gate)
	if p.state == "" {
		p.state = t.TempDir()
	}
	h.db, err = store.Open(context.Background(), store.Options{Dir: p.state, Migrations: mail.Migrations(), Log: logger, AnyFilesystem: true, Record: h.record,
		Now: func() time.Time { return time.Now().Add(time.Duration(h.ahead.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	public, private, _ := ed25519.GenerateKey(nil)
	h.book, err = mail.Open(context.Background(), h.db, mail.Options{Node: "box", Limits: p.mail, Evict: p.evict, Sign: Signer(private), Upkeep: Upkeep, Log: logger})
	if err != nil {
		t.Fatal(err)
	}
	h.s, err = New(Options{Book: h.book, Signals: h.db, Gate: h.gate, Node: "box", Version: "1", Limits: p.limits, Mail: p.mail, SiblingJoin: p.join,
		Spawner:   func() Spawner { return p.spawn },
		CursorKey: []byte("0123456789abcdef"), AuditKey: []byte("fedcba9876543210"), Public: public, AuditDir: h.dir, Log: logger, tick: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	start := h.s.sessions.clock
	h.s.sessions.clock = func() time.Duration { return start() + time.Duration(h.ahead.Load()+h.later.Load()) }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { h.s.Run(ctx); close(done) }()
	h.close = sync.OnceFunc(func() {
		h.s.Close()
		cancel()
		<-done
		h.db.Close()
		h.log.Close()
	})
	t.Cleanup(h.close)
	return h
}

// pass advances the clocks of the store and of the sessions.
func (h *house) pass(d time.Duration) { h.ahead.Add(int64(d)) }

// rules compiles the policy with text as the operator's file.
func (h *house) rules(text string) *policy.Set {
	h.t.Helper()
	all := policy.List{Allow: []string{"*"}}
	set, problems := policy.Compile(policy.Options{UID: 1000, Servers: map[string]policy.ServerRules{ServerName: {Tools: all}}, File: "p.cedar", Text: []byte(text)})
	if set == nil {
		h.t.Fatal(problems)
	}
	return set
}

func (h *house) outputs(tool string) map[string]*jsonschema.Resolved {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.schemas == nil {
		h.schemas = make(map[string]map[string]*jsonschema.Resolved)
	}
	if h.schemas[tool] == nil {
		h.schemas[tool] = outputs(h.t, h.s.verbs[tool])
	}
	return h.schemas[tool]
}

// record writes the notes of a commit as the daemon does.
func (h *house) record(notes []any) error {
	var rs []*audit.Record
	for _, n := range notes {
		rs = append(rs, n.(*audit.Record))
	}
	_, err := h.gate.Record(rs...)
	return err
}

// entry holds the fields of a record that the tests check.
type entry struct {
	Seq                              uint64
	Kind, Source, Principal, Session string
	Action, Resource, Decision, Rule string
	Count, Bytes                     int64
	Detail                           map[string]string
}

// lines returns the records of messaging so far.
func (h *house) lines() []entry {
	h.t.Helper()
	raw, err := auditlog.Tail(h.dir, 1_000_000)
	if err != nil {
		h.t.Fatal(err)
	}
	var out []entry
	for _, r := range raw {
		var l entry
		if err := json.Unmarshal(r, &l); err != nil {
			h.t.Fatal(err)
		}
		if l.Source == source {
			out = append(out, l)
		}
	}
	return out
}

// witness is a witness of a process that a test can end.
type witness struct {
	mu   sync.Mutex
	gone bool
}

func (w *witness) Holds() bool { w.mu.Lock(); defer w.mu.Unlock(); return !w.gone }
func (w *witness) Retain()     {}
func (w *witness) Release()    {}
func (w *witness) kill()       { w.mu.Lock(); w.gone = true; w.mu.Unlock() }

// process is a program of the daemon's user on the Unix socket.
func process(name string, also ...principal.Fact) (*principal.Principal, *witness) {
	return programOf(principal.UID(1000), name, also...)
}

func programOf(who, name string, also ...principal.Fact) (*principal.Principal, *witness) {
	w := &witness{}
	facts := append([]principal.Fact{{Name: "uid", Value: "1000", Grade: principal.Attested},
		{Name: factInstance, Value: "boot/" + name, Grade: principal.Attested},
		{Name: factProcess, Value: "boot/" + name + "@1", Grade: principal.Observed}}, also...)
	return principal.New(who, facts...).WithLocal().WithWitness(w), w
}

// agentClient is one client of the server.
type agentClient struct {
	h         *house
	who       *principal.Principal
	session   string
	namespace string
	conn      upstream.Conn
	hello     []byte
	events    chan upstream.Event
	witness   *witness
	quick     bool // its answers are not checked with their schemas
}

// legacy opens a session; modern a connection without one.
func (h *house) legacy(name string) *agentClient {
	who, w := process(name)
	c := h.open(who, "digest-"+name, false)
	c.witness = w
	return c
}

func (h *house) modern(name string) *agentClient {
	who, w := process(name)
	c := h.open(who, "", true)
	c.witness = w
	return c
}

func (h *house) open(who *principal.Principal, session string, modern bool) *agentClient {
	c := &agentClient{h: h, who: who, session: session, events: make(chan upstream.Event, 64)}
	c.conn, c.hello = h.s.Open(who, session, modern, func(e upstream.Event) { c.events <- e })
	return c
}

// reply is the answer of a tool.
type reply struct {
	t      testing.TB
	raw    []byte
	out    map[string]any
	text   string
	failed bool
}

func (r *reply) code() string {
	if !r.failed {
		return ""
	}
	e, _ := r.out["error"].(map[string]any)
	code, _ := e["code"].(string)
	return code
}

// at returns a member of the structured content by its path, such as "a.b.0".
func (r *reply) at(path string) any {
	var v any = r.out
	for _, k := range strings.Split(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[k]
		case []any:
			var i int
			fmt.Sscan(k, &i)
			if i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

func (r *reply) str(path string) string { s, _ := r.at(path).(string); return s }
func (r *reply) num(path string) int    { n, _ := r.at(path).(float64); return int(n) }
func (r *reply) len(path string) int    { n, _ := r.at(path).([]any); return len(n) }

// call calls a tool as the relay does: through the gate, with the pass in the
// context. Every answer is checked with its schema.
func (c *agentClient) call(tool string, args any) *reply {
	c.h.t.Helper()
	r, err := c.try(context.Background(), tool, args, nil)
	if err != nil {
		c.h.t.Fatalf("%s: %v", tool, err)
	}
	return r
}

func (c *agentClient) try(ctx context.Context, tool string, args any, on func(upstream.Event)) (*reply, error) {
	c.h.t.Helper()
	raw, ok := args.(string)
	if !ok {
		b, err := json.Marshal(args)
		if err != nil {
			c.h.t.Fatal(err)
		}
		raw = string(b)
	}
	if (tool == "inbox" || tool == "read") && raw[0] == '{' && rawjson.Get([]byte(raw), "format") == nil {
		raw = string(rawjson.Set([]byte(raw), rawjson.Edit{Key: "format", Value: []byte(`"json"`)}))
	}
	params := rawjson.Set(nil, rawjson.Edit{Key: "name", Value: rawjson.AppendQuote(nil, tool)}, rawjson.Edit{Key: "arguments", Value: []byte(raw)})
	pass, err := c.h.gate.Enter(gate.Act{Who: c.who, Session: c.session, Action: "tools/call", Server: ServerName, Name: tool,
		Bytes: int64(len(params)), Args: []byte(raw), Source: source}.Deferred())
	if err != nil {
		return nil, err
	}
	defer pass.Leave("ok", 0)
	req := &upstream.Request{Method: "tools/call", Params: params}
	if c.namespace != "" {
		req.Headers = map[string][]string{"Doorward-Namespace": {c.namespace}}
	}
	if on != nil {
		req.ProgressToken = []byte(`"p1"`)
	}
	got, err := c.conn.Call(gate.WithPass(ctx, pass), req, on)
	for w := upstream.Waits(err); w != nil; w = upstream.Waits(err) {
		w.Await(ctx)
		got, err = w.Go(ctx)
	}
	if err != nil {
		return nil, err
	}
	if got.Error != nil {
		return nil, got.Error
	}
	r := c.reply(tool, got.Result)
	if got.Plain != (tool == "send" && !r.failed) || got.Plain && wire.HoldsQuestions(got.Result) {
		c.h.t.Errorf("%s: plain is %v: %s", tool, got.Plain, got.Result)
	}
	return r, nil
}

func (c *agentClient) reply(tool string, raw []byte) *reply {
	c.h.t.Helper()
	r := &reply{t: c.h.t, raw: raw, failed: string(rawjson.Get(raw, "isError")) == "true"}
	for e := range rawjson.Elements(rawjson.Get(raw, "content")) {
		r.text, _ = rawjson.GetString(e, "text")
	}
	structured := rawjson.Get(raw, "structuredContent")
	if structured == nil { // text alone
		return r
	}
	if err := json.Unmarshal(structured, &r.out); err != nil {
		c.h.t.Fatalf("%s: %v", raw, err)
	}
	if c.quick {
		return r
	}
	for what, schema := range c.h.outputs(tool) {
		if err := schema.Validate(map[string]any(r.out)); err != nil {
			c.h.t.Errorf("%s: the answer does not fit the %s schema: %v\n%s", tool, what, err, raw)
		}
	}
	return r
}

// shown is the mailbox as text, as a model sees it, without confirming anything.
func (c *agentClient) shown() *reply {
	c.h.t.Helper()
	return c.call("inbox", m{"peek": true, "format": "text"}).want("")
}

// registered registers the client under a name.
func (c *agentClient) registered(name string) *agentClient {
	c.h.t.Helper()
	if r := c.call("register", map[string]any{"name": name}); r.failed {
		c.h.t.Fatalf("register %s: %s", name, r.text)
	}
	return c
}

// want fails unless the call ended with the code; "" is success.
func (r *reply) want(code string) *reply {
	r.t.Helper()
	if got := r.code(); got != code {
		r.t.Fatalf("ended with %q, want %q: %s", got, code, r.text)
	}
	return r
}

type m = map[string]any

func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	doortest.Until(t, 20*time.Second, what, ok)
}
