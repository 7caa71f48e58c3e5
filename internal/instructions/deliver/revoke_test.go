package deliver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/session"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// A new token with the name of a revoked one does not get its sessions.
func TestASessionDoesNotPassToTheNextTokenOfItsName(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	var made Issued
	d.want(201, "", loopback, "POST", "/auth/session", "", as(bearerCI)...).into(t, &made)
	if s, _ := d.keeper.Find(made.SessionID); s.Maker != "1" {
		t.Fatalf("its maker is %q", s.Maker)
	}
	d.s.web.forget(made.SessionID) // as after a restart
	d.want(200, "", loopback, "GET", "/auth/templates/plan", "", as(made.Token)...)
	d.s.ends.revoke(t.Context())
	d.want(200, "", loopback, "GET", "/auth/templates/plan", "", as(made.Token)...)
	d.mu.Lock()
	d.tokens[bearerCI] = principal.New("token:ci", principal.Fact{Name: "token", Value: "9", Grade: principal.Verified})
	d.mu.Unlock()
	d.want(401, "unauthenticated", loopback, "GET", "/auth/templates/plan", "", as(made.Token)...)
	if r, why := d.s.readers.readerOf(gate.Act{Who: principal.New("loopback:uid=1000"), Delivery: made.SessionID}); r != nil || why != Expired {
		t.Errorf("on MCP it reads: %+v %s", r, why)
	}
	d.s.ends.revoke(t.Context())
	if s, _ := d.keeper.Find(made.SessionID); s.Reason != session.ReasonRevoked {
		t.Errorf("its row says %q", s.Reason)
	}
}

// Over TCP a session reads as its own principal. Policy must permit both that
// principal and the connection's.
func TestASessionOverTCPReadsAsItsOwn(t *testing.T) {
	t.Parallel()
	const all = `@id("all") permit (principal, action in Action::"instructions", resource);
@id("use") permit (principal in Kind::"loopback", action, resource);
`
	forbid := func(kind string) string {
		return all + `@id("not") forbid (principal in Kind::"` + kind + `", action == Action::"instructions.read", resource) when { resource.name == "plan" };`
	}
	d := openDesk(t, plan{rules: all})
	d.file("ours", "class: template\ntier: structural\naudience: {principals: [\"token:ci\"]}", "For the job.")
	d.look()
	_, id := d.issue("token:ci", document.Structural)
	c := d.open(principal.New("loopback:uid=1000").WithLocal(), "", id, true)
	read := func(name string) string { text, _ := c.tool("read", m{"name": name}); return text }
	if text := read("ours"); !strings.Contains(text, "For the job.") {
		t.Errorf("its own audience: %s", text)
	}
	ofOthers := func(e logged) bool { return e.Kind == "event" } // records of files
	if l := slices.DeleteFunc(d.lines(), ofOthers); len(l) != 1 || l[0].Principal != "loopback:uid=1000" || l[0].Detail["subject"] != "token:ci" || l[0].Detail["session"] != id {
		t.Errorf("%+v", l)
	}
	if text := read("plan"); !strings.Contains(text, plantedPlan) {
		t.Errorf("allowed: %s", text)
	}
	for _, kind := range []string{"token", "loopback"} {
		d.gate.SetPolicy(d.rules(forbid(kind)))
		d.s.Policy()
		if text := read("plan"); text != textUnknown {
			t.Errorf("forbidden to %s: %s", kind, text)
		}
		if text, _ := c.greeting("server/discover"); strings.Contains(text, plantedPlan) {
			t.Errorf("forbidden to %s: it is greeted %s", kind, text)
		}
	}
	d.gate.SetPolicy(d.rules(all + `@id("none") forbid (principal in Kind::"token", action in Action::"instructions", resource);`))
	d.s.Policy()
	if text, less := c.greeting("server/discover"); less != NotPermitted || strings.Contains(text, plantedPlan) {
		t.Errorf("%s: %s", less, text)
	}
}

// A session ends while the database is away, by its holder and by the operator,
// and each end has its record.
func TestASessionEndsWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{})
	mine, _ := d.issue("uid:1000", document.Structural)
	theirs, id := d.issue("uid:1000", document.Structural)
	d.must(d.db.Close())
	d.want(204, "", me, "DELETE", "/auth/session", "", as(mine)...)
	d.want(401, "unauthenticated", me, "GET", "/auth/session", "", as(mine)...)
	if info, err := d.s.Operator().RevokeSession(t.Context(), human(), id); err != nil || info.Reason != session.ReasonRevoked {
		t.Errorf("%+v %v", info, err)
	}
	d.want(401, "unauthenticated", me, "GET", "/auth/session", "", as(theirs)...)
	var got []string
	for _, r := range d.records() {
		if r.Detail["subject"] == "uid:1000" {
			got = append(got, r.Action+" "+r.Resource)
		}
	}
	if len(got) != 2 {
		t.Errorf("records: %v", got)
	}
}

// While the database that knows the agents is unreachable, the operator is told so,
// and not that an agent is above the shell.
func TestAnUnreachableDatabaseIsNotReportedAsAnAgent(t *testing.T) {
	t.Parallel()
	d := openDesk(t, plan{change: func(o *Options) {
		o.Shell = func(context.Context, []string, bool) error {
			return fmt.Errorf("asking: %w", errors.Join(ErrStore, errors.New("away")))
		}
	}})
	d.want(503, "store_unreachable", me, "GET", "/auth/admin/templates", "")
}
