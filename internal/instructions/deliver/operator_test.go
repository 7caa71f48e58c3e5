package deliver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// human is the daemon's user at a plain shell.
func human() Caller {
	return Caller{Who: program("cli"), Processes: []string{"boot/9@9", "boot/5@5", "boot/1@1"}, Complete: true}
}

func TestTheOperatorManagesTheVersionsOfADocument(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	ctx, o, by := t.Context(), d.s.Operator(), human()
	token := as(d.fullToken())
	first := d.versionOf(t, "plan")
	v, err := o.Put(ctx, by, "plan", "---\nname: plan\nclass: instructions\ntier: structural\n---\nA plan has two tables.\n", "")
	if err != nil || v.Version == first || len(v.Version) != 64 || v.Name != "plan" || v.Tier != document.Structural || !slices.Contains(v.Labels, library.Production) {
		t.Fatalf("%+v %v", v, err)
	}
	reads := func(want string) {
		t.Helper()
		if text := d.do(me, "GET", "/auth/templates/plan", "", token...).body; !strings.Contains(text, want) {
			t.Errorf("it reads %s", text)
		}
	}
	reads("two tables")
	a, err := o.Rollback(ctx, by, "plan")
	if err != nil || len(a.Moves) != 1 || a.Moves[0].From != v.Version || a.Moves[0].To != first {
		t.Fatalf("%+v %v", a, err)
	}
	reads(plantedPlan)
	a, err = o.Promote(ctx, by, "plan", v.Version[:12], "")
	if err != nil || len(a.Moves) != 1 || a.Moves[0].To != v.Version {
		t.Fatalf("%+v %v", a, err)
	}
	reads("two tables")
	shown, err := o.Show(ctx, by, "plan", first[:12])
	if err != nil || shown.Version != first || !strings.Contains(shown.Content, plantedPlan) || shown.Class != "instructions" {
		t.Fatalf("%+v %v", shown, err)
	}
	all, err := o.Versions(ctx, by, "plan")
	if err != nil || len(all.Versions) != 2 || all.Versions[0].Version != v.Version {
		t.Fatalf("%+v %v", all, err)
	}
	list, err := o.List(ctx, by)
	if err != nil || len(list.Templates) < 7 || !list.Store.OK || list.Store.Unused || list.Problems == nil {
		t.Fatalf("%+v %v", list, err)
	}
	if _, err := o.Revoke(ctx, by, "plan", ""); err != nil {
		t.Fatal(err)
	}
	d.want(404, "not_found", me, "GET", "/auth/templates/plan", "", token...)
	d.want(404, "not_found", me, "GET", "/auth/templates/plan?version="+first, "", token...)
	if text := d.do(me, "GET", "/auth/instructions", "", token...).body; strings.Contains(text, "tables") {
		t.Errorf("a revoked text is composed: %s", text)
	}
	access, err := o.Access(ctx, by)
	if err != nil || len(access.Deliveries) == 0 || access.Deliveries[0].Principal != "uid:1000" || access.Deliveries[0].Count < 1 || access.Deliveries[0].Bytes == 0 {
		t.Fatalf("%+v %v", access, err)
	}
	status, err := o.Status(ctx, by)
	if err != nil || status.Documents != len(list.Templates)-1 || status.Sessions.Live != 1 || !status.Store.OK {
		t.Fatalf("%+v %v", status, err)
	}
}

func TestARefIsTracedToItsDelivery(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	ctx, o, by := t.Context(), d.s.Operator(), human()
	token, id := d.issue("uid:1000", document.Structural)
	r := d.want(200, "", me, "GET", "/auth/templates/plan", "", as(token)...)
	found, err := o.Canary(ctx, by, refIn(t, r.body))
	if err != nil || found.Session != id || found.Template != "plan" || found.Revision != r.header.Get("Doorward-Revision") || found.Principal != "uid:1000" {
		t.Errorf("%+v %v", found, err)
	}
	if _, err := o.Canary(ctx, by, "dwi-aaaaaaaaaaaaaaaa"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	for _, ref := range []string{"", "x", "DWI-AAAAAAAAAAAAAAAA", "dwi-aaaaaaaaaaaaaaaa\n", token} {
		if p, _ := problemOf(second(o.Canary(ctx, by, ref))); p.Code != "malformed" {
			t.Errorf("%q: %s", ref, p.Code)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestATokenForCI(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	var made Issued
	d.want(201, "", me, "POST", "/auth/admin/sessions", `{"scope":"structural","ttl_s":600,"name":"nightly build"}`).into(t, &made)
	s, _ := d.keeper.Find(made.SessionID)
	if !slices.Equal(made.Scope, []string{document.Structural}) || !s.CI || s.Bind != "" || s.Client != "nightly build" || s.Subject != "uid:1000" || time.Until(s.Expires) > 601*time.Second {
		t.Errorf("%+v %+v", made, s)
	}
	elsewhere := caller{who: "uid:1000", net: "unix", tree: "boot/70@7 boot/1@1"}
	for _, by := range []caller{elsewhere, loopback} {
		d.want(200, "", by, "GET", "/auth/templates/plan", "", as(made.Token)...)
		for _, name := range behavioural {
			d.want(404, "not_found", by, "GET", "/auth/templates/"+name, "", as(made.Token)...)
		}
	}
	for body, want := range map[string]struct {
		status int
		code   string
	}{
		`{}`:                                       {400, "malformed"},
		`{"scope":[]}`:                             {400, "malformed"},
		`{"scope":1}`:                              {400, "malformed"},
		`{"scope":[1]}`:                            {400, "malformed"},
		`{"scope":null}`:                           {400, "malformed"},
		`{"scope":"behavioural"}`:                  {403, "not_permitted"},
		`{"scope":["structural","structural"]}`:    {403, "not_permitted"},
		`{"scope":["behavioural","structural"]}`:   {403, "not_permitted"},
		`{"scope":"Structural"}`:                   {403, "not_permitted"},
		`{"scope":"structural","ttl_s":0}`:         {400, "malformed"},
		`{"scope":"structural","ttl_s":86401}`:     {400, "malformed"},
		`{"scope":"structural","name":"a\nb"}`:     {400, "malformed"},
		`{"scope":"structural","name":" a"}`:       {400, "malformed"},
		`{"scope":"structural","bind":"x"}`:        {400, "malformed"},
		`{"scope":"structural","subject":"uid:0"}`: {400, "malformed"},
	} {
		lines := d.since(func() { d.want(want.status, want.code, me, "POST", "/auth/admin/sessions", body) })
		if len(lines) != 1 || lines[0].Decision != audit.Deny {
			t.Errorf("%s: %+v", body, lines)
		}
	}
	var list SessionList
	d.want(200, "", me, "GET", "/auth/admin/sessions", "").into(t, &list)
	if len(list.Sessions) != 1 || list.Sessions[0].ID != made.SessionID || !list.Sessions[0].CI || list.Sessions[0].Ended != "" {
		t.Errorf("%+v", list)
	}
	d.want(200, "", me, "POST", "/auth/admin/sessions/"+made.SessionID+"/revoke", "")
	d.want(401, "unauthenticated", elsewhere, "GET", "/auth/templates/plan", "", as(made.Token)...)
	d.want(200, "", me, "GET", "/auth/admin/sessions", "").into(t, &list)
	if list.Sessions[0].Reason != session.ReasonRevoked || list.Sessions[0].Ended == "" {
		t.Errorf("%+v", list)
	}
	d.gate.SetPolicy(d.rules(`@id("none") forbid (principal, action == Action::"instructions.structural", resource);`))
	d.want(403, "not_permitted", me, "POST", "/auth/admin/sessions", `{"scope":"structural"}`)
}

// every are the operator's acts, each with arguments that let it succeed.
func every(ctx context.Context, o *Operator, version, sessionID, ref string) map[string]func(Caller) error {
	return map[string]func(Caller) error{
		"list":     func(by Caller) error { return second(o.List(ctx, by)) },
		"versions": func(by Caller) error { return second(o.Versions(ctx, by, "plan")) },
		"show":     func(by Caller) error { return second(o.Show(ctx, by, "plan", "")) },
		"put": func(by Caller) error {
			return second(o.Put(ctx, by, "fresh", "---\nname: fresh\nclass: template\n---\nA fresh one.\n", ""))
		},
		"promote":  func(by Caller) error { return second(o.Promote(ctx, by, "plan", version, "tried")) },
		"revoke":   func(by Caller) error { return second(o.Revoke(ctx, by, "minutes", "")) },
		"access":   func(by Caller) error { return second(o.Access(ctx, by)) },
		"canary":   func(by Caller) error { return second(o.Canary(ctx, by, ref)) },
		"sessions": func(by Caller) error { return second(o.Sessions(ctx, by)) },
		"token.create": func(by Caller) error {
			return second(o.IssueCI(ctx, by, CIRequest{Scope: []string{document.Structural}}))
		},
		"session.revoke": func(by Caller) error { return second(o.RevokeSession(ctx, by, sessionID)) },
		"status":         func(by Caller) error { return second(o.Status(ctx, by)) },
	}
}

func TestEveryActOfTheOperatorLeavesOneRecord(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	o := d.s.Operator()
	token, id := d.issue("uid:1000", document.Structural)
	ref := refIn(t, d.do(me, "GET", "/auth/templates/plan", "", as(token)...).body)
	acts := every(t.Context(), o, d.versionOf(t, "plan"), id, ref)
	d.agents = []string{"boot/5@5"}
	for what, act := range acts {
		for name, c := range map[string]struct {
			by   Caller
			rule string
			is   error
		}{
			"below an agent":  {human(), "instructions.agent_shell", ErrShell},
			"from nowhere":    {Caller{Who: program("cli")}, "instructions.agent_shell", ErrShell},
			"cut chain":       {Caller{Who: program("cli"), Processes: []string{"boot/9@9"}}, "instructions.agent_shell", ErrShell},
			"another user":    {Caller{Who: principal.New("uid:1001"), Processes: []string{"boot/9@9"}, Complete: true}, "default.nobody", nil},
			"a token":         {Caller{Who: principal.New("token:ci"), Processes: []string{"boot/9@9"}, Complete: true}, "default.nobody", nil},
			"a loopback":      {Caller{Who: principal.New("loopback:uid=1000"), Processes: []string{"boot/9@9"}, Complete: true}, "default.loopback-no-admin", nil},
			"a started agent": {Caller{Who: principal.New("spawn:abc"), Processes: []string{"boot/9@9"}, Complete: true}, "default.nobody", nil},
			"no principal":    {Caller{Processes: []string{"boot/9@9"}, Complete: true}, "default.nobody", nil},
		} {
			var err error
			lines := d.since(func() { err = act(c.by) })
			var refusal *gate.Refusal
			if c.is != nil && !errors.Is(err, c.is) || c.is == nil && !errors.As(err, &refusal) {
				t.Errorf("%s, %s: %v", what, name, err)
			}
			if len(lines) != 1 || lines[0].Decision != audit.Deny || lines[0].Rule != c.rule && c.is != nil || lines[0].Action != "admin" || lines[0].Resource != "/instructions/"+what {
				t.Errorf("%s, %s: %+v", what, name, lines)
			}
		}
	}
	d.agents = nil
	for what, act := range acts {
		var err error
		lines := d.since(func() { err = act(human()) })
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if what == "put" { // the store records, besides, that the new file became production
			lines = slices.DeleteFunc(lines, func(l logged) bool { return l.Kind == audit.Event })
		}
		if len(lines) != 1 || lines[0].Decision != audit.Allow || lines[0].Action != "admin" || lines[0].Resource != "/instructions/"+what || lines[0].Principal != "uid:1000" {
			t.Errorf("%s: %+v", what, lines)
		}
	}
}

// An act that cannot be done is refused with its reason, writes one record and
// changes nothing.
func TestAnImpossibleActIsRefusedAndRecordedOnce(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	first := d.versionOf(t, "plan")
	content := func(s string) string { return strings.NewReplacer("\n", `\n`, `"`, `\"`).Replace(s) }
	for _, c := range []struct {
		status             int
		code, detail       string
		method, path, body string
	}{
		{404, "not_found", "", "GET", "/auth/admin/templates/nothing", ""},
		{404, "not_found", "", "GET", "/auth/admin/templates/nothing?version=production", ""},
		{404, "not_found", "", "GET", "/auth/admin/templates/plan?version=ffffffffffff", ""},
		{404, "not_found", "", "GET", "/auth/admin/templates/plan?version=beta", ""},
		{400, "malformed", "", "GET", "/auth/admin/templates/plan?version=../x", ""},
		{400, "malformed", "", "GET", "/auth/admin/templates/plan?label=production", ""},
		{404, "not_found", "", "POST", "/auth/admin/templates/nothing/promote", `{}`},
		{404, "not_found", "", "POST", "/auth/admin/templates/plan/promote", `{"version":"ffffffffffff"}`},
		{400, "malformed", "", "POST", "/auth/admin/templates/plan/promote", `{"label":"A"}`},
		{400, "malformed", "", "POST", "/auth/admin/templates/plan/promote", `{"version":"` + strings.Repeat("f", 65) + `"}`},
		{400, "malformed", "", "POST", "/auth/admin/templates/plan/promote", `{"name":"x"}`},
		{409, "conflict", "no earlier", "POST", "/auth/admin/templates/plan/rollback", ""},
		{400, "malformed", "", "POST", "/auth/admin/templates/plan/rollback", `{"version":"` + first + `"}`},
		{404, "not_found", "", "POST", "/auth/admin/templates/nothing/rollback", ""},
		{404, "not_found", "", "POST", "/auth/admin/templates/nothing/revoke", ""},
		{400, "malformed", "", "POST", "/auth/admin/templates/plan/revoke", `{"version":1}`},
		{404, "not_found", "", "POST", "/auth/admin/canary", `{"ref":"dwi-aaaaaaaaaaaaaaaa"}`},
		{400, "malformed", "", "POST", "/auth/admin/canary", `{"ref":"umber"}`},
		{400, "malformed", "", "POST", "/auth/admin/canary", ``},
		{404, "not_found", "", "POST", "/auth/admin/sessions/0123456789abcdef/revoke", ""},
		{400, "malformed", "", "PUT", "/auth/admin/templates/fresh", `{}`},
		{400, "malformed", "", "PUT", "/auth/admin/templates/fresh", `{"content":1}`},
		{400, "malformed", "", "PUT", "/auth/admin/templates/fresh", `{"content":"x","replace":"../x"}`},
		{413, "too_large", "", "PUT", "/auth/admin/templates/fresh", `{"content":"` + strings.Repeat("a", 300<<10) + `"}`},
		{413, "too_large", "", "PUT", "/auth/admin/templates/fresh", `{"content":"` + strings.Repeat("a", 2<<20) + `"}`},
		{422, "invalid_document", "", "PUT", "/auth/admin/templates/fresh", `{"content":""}`},
		{422, "invalid_document", "", "PUT", "/auth/admin/templates/fresh", `{"content":"` + content("---\nname: fresh\nclas: voice\n---\nA fresh one.\n") + `"}`},
		{422, "invalid_document", "", "PUT", "/auth/admin/templates/fresh", `{"content":"` + content("---\nname: other\nclass: template\n---\nA fresh one.\n") + `"}`},
		{409, "conflict", "absent", "PUT", "/auth/admin/templates/plan", `{"content":"` + content("---\nname: plan\nclass: template\n---\nA fresh one.\n") + `","replace":"ffffffffffff"}`},
	} {
		var r *reply
		lines := d.since(func() { r = d.want(c.status, c.code, me, c.method, c.path, c.body) })
		if !strings.Contains(r.body, `"detail":"`+c.detail) && c.detail != "" {
			t.Errorf("%s %s: %s", c.method, c.path, r.body)
		}
		denied := slices.DeleteFunc(slices.Clone(lines), func(l logged) bool { return l.Decision != audit.Deny })
		if len(denied) != 1 {
			t.Errorf("%s %s %.60s: %+v", c.method, c.path, c.body, lines)
		}
	}
	if r := d.do(me, "PUT", "/auth/admin/templates/fresh", `{"content":"`+content("---\nname: fresh\nclas: voice\n---\nx\n")+`"}`); !strings.Contains(r.body, `"line":3`) {
		t.Errorf("no line: %s", r.body)
	}
	if names, err := filepath.Glob(filepath.Join(d.docs, "*fresh*")); err != nil || len(names) > 0 {
		t.Errorf("%v %v", names, err)
	}
	d.want(200, "", me, "POST", "/auth/admin/templates/plan/revoke", `{"version":"`+first+`"}`)
	d.want(409, "conflict", me, "POST", "/auth/admin/templates/plan/promote", `{"version":"`+first+`"}`)
}

// A document of the largest size can be put, even when JSON escapes each of its
// bytes.
func TestALargeDocumentCanBePut(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	head := `---\nname: large\nclass: template\n---\n`
	room := document.MaxBytes - len("---\nname: large\nclass: template\n---\n") - 1
	d.want(200, "", me, "PUT", "/auth/admin/templates/large", `{"content":"`+head+strings.Repeat(`\u0061`, room)+`\n"}`)
	b, err := os.ReadFile(filepath.Join(d.docs, "large.md"))
	if err != nil || len(b) != document.MaxBytes {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestAnAgentsShellIsToldApartFromAnUnknownShell(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	d.agents = []string{"boot/5@5"}
	if r := d.want(403, "agent_shell", me, "GET", "/auth/admin/templates", ""); !strings.Contains(r.body, `"why":"agent"`) {
		t.Errorf("%s", r.body)
	}
	if r := d.want(403, "agent_shell", caller{who: "uid:1000", net: "unix"}, "GET", "/auth/admin/templates", ""); !strings.Contains(r.body, `"why":"unknown"`) {
		t.Errorf("%s", r.body)
	}
	// A malformed request has the same refusal.
	d.want(403, "agent_shell", me, "POST", "/auth/admin/canary", `{`)
	d.want(403, "agent_shell", me, "GET", "/auth/admin/templates?x=1", "")
	d.want(403, "agent_shell", me, "PUT", "/auth/admin/templates/plan", `{"content":"x"}`, "Content-Type", "text/plain")
	// It can still open a session as a reader.
	d.want(201, "", me, "POST", "/auth/session", "")
}

// An Operator works without a server, for a command while no daemon runs. Acts on
// sessions are refused as offline.
func TestAnOperatorWithoutADaemon(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	who := principal.New("uid:1000", principal.Fact{Name: "uid", Value: "1000", Grade: principal.Attested}).WithLocal()
	o := New(Options{Library: h.lib, Shelf: h.lib, Gate: h.gate, Shell: func(context.Context, []string, bool) error { return nil }}).Operator()
	if list, err := o.List(t.Context(), Caller{Who: who}); err != nil || len(list.Templates) == 0 {
		t.Fatalf("%+v %v", list, err)
	}
	if status, err := o.Status(t.Context(), Caller{Who: who}); err != nil || status.Sessions != nil {
		t.Fatalf("%+v %v", status, err)
	}
	for _, err := range []error{second(o.Sessions(t.Context(), Caller{Who: who})), second(o.RevokeSession(t.Context(), Caller{Who: who}, "0123456789abcdef")),
		second(o.IssueCI(t.Context(), Caller{Who: who}, CIRequest{Scope: []string{document.Structural}}))} {
		if p, _ := problemOf(err); p.Code != "conflict" || !strings.HasPrefix(p.Detail, "offline") {
			t.Errorf("%v", err)
		}
	}
	o = New(Options{Library: h.lib, Shelf: h.lib, Gate: h.gate}).Operator()
	if _, err := o.List(t.Context(), Caller{Who: who}); !errors.Is(err, ErrShell) {
		t.Errorf("without a check for agents it is let in: %v", err)
	}
}

func TestALabelMovedByAFileIsRecordedAsAnEvent(t *testing.T) {
	t.Parallel()
	r := Entered(&library.Act{Op: library.OpFile, Name: "plan", Label: library.Production,
		Moves: []library.Move{{From: strings.Repeat("a", 64), To: strings.Repeat("b", 64)}, {Variant: "12345678", To: strings.Repeat("c", 64)}}}).(*audit.Record)
	want := []audit.Field{field("name", "plan"), field("label", "production"), field("moves", ":aaaaaaaaaaaa>bbbbbbbbbbbb,12345678:>cccccccccccc")}
	if r.Kind != audit.Event || r.Source != source || r.Action != "instructions.file" || r.Resource != "instructions/plan" || !slices.Equal(r.Detail, want) {
		t.Errorf("%+v", r)
	}
}
