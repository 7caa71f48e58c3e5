package console

import (
	"net/http"
	"strings"
)

func (c *Console) allRoutes() map[string]route {
	all := map[string]route{
		"GET /":                   {what: "now", show: c.now},
		"GET /live":               {what: "live", raw: c.live},
		"POST /sign-out":          {what: "sign-out", raw: c.signOut},
		"GET /activity":           {what: "activity", show: c.activity},
		"GET /activity/record":    {what: "activity", show: c.oneRecord},
		"GET /decisions":          {what: "decisions", show: c.decisions},
		"POST /decisions/call":    {what: "decisions/call", act: acts{c}.settleCall},
		"POST /decisions/trust":   {what: "decisions/trust", act: acts{c}.approveDefinition},
		"POST /decisions/message": {what: "decisions/message", act: acts{c}.settleMessage},
		"GET /servers":            {what: "servers", show: c.servers},
		"GET /servers/one":        {what: "servers", show: c.server},
		"GET /servers/item":       {what: "servers", show: c.definition},
		"POST /servers/restart":   {what: "servers/restart", act: acts{c}.restart},
		"POST /servers/look":      {what: "servers/look", act: acts{c}.look},
		"GET /agents":             {what: "agents", show: c.agents},
		"GET /agents/one":         {what: "agents", show: c.peer},
		"GET /agents/message":     {what: "agents", show: c.message},
		"POST /agents/send":       {what: "agents/send", act: acts{c}.send},
		"POST /agents/pause":      {what: "agents/pause", act: acts{c}.pause},
		"POST /agents/stop":       {what: "agents/stop", act: acts{c}.stopAgent},
		"GET /instructions":       {what: "instructions", show: c.instructions},
		"GET /instructions/one":   {what: "instructions", show: c.document},
		"POST /instructions/move": {what: "instructions/move", act: acts{c}.moveLabel},
		"GET /policy":             {what: "policy", show: c.policy},
		"GET /health":             {what: "health", show: c.health},
	}
	passkeyPages{c}.routes(all)
	return all
}

// route serves a request of a session.
func (c *Console) route(w http.ResponseWriter, r *http.Request, v Visit, s *session, path string) {
	q := &request{c: c, w: w, r: r, v: v, s: s, ctx: r.Context(), path: path}
	to, ok := c.routes[r.Method+" "+path]
	if !ok {
		q.failed(errNotFound)
		return
	}
	if err := q.read(); err != nil {
		q.failed(err)
		return
	}
	if err := q.serve(to); err != nil {
		q.failed(err)
	}
}

// Serve answers a request below Prefix. The front has checked Host and Origin;
// Serve makes the stricter checks of the console.
func (c *Console) Serve(w http.ResponseWriter, r *http.Request, v Visit) {
	protect(w.Header())
	path, _, _ := strings.Cut(r.RequestURI, "?")
	path = "/" + strings.TrimPrefix(path, Prefix)
	if name, ok := strings.CutPrefix(path, "/static/"); ok {
		c.views.serveStatic(w, r, name)
		return
	}
	if !loopbackHost(r.Host) {
		c.o.Refused(r, "the console was requested under a host name that is not this machine's")
		http.Error(w, http.StatusText(http.StatusForbidden), http.StatusForbidden)
		return
	}
	if path == "/session" {
		c.signIn(w, r, v)
		return
	}
	s := c.sessions.find(cookie(r, v), v)
	if s == nil {
		c.signInPage(w, r, path)
		return
	}
	c.route(w, r, v, s, path)
}
