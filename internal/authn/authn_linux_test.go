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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/principal"
	"github.com/doorward/doorward/internal/secret"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestWhoACallerIs(t *testing.T) {
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
		tc.c.Listener = tc.name // failures of one row are not another's
		got, err := w.ask(tc.c, tc.auth...)
		if got != tc.want || tc.want == "" && err != ErrUnauthenticated {
			t.Errorf("%s: %q, %v; want %q", tc.name, got, err, tc.want)
		}
	}
	if _, err := w.ask(nil); err != ErrUnauthenticated {
		t.Errorf("no caller: %v", err)
	}
}

func TestTheSocketsPeerIsWhoTheKernelSays(t *testing.T) {
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

func TestNobodyElseComesThroughTheSocket(t *testing.T) {
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

// Every fact has the grade of its evidence; what is not there is unavailable.
func TestFactsAreGradedByTheirEvidence(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		p    *peer.Credentials
		want map[string]string
	}{
		{"all", &peer.Credentials{PID: 7, GroupsKnown: true, Groups: []uint32{1, 2}, Label: "l", Instance: "b/1", InstanceAttested: true},
			map[string]string{"uid": "attested", "gid": "attested", "groups": "attested", "label": "attested", "pid": "observed", "instance": "attested"}},
		{"an older kernel", &peer.Credentials{PID: 7, Instance: "b/7@1"},
			map[string]string{"uid": "attested", "gid": "attested", "groups": "unavailable", "pid": "observed", "instance": "observed"}},
		{"nothing but ids", &peer.Credentials{},
			map[string]string{"uid": "attested", "gid": "attested", "groups": "unavailable", "pid": "unavailable", "instance": "unavailable"}},
		{"foreign", &peer.Credentials{PID: 7, Foreign: true, Instance: "b/1", InstanceAttested: true, GroupsKnown: true},
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

func TestExpiryIsSeenOnAnOpenConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tok, _ := mustNew(t, w.store, "short", time.Minute, "")
	w.clock.advance(2 * time.Second)
	c := enforced()
	p, err := w.Authenticate(c, []string{"Bearer " + tok})
	if err != nil || !w.Holds(p) {
		t.Fatalf("%v, holds %v", err, w.Holds(p))
	}
	w.clock.advance(time.Minute)
	if got, err := w.ask(c, "Bearer "+tok); err != ErrUnauthenticated {
		t.Errorf("after expiry: %q, %v", got, err)
	}
	if w.Holds(p) {
		t.Error("an expired token still holds")
	}
}

func TestRevocationIsSeenWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tok, id := mustNew(t, w.store, "ci", 0, "")
	keep, _ := mustNew(t, w.store, "keep", 0, "")
	w.clock.advance(2 * time.Second)
	c, k := enforced(), enforced()
	p, err := w.Authenticate(c, []string{"Bearer " + tok})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.ask(k, "Bearer "+keep); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Revoke(id); err != nil {
		t.Fatal(err)
	}
	w.clock.advance(2 * time.Second)
	if got, err := w.ask(c, "Bearer "+tok); err != ErrUnauthenticated {
		t.Errorf("after revocation: %q, %v", got, err)
	}
	if w.Holds(p) {
		t.Error("a revoked token still holds")
	}
	if got, _ := w.ask(k, "Bearer "+keep); got != "token:keep" {
		t.Errorf("another token went with it: %q", got)
	}
	// The same name again is another token: what the first opened stays shut.
	again, _ := mustNew(t, w.store, "ci", 0, "")
	w.clock.advance(2 * time.Second)
	if got, _ := w.ask(c, "Bearer "+again); got != "token:ci" || w.Holds(p) {
		t.Errorf("the name used again: %q, the old one holds: %v", got, w.Holds(p))
	}
}

func TestTheTokenFileIsReadAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := enforced()
	p, err := w.Authenticate(c, []string{"Bearer " + fileToken})
	if err != nil || p.Name() != "token:file" {
		t.Fatalf("%v, %v", p.Name(), err)
	}
	const next = "another-file-token-0123456789"
	writeToken(t, w.file, "  "+next+"\r\n\n")
	w.clock.advance(2 * time.Second)
	if _, err := w.ask(c, "Bearer "+fileToken); err != ErrUnauthenticated {
		t.Errorf("the old token: %v", err)
	}
	if w.Holds(p) {
		t.Error("the rotated token still holds")
	}
	if got, _ := w.ask(c, "Bearer "+next); got != "token:file" {
		t.Errorf("the new token: %q", got)
	}
	// In place, same size, within the grain of the file's times.
	for i := range 20 {
		same := fmt.Sprintf("in-place-file-token-%09d", i)
		if err := os.WriteFile(w.file, []byte(same), 0o600); err != nil {
			t.Fatal(err)
		}
		w.clock.advance(time.Second)
		if got, err := w.ask(enforced(), "Bearer "+same); got != "token:file" {
			t.Fatalf("change %d: %q, %v", i, got, err)
		}
	}
	for _, broken := range []func(){
		func() { os.Chmod(w.file, 0o640) },
		func() { os.Chmod(w.file, 0o600); os.WriteFile(w.file, []byte("short"), 0o600) },
		func() { os.Remove(w.file) },
	} {
		writeToken(t, w.file, next)
		w.clock.advance(2 * time.Second)
		if got, _ := w.ask(enforced(), "Bearer "+next); got != "token:file" {
			t.Fatalf("the stage is wrong: %q", got)
		}
		w.heard()
		broken()
		w.clock.advance(2 * time.Second)
		if got, err := w.ask(enforced(), "Bearer "+next); err != ErrUnauthenticated {
			t.Errorf("let in by a file that is not usable: %q, %v", got, err)
		}
		if said := w.heard(); !strings.Contains(said, w.file) || strings.Contains(said, next) || strings.Contains(said, "short\n") {
			t.Errorf("the operator heard %q", said)
		}
		w.clock.advance(2 * time.Second)
		w.ask(enforced(), "Bearer "+next)
		if said := w.heard(); said != "" {
			t.Errorf("the operator heard the same again: %q", said)
		}
	}
	if got, _ := w.ask(enforced(), "Bearer "+envToken); got != "token:env" {
		t.Errorf("the other source went with it: %q", got)
	}
}

func TestWhatIsConfigured(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := dir + "/" + name
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := dir + "/link"
	os.Symlink(write("target", fileToken, 0o600), link)
	withToken := NewStore(dir + "/s1")
	mustNew(t, withToken, "a", 0, "")
	revoked := NewStore(dir + "/s2")
	_, id := mustNew(t, revoked, "a", 0, "")
	revoked.Revoke(id)
	expired := NewStore(dir + "/s3")
	mustNew(t, expired, "a", time.Nanosecond, "")

	for _, tc := range []struct {
		name      string
		o         Options
		set, made bool
		problem   string // part of it
	}{
		{"nothing", Options{}, false, false, ""},
		{"environment", Options{Env: secret.New(" " + envToken + "\n")}, true, false, ""},
		{"environment, 16 characters", Options{Env: secret.New("0123456789abcdef")}, true, false, ""},
		{"environment, 15 characters", Options{Env: secret.New("0123456789abcde")}, false, false, "DOORWARD_TOKEN is shorter than 16"},
		{"environment, 15 characters and spaces", Options{Env: secret.New("  0123456789abcde   ")}, false, false, "shorter"},
		{"environment, blank", Options{Env: secret.New("                      ")}, false, false, "DOORWARD_TOKEN is empty"},
		{"environment, inner space", Options{Env: secret.New("01234567 89abcdef")}, false, false, "cannot carry"},
		{"environment, not ASCII", Options{Env: secret.New("0123456789abcdefé")}, false, false, "cannot carry"},
		{"file", Options{File: write("ok", fileToken+"\n", 0o600)}, true, false, ""},
		{"file, read only", Options{File: write("ro", fileToken, 0o400)}, true, false, ""},
		{"file by a link", Options{File: link}, true, false, ""},
		{"file, group may read", Options{File: write("g", fileToken, 0o640)}, false, false, "chmod 600"},
		{"file, world may read", Options{File: write("w", fileToken, 0o604)}, false, false, "chmod 600"},
		{"file, world may write", Options{File: write("ww", fileToken, 0o602)}, false, false, "chmod 600"},
		{"file, missing", Options{File: dir + "/missing"}, false, false, "no such file"},
		{"file, a directory", Options{File: dir}, false, false, "not a regular file"},
		{"file, empty", Options{File: write("e", "\n", 0o600)}, false, false, "is empty"},
		{"file, short", Options{File: write("s", "0123456789abcde\n", 0o600)}, false, false, "shorter"},
		{"file, two lines", Options{File: write("2", fileToken+"\n"+fileToken, 0o600)}, false, false, "cannot carry"},
		{"file, huge", Options{File: write("h", strings.Repeat("x", 1<<20), 0o600)}, false, false, "longer"},
		{"one of two", Options{Env: secret.New("short"), File: write("ok2", fileToken, 0o600)}, true, false, "DOORWARD_TOKEN"},
		{"no store yet", Options{Store: NewStore(dir + "/none")}, false, false, ""},
		{"a stored token", Options{Store: withToken}, false, true, ""},
		{"only revoked", Options{Store: revoked}, false, false, ""},
		{"only expired", Options{Store: expired}, false, false, ""},
	} {
		got := New(tc.o).Configured()
		problems := strings.Join(got.Problems, "; ")
		if got.Set != tc.set || got.Made != tc.made || (tc.problem == "") != (problems == "") || !strings.Contains(problems, tc.problem) {
			t.Errorf("%s: %+v", tc.name, got)
		}
		if strings.Contains(problems, "0123456789") {
			t.Errorf("%s: a token is in %q", tc.name, problems)
		}
	}
}

func TestTheFileOfACredentialThatSystemdPasses(t *testing.T) {
	t.Parallel()
	root := peer.Stamp{Regular: true, Perm: 0o440}
	if err := ownersOnly(root); (err == nil) != (os.Geteuid() != 0) {
		t.Errorf("root's 0440 for uid %d: %v", os.Geteuid(), err)
	}
	for _, s := range []peer.Stamp{
		{Regular: true, Perm: 0o640}, {Regular: true, Perm: 0o444}, {Regular: true, Perm: 0o440, GID: 4},
		{Regular: true, Perm: 0o600, UID: me() + 7}, {Perm: 0o600},
	} {
		if ownersOnly(s) == nil {
			t.Errorf("%+v was accepted", s)
		}
	}
}

func TestFailuresAreLimitedAndCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	known := enforced()
	if _, err := w.ask(known, "Bearer "+envToken); err != nil {
		t.Fatal(err)
	}
	for i := range burst {
		if _, err := w.ask(enforced(), fmt.Sprintf("Bearer wrong-%d", i)); err != ErrUnauthenticated {
			t.Fatalf("failure %d: %v", i, err)
		}
	}
	for _, auth := range []string{"Bearer wrong", "Bearer " + envToken} {
		if _, err := w.ask(enforced(), auth); err != ErrTooMany {
			t.Errorf("over the limit: %v", err)
		}
	}
	if _, err := w.ask(known, "Bearer "+envToken); err != nil {
		t.Errorf("a connection that is known: %v", err)
	}
	other := enforced()
	other.Remote = addr("192.0.2.2")
	if _, err := w.ask(other, "Bearer "+envToken); err != nil {
		t.Errorf("another source: %v", err)
	}
	for range 100 { // no header is no guess
		if _, err := w.ask(&Caller{Enforce: true, Remote: addr("192.0.2.3")}); err != ErrUnauthenticated {
			t.Fatalf("no header: %v", err)
		}
	}
	if got := w.Failures(); got != (Failures{Missing: 100, Invalid: burst, Limited: 2}) {
		t.Errorf("counted %+v", got)
	}
	w.clock.advance(RetryAfter)
	if _, err := w.ask(enforced(), "Bearer "+envToken); err != nil {
		t.Errorf("after the wait: %v", err)
	}
}

func TestSuccessesDoNotCountAgainstASource(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 10 * burst {
		if _, err := w.ask(enforced(), "Bearer "+envToken); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(w.failures.buckets); n != 0 {
		t.Errorf("%d sources are remembered for nothing", n)
	}
}

func TestSourcesAreToldApart(t *testing.T) {
	t.Parallel()
	local := func(uid uint32, known bool) *Caller {
		return &Caller{Loopback: true, Listener: "l", Remote: addr("127.0.0.1"), OwnerUID: uid, OwnerKnown: known}
	}
	remote := func(s string) *Caller { return &Caller{Listener: "l", Remote: addr(s)} }
	for _, tc := range []struct {
		a, b *Caller
		same bool
	}{
		{remote("192.0.2.1"), remote("192.0.2.1"), true},
		{remote("192.0.2.1"), remote("::ffff:192.0.2.1"), true},
		{remote("192.0.2.1"), remote("192.0.2.2"), false},
		{remote("2001:db8::1"), remote("2001:db8::2"), true},
		{remote("2001:db8::1"), remote("2001:db8:0:1::1"), false},
		{local(1, true), local(1, true), true},
		{local(1, true), local(2, true), false},
		{local(0, false), local(0, true), false},
		{local(0, false), remote("::1"), true},
		{local(0, false), &Caller{Listener: "m", Remote: addr("127.0.0.1")}, false},
	} {
		if a, b := sourceOf(tc.a), sourceOf(tc.b); (a == b) != tc.same {
			t.Errorf("%q and %q", a, b)
		}
	}
}

// From ever new addresses: memory stays bounded, and it is the new ones that
// share a bucket.
func TestManySourcesStayBounded(t *testing.T) {
	t.Parallel()
	l := limiter{buckets: map[string]*bucket{}}
	now := time.Now()
	for i := range 3 * maxSources {
		l.take(fmt.Sprint("s", i), now)
	}
	if n := len(l.buckets); n > maxSources+1 {
		t.Errorf("%d sources", n)
	}
	if l.take("new", now) {
		t.Error("a source over the number is not limited")
	}
	l.refund("never seen", now)
	later := now.Add(time.Minute)
	if !l.take("new", later) || len(l.buckets) > 2 {
		t.Errorf("after a minute %d sources are left", len(l.buckets))
	}
}

func TestManyGuessesAtOnceDoNotPassTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() { w.ask(enforced(), fmt.Sprint("Bearer guess-", i)) })
	}
	wg.Wait()
	if got := w.Failures(); got.Invalid != burst || got.Limited != 200-burst {
		t.Errorf("%+v", got)
	}
}

// The comparison has no way out before its end: one loop over all credentials,
// nothing in it but the two constant-time operations.
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

// Whatever the store does meanwhile, an answer is a right one.
func TestManyCallersWhileTokensComeAndGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stable, _ := mustNew(t, w.store, "stable", 0, "")
	w.clock.advance(2 * time.Second)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			c := enforced()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got, err := w.ask(c, "Bearer "+stable); got != "token:stable" {
					t.Errorf("%q, %v", got, err)
					return
				}
			}
		})
	}
	for i := range 20 {
		_, id := mustNew(t, w.store, fmt.Sprint("t", i), 0, "")
		w.clock.advance(time.Second)
		w.store.Revoke(id)
		w.clock.advance(time.Second)
	}
	close(stop)
	wg.Wait()
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
