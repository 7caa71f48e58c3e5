package deliver

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/instructions/watermark"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
)

// house is a server with a real directory, real sessions, a real gate and a real
// audit log.
type house struct {
	t      testing.TB
	s      *Server
	gate   *gate.Gate
	log    *audit.Log
	dir    string // of the record
	docs   string // of the documents
	db     *store.DB
	keeper *session.Keeper
	lib    *library.Library
	away   *away
	refs   *watermark.Index
	logs   *buffer
}

// away is a library that a test can make unreachable.
type away struct {
	Library

	mu   sync.Mutex
	gone bool
}

func (a *away) Set() (*document.Set, library.State) {
	set, state := a.Library.Set()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		state.OK, state.Reason = false, "it was taken away"
	}
	return set, state
}

// changed and ended are the callbacks of the library and the keeper, which exist
// before the server does.
func (h *house) changed() {
	if h.s != nil {
		h.s.Changed()
	}
}

func (h *house) ended(s session.Session) {
	if h.s != nil {
		h.s.Ended(s)
	}
}

// take makes the store unreachable, or reachable again.
func (h *house) take(gone bool) {
	h.away.mu.Lock()
	h.away.gone = gone
	h.away.mu.Unlock()
	h.s.Changed()
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

// plan is how a house is built.
type plan struct {
	rules      string // of the operator's policy file
	failClosed bool
	mode       watermark.Mode
	empty      bool                  // no documents to begin with
	nowhere    bool                  // no directory either
	library    func(Library) Library // replaces the real one
	limits     gate.Limits
	still      bool // changes are spread by tell alone
	change     func(*Options)
}

const (
	plantedJudge = "The umber heron decides on Thursdays." // behavioural
	plantedVoice = "Write as a quiet lighthouse keeper."   // behavioural
	plantedPlan  = "A plan has a table of steps."          // structural
)

func build(t testing.TB, p plan) *house {
	t.Helper()
	h := &house{t: t, dir: t.TempDir(), docs: filepath.Join(t.TempDir(), "documents"), logs: &buffer{}, refs: watermark.NewIndex(1000)}
	logger := slog.New(slog.NewTextHandler(h.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if h.log, err = audit.Open(h.dir, audit.Options{}); err != nil {
		t.Fatal(err)
	}
	h.gate = gate.New(h.rules(p.rules), h.log, p.limits)
	state := t.TempDir()
	h.db, err = store.Open(context.Background(), store.Options{Dir: state, Migrations: slices.Concat(session.Migrations(), library.Migrations()),
		Log: logger, AnyFilesystem: true, Record: h.record})
	if err != nil {
		t.Fatal(err)
	}
	h.keeper, err = session.Open(context.Background(), session.Options{DB: h.db, Dir: state, Installation: "here", Log: logger,
		Gone: func(string) bool { return false }, Ended: h.ended, Record: SessionOver})
	if err != nil {
		t.Fatal(err)
	}
	if !p.empty && !p.nowhere {
		h.furnish()
	}
	if p.empty {
		h.must(os.Mkdir(h.docs, 0o700))
	}
	h.lib, err = library.Open(context.Background(), library.Options{DB: h.db, Key: bytes.Repeat([]byte{7}, 32), Installation: "here",
		Dir: h.docs, Log: logger, Changed: h.changed, Entered: Entered})
	if err != nil {
		t.Fatal(err)
	}
	h.away = &away{Library: h.lib}
	if p.library != nil {
		h.away.Library = p.library(h.lib)
	}
	o := Options{Library: h.away, Shelf: h.lib, Sessions: h.keeper, Gate: h.gate, CanaryKey: bytes.Repeat([]byte{9}, 32), Refs: h.refs,
		Mode: p.mode, Version: "1", Environment: "desk", FailClosed: p.failClosed, Log: logger}
	if p.change != nil {
		p.change(&o)
	}
	h.s = New(o)
	h.start(p.still)
	return h
}

// start runs the library, the keeper and, unless still, the server until the test
// ends.
func (h *house) start(still bool) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	if !still {
		all.Go(func() { h.s.Run(ctx) })
	}
	all.Go(func() { h.lib.Run(ctx) })
	all.Go(func() { h.keeper.Run(ctx) })
	h.t.Cleanup(func() {
		h.s.Close()
		cancel()
		all.Wait()
		_ = h.lib.Close(context.Background())
		h.db.Close()
		h.log.Close()
	})
	ready, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	h.must(h.lib.Ready(ready))
}

func (h *house) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// rules is the policy with text as the operator's file.
func (h *house) rules(text string) *policy.Set {
	h.t.Helper()
	all := policy.List{Allow: []string{"*"}}
	set, problems := policy.Compile(policy.Options{UID: 1000, Servers: map[string]policy.ServerRules{ServerName: {Tools: all}, "notes": {Tools: all}},
		File: "p.cedar", Text: []byte(text)})
	if set == nil {
		h.t.Fatal(problems)
	}
	return set
}

// record writes the notes of a commit into the audit log, as the daemon does.
func (h *house) record(notes []any) error {
	var rs []*audit.Record
	for _, n := range notes {
		rs = append(rs, n.(*audit.Record))
	}
	_, err := h.gate.Record(rs...)
	return err
}

// furnish puts documents of every kind into the directory.
func (h *house) furnish() {
	h.must(os.Mkdir(h.docs, 0o700))
	h.file("judge", "class: instructions", plantedJudge)
	h.file("plan", "class: instructions\ntier: structural", plantedPlan)
	h.file("voice", "class: voice", plantedVoice)
	h.file("verdict", "class: template\nmcp_prompt: true\ndescription: How to decide\nvariables: {case: {type: string}, count: {type: integer, default: 3}}",
		"Decide {{case}}, {{count}} times. "+plantedJudge)
	h.file("minutes", "class: template\ntier: structural\nmcp_prompt: true\nvariables: {rows: {type: integer}}", "A table of {{rows}} rows.")
	h.file("mixed", "class: template\ntier: structural", "{{> judge}}")
	h.file("foreign", "class: template\ntier: structural\naudience: {principals: [\"token:other\"]}", "For another one.")
}

// behavioural are the names of furnish that need that tier.
var behavioural = []string{"judge", "voice", "verdict", "mixed"}

// file writes a document as an operator's editor does.
func (h *house) file(name, header, body string) {
	h.t.Helper()
	text := "---\nname: " + name + "\n" + header + "\n---\n" + body + "\n"
	temp := filepath.Join(h.docs, "."+name)
	h.must(os.WriteFile(temp, []byte(text), 0o600))
	h.must(os.Rename(temp, filepath.Join(h.docs, name+".md")))
}

// look makes the library read the directory.
func (h *house) look() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	h.must(h.lib.Look(ctx))
}

// issue makes a session and returns its token and id.
func (h *house) issue(subject string, scope ...string) (token, id string) {
	h.t.Helper()
	ask := session.Request{Subject: subject, Scope: scope}
	if h.s.o.Named != nil {
		if by := h.s.o.Named(subject); by != nil {
			ask.Maker = makerOf(by)
		}
	}
	token, s, err := h.keeper.Issue(context.Background(), ask, said)
	h.must(err)
	return token, s.ID
}

// full and partly are sessions of the daemon's own user.
func (h *house) full() string {
	_, id := h.issue("uid:1000", document.Behavioural, document.Structural)
	return id
}

func (h *house) partly() string {
	_, id := h.issue("uid:1000", document.Structural)
	return id
}

func (h *house) end(id string) {
	h.t.Helper()
	_, err := h.keeper.End(context.Background(), id, session.ReasonEnded, said)
	h.must(err)
}

// logged are the fields of a record that the tests read.
type logged struct {
	Seq                              uint64
	Kind, Source, Principal, Session string
	Action, Resource, Decision, Rule string
	Result                           string
	Count, Bytes                     int64
	Detail                           map[string]string
}

// lines are the records of this server so far. Records of the relay about the
// same requests are left out: the relay enters all requests but tool calls.
func (h *house) lines() []logged {
	h.t.Helper()
	raw, err := auditlog.Tail(h.dir, 1_000_000)
	h.must(err)
	var out []logged
	for _, r := range raw {
		var l logged
		h.must(json.Unmarshal(r, &l))
		if l.Source == source && (l.Action == "tools/call" || strings.HasPrefix(l.Action, rulePrefix)) {
			out = append(out, l)
		}
	}
	return out
}

// said is the record of an act that a test does without the server.
func said[T any](*T) any {
	return &audit.Record{Kind: audit.Event, Source: "test", Action: "test", Resource: ServerName}
}
