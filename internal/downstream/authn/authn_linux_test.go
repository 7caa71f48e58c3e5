package authn

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/downstream/attest"
	"github.com/doorward/doorward/internal/trust/principal"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestACallerIsItsTokenOrItsSocketOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stored, _ := mustNew(t, w.store, "ci", 0, "")
	w.clock.advance(2 * time.Second)
	long := strings.Repeat("x", 1000)
	other := me() + 1

	for _, tc := range []struct {
		name string
		c    *Caller
		auth []string
		want string // "" for refused
	}{
		{"enforced, environment", &Caller{Enforce: true}, []string{"Bearer " + envToken}, "token:env"},
		{"enforced, file", &Caller{Enforce: true}, []string{"Bearer " + fileToken}, "token:file"},
		{"enforced, stored", &Caller{Enforce: true}, []string{"Bearer " + stored}, "token:ci"},
		{"enforced, scheme in lower case", &Caller{Enforce: true}, []string{"bearer " + envToken}, "token:env"},
		{"enforced, scheme in any case", &Caller{Enforce: true}, []string{"bEaReR   " + envToken}, "token:env"},
		{"enforced on loopback", &Caller{Enforce: true, Loopback: true}, []string{"Bearer " + envToken}, "token:env"},
		{"a listener that is neither loopback nor enforced", &Caller{}, nil, ""},
		{"the same with a token", &Caller{}, []string{"Bearer " + envToken}, "token:env"},

		{"no header", &Caller{Enforce: true}, nil, ""},
		{"no header on loopback", &Caller{Enforce: true, Loopback: true, OwnerKnown: true, OwnerUID: me()}, nil, ""},
		{"empty header", &Caller{Enforce: true}, []string{""}, ""},
		{"no token", &Caller{Enforce: true}, []string{"Bearer"}, ""},
		{"blank token", &Caller{Enforce: true}, []string{"Bearer   "}, ""},
		{"no scheme", &Caller{Enforce: true}, []string{envToken}, ""},
		{"another scheme", &Caller{Enforce: true}, []string{"Basic " + envToken}, ""},
		{"scheme by folding", &Caller{Enforce: true}, []string{"Bearer\u00a0" + envToken}, ""},
		{"tab instead of space", &Caller{Enforce: true}, []string{"Bearer\t" + envToken}, ""},
		{"two headers", &Caller{Enforce: true}, []string{"Bearer " + envToken, "Bearer " + envToken}, ""},
		{"two tokens", &Caller{Enforce: true}, []string{"Bearer " + envToken + ", Bearer " + envToken}, ""},
		{"a prefix", &Caller{Enforce: true}, []string{"Bearer " + envToken[:len(envToken)-1]}, ""},
		{"a suffix more", &Caller{Enforce: true}, []string{"Bearer " + envToken + "x"}, ""},
		{"other case", &Caller{Enforce: true}, []string{"Bearer " + strings.ToUpper(envToken)}, ""},
		{"the digest instead of the token", &Caller{Enforce: true}, []string{fmt.Sprintf("Bearer %x", digestOf(envToken))}, ""},
		{"very long", &Caller{Enforce: true}, []string{"Bearer " + strings.Repeat(long, 20)}, ""},
		{"long", &Caller{Enforce: true}, []string{"Bearer " + long}, ""},
		{"control characters", &Caller{Enforce: true}, []string{"Bearer " + envToken + "\x00"}, ""},

		{"loopback, ours", &Caller{Loopback: true, OwnerKnown: true, OwnerUID: me()}, nil, principal.Loopback(me())},
		{"loopback, another user", &Caller{Loopback: true, OwnerKnown: true, OwnerUID: other}, nil, ""},
		{"loopback, cannot tell", &Caller{Loopback: true}, nil, principal.LoopbackUnknown},
		{"loopback with a token", &Caller{Loopback: true, OwnerKnown: true, OwnerUID: me()}, []string{"Bearer " + stored}, "token:ci"},
		{"loopback with a wrong token", &Caller{Loopback: true, OwnerKnown: true, OwnerUID: me()}, []string{"Bearer wrong"}, ""},
		{"loopback with another scheme", &Caller{Loopback: true, OwnerKnown: true, OwnerUID: me()}, []string{"Basic x"}, ""},
	} {
		tc.c.Listener = tc.name // the failures of one row do not limit another
		got, err := w.ask(tc.c, tc.auth...)
		if got != tc.want || tc.want == "" && !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%s: %q, %v; want %q", tc.name, got, err, tc.want)
		}
	}
	if _, err := w.ask(nil); err != ErrUnauthenticated {
		t.Errorf("no caller: %v", err)
	}
}

func TestTheSocketsPeerIsTheUserThatTheKernelNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	creds := peerOf(t, func(*exec.Cmd) {})
	c := &Caller{Unix: creds}
	for _, auth := range [][]string{nil, {"Bearer " + envToken}, {"Bearer wrong"}, {"a", "b"}} {
		got, err := w.ask(c, auth...)
		if got != principal.UID(me()) || err != nil {
			t.Errorf("with header %q: %q, %v", auth, got, err)
		}
	}
	p, _ := w.Authenticate(c, nil)
	if !p.Local() {
		t.Error("the socket is not local")
	}
	g := grades(p)
	for name, want := range map[string]string{"uid": "attested", "gid": "attested", "groups": "attested", "pid": "observed"} {
		if g[name] != want {
			t.Errorf("fact %s is graded %q, want %q", name, g[name], want)
		}
	}
	if f, _ := p.Fact("pid"); f.Value != fmt.Sprint(creds.PID) {
		t.Errorf("pid %q, want %d", f.Value, creds.PID)
	}
	if creds.InstanceAttested && g["instance"] != "attested" {
		t.Errorf("instance is graded %q", g["instance"])
	}
}

func TestOnlyTheDaemonsUserIsAcceptedOnTheSocket(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead := peerOf(t, func(*exec.Cmd) {})
	dead.Close()
	if got, err := w.ask(&Caller{Unix: dead}); err != ErrUnauthenticated {
		t.Errorf("a peer that is not held: %q, %v", got, err)
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to start a process with another uid")
	}
	other := peerOf(t, func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	})
	for _, c := range []*Caller{{Unix: other}, {Unix: other, Loopback: true, OwnerKnown: true, OwnerUID: me()}} {
		if got, err := w.ask(c, "Bearer "+envToken); err != ErrUnauthenticated {
			t.Errorf("another user: %q, %v", got, err)
		}
	}
}

// Every fact has the grade of its evidence; a fact without evidence is unavailable.
func TestFactsAreGradedByTheirEvidence(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		p    *attest.Credentials
		want map[string]string
	}{
		{"all", &attest.Credentials{PID: 7, GroupsKnown: true, Groups: []uint32{1, 2}, Label: "l", Instance: "b/1", InstanceAttested: true},
			map[string]string{"uid": "attested", "gid": "attested", "groups": "attested", "label": "attested", "pid": "observed", "instance": "attested"}},
		{"an older kernel", &attest.Credentials{PID: 7, Instance: "b/7@1"},
			map[string]string{"uid": "attested", "gid": "attested", "groups": "unavailable", "pid": "observed", "instance": "observed"}},
		{"nothing but ids", &attest.Credentials{},
			map[string]string{"uid": "attested", "gid": "attested", "groups": "unavailable", "pid": "unavailable", "instance": "unavailable"}},
		{"foreign", &attest.Credentials{PID: 7, Foreign: true, Instance: "b/1", InstanceAttested: true, GroupsKnown: true},
			map[string]string{"uid": "attested", "gid": "attested", "groups": "attested", "namespaces": "observed", "pid": "unavailable", "instance": "unavailable"}},
	} {
		p := principal.New("uid:1", unixFacts(tc.p)...)
		if got := grades(p); fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	w := newWorld(t)
	for _, c := range []*Caller{{Loopback: true, OwnerKnown: true, OwnerUID: me()}, {Loopback: true}} {
		p, err := w.Authenticate(c, nil)
		want := map[bool]string{true: "observed", false: "unavailable"}[c.OwnerKnown]
		if f, ok := p.Fact("uid"); err != nil || !ok || f.Grade.String() != want || f.Grade.MayAllow() || !p.Local() {
			t.Errorf("a loopback caller: %+v, %v", f, err)
		}
	}
}

func TestATokensFactsAreItsIdAndScope(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tok, id := mustNew(t, w.store, "ci", time.Hour, "server:docs,agent")
	w.clock.advance(2 * time.Second)
	for _, local := range []bool{true, false} {
		p, err := w.Authenticate(&Caller{Enforce: true, Loopback: local}, []string{"Bearer " + tok})
		if err != nil {
			t.Fatal(err)
		}
		gotID, _ := p.Fact("token")
		scope, _ := p.Fact("scope")
		if gotID.Value != id || gotID.Grade != principal.Verified || scope.Value != "server:docs,agent" || scope.Grade != principal.Verified {
			t.Errorf("facts %s", p.FactsJSON())
		}
		if p.Local() != local {
			t.Errorf("local %v on a listener whose loopback is %v", p.Local(), local)
		}
		if strings.Contains(string(p.FactsJSON()), tok[3:11]) {
			t.Error("a part of the token is in the facts")
		}
	}
	p, err := w.Authenticate(enforced(), []string{"Bearer " + envToken})
	if _, ok := p.Fact("scope"); ok || err != nil {
		t.Errorf("a token without a scope has one: %s, %v", p.FactsJSON(), err)
	}
}

// The comparison of tokens takes the same time for each: one loop over all credentials,
// without branches or comparisons, that uses the two constant-time operations. The test reads
// the source.
func TestTheComparisonHasNoEarlyExit(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "credential.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var loop *ast.RangeStmt
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != "match" {
			continue
		}
		for _, s := range f.Body.List {
			if r, ok := s.(*ast.RangeStmt); ok {
				loop = r
			}
		}
	}
	if loop == nil {
		t.Fatal("match has no loop over the credentials")
	}
	var calls []string
	ast.Inspect(loop.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BranchStmt, *ast.ReturnStmt, *ast.IfStmt, *ast.SwitchStmt, *ast.ForStmt, *ast.RangeStmt:
			t.Errorf("%T inside the loop", n)
		case *ast.BinaryExpr:
			t.Errorf("a comparison %v inside the loop", n.Op)
		case *ast.SelectorExpr:
			calls = append(calls, n.Sel.Name)
		}
		return true
	})
	if got := strings.Join(calls, " "); !strings.Contains(got, "ConstantTimeCompare") || !strings.Contains(got, "ConstantTimeSelect") {
		t.Errorf("the loop uses %s", got)
	}
}

func TestAPlainCallAllocatesNothing(t *testing.T) {
	w := newWorld(t)
	tok, _ := mustNew(t, w.store, "ci", time.Hour, "")
	w.clock.advance(2 * time.Second)
	for name, call := range plainCalls(t, w, tok) {
		call()
		if n := testing.AllocsPerRun(200, call); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func plainCalls(t testing.TB, w *world, tok string) map[string]func() {
	check := func(c *Caller, auth ...string) func() {
		return func() {
			if _, err := w.Authenticate(c, auth); err != nil {
				t.Fatal(err)
			}
		}
	}
	return map[string]func(){
		"loopback": check(&Caller{Loopback: true, OwnerKnown: true, OwnerUID: me()}),
		"static":   check(enforced(), "Bearer "+envToken),
		"stored":   check(enforced(), "Bearer "+tok),
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	w := newWorld(b)
	for i := range 100 {
		mustNew(b, w.store, fmt.Sprint("other", i), 0, "")
	}
	tok, _ := mustNew(b, w.store, "ci", time.Hour, "")
	a := New(Options{UID: me(), Env: secret.New(envToken), File: w.file, Store: w.store})
	w.Authenticator = a
	for name, call := range plainCalls(b, w, tok) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
	b.Run("first request of a connection", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := a.Authenticate(enforced(), []string{"Bearer " + tok}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// FuzzBearer: an accepted header is the scheme Bearer, in any case, and one token.
func FuzzBearer(f *testing.F) {
	for _, s := range []string{"Bearer x", "bearer  x ", "Bearer", "Basic x", "Bearer a b", "Bearer \x00", "BEARER é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, v string) {
		tok, ok := bearer([]string{v})
		if !ok {
			return
		}
		scheme, rest, _ := strings.Cut(v, " ")
		if !strings.EqualFold(scheme, "bearer") || strings.Trim(rest, " ") != tok || tok == "" || strings.ContainsAny(tok, " \t\r\n\x00") {
			t.Errorf("%q gave %q", v, tok)
		}
	})
}
