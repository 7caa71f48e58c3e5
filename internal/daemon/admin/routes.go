package admin

import (
	"context"
	"maps"
	"net/http"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
)

// Paths returns the handlers by path.
func Paths(o Options) map[string]handler {
	paths := map[string]handler{
		"/admin/v1/status":  o.guarded("status", func(*http.Request) (any, int) { return o.Status(), http.StatusOK }),
		"/admin/v1/explain": o.guarded("explain", o.explain),
		"/admin/v1/policy":  o.guarded("policy", func(*http.Request) (any, int) { return Policy{Text: o.Policy()}, http.StatusOK }),
		"/admin/v1/whoami":  whoami,

		"/admin/v1/audit/kept": o.guarded("audit", func(r *http.Request) (any, int) { return o.Kept(r) }),
		"/admin/v1/audit/prune": o.posted("audit/prune", func(ctx context.Context, who *principal.Principal, body []byte) (any, int) {
			return o.Prune(ctx, who, body)
		}),

		"/admin/v1/trust":      o.trust(),
		"/admin/v1/trust/look": o.trustLook(),

		"/metrics": o.metrics(),
	}
	maps.Copy(paths, o.agentPaths())
	maps.Copy(paths, o.uiPaths())
	maps.Copy(paths, o.controlPaths())
	maps.Copy(paths, o.approvalPaths())
	return paths
}

func whoami(w http.ResponseWriter, r *http.Request, who *principal.Principal) {
	if !isMethod(w, r, http.MethodGet) {
		return
	}
	answer(w, http.StatusOK, Whoami{Principal: who.Name(), Facts: who.FactsJSON()})
}

// explain returns the decision about an act without executing it.
func (o Options) explain(r *http.Request) (any, int) {
	q := r.URL.Query()
	if _, _, err := principal.Parse(q.Get("as")); err != nil {
		return nil, http.StatusBadRequest
	}
	ask := policy.Request{Who: principal.New(q.Get("as")), Action: q.Get("action"), Server: q.Get("server"), Name: q.Get("name"),
		SameProgram: q.Get("confirmed") == "true"}
	if q.Get("local") == "true" {
		ask.Who = ask.Who.WithLocal()
	}
	if q.Has("args") {
		ask.Args = []byte(q.Get("args"))
	}
	d := o.Decide(ask)
	e := Explanation{Decision: "deny", Rule: d.Rule, Reason: d.Reason, At: d.At}
	if d.Allow {
		e.Decision, e.Ask = "allow", d.Ask.Rule
	}
	if e.Ask != "" {
		e.Grant = o.grantOf(ask)
	}
	return e, http.StatusOK
}
