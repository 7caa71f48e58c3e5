package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// Call implements upstream.Conn.
func (c *conn) Call(ctx context.Context, r *upstream.Request, on func(upstream.Event)) (upstream.Reply, error) {
	if c.Context.Err() != nil {
		return upstream.Reply{}, fmt.Errorf("the agent server: %w", upstream.ErrNotSent)
	}
	if on == nil {
		on = c.on
	}
	switch r.Method {
	case "tools/call":
		return c.s.call(ctx, c, r, on)
	case "tools/list":
		return c.list("tools", c.s.tools), nil
	case "resources/list":
		return c.list("resources", resourceList), nil
	case "resources/templates/list":
		return c.list("resourceTemplates", []byte("[]")), nil
	case "resources/read":
		return c.read(ctx, r)
	case "resources/subscribe", "resources/unsubscribe":
		return c.subscribe(ctx, r), nil
	case "subscriptions/listen":
		return c.listen(ctx, r, on)
	case "ping":
		return upstream.Reply{Result: []byte("{}")}, nil
	}
	return upstream.Reply{Error: errNoMethod}, nil
}

// call runs one tools/call. It checks, in this order, that the call has passed the gate,
// that the tool exists, that the caller is valid and local, then the rate, the arguments
// and the policy; the verb then does the rest in one transaction of the book. Only the
// gate's pass identifies the caller.
func (s *Server) call(ctx context.Context, cn *conn, r *upstream.Request, on func(upstream.Event)) (upstream.Reply, error) {
	pass, ok := gate.PassOf(ctx)
	if !ok {
		return upstream.Reply{Error: errNoPass}, nil
	}
	if pass.Act().Who.Key() != cn.who.Key() || pass.Act().Session != cn.digest {
		return upstream.Reply{Error: errNoPass}, pass.Refuse(rulePrefix+"FOREIGN_PASS", gate.CodeDenied).Err
	}
	name, _ := rawjson.GetString(r.Params, "name")
	v := s.verbs[name]
	if v == nil {
		if refusal := pass.Refuse(rulePrefix+"UNKNOWN_TOOL", gate.CodeDenied); refusal.Err != nil {
			return upstream.Reply{}, refusal.Err
		}
		return upstream.Reply{Error: errNoTool}, nil
	}
	c := &call{s: s, verb: v, pass: pass.As(v.action, ServerName+"/"+v.name, pass.Rule()), raw: rawjson.Get(r.Params, "arguments")}
	c.addressing, c.starting = addressing{c}, starting{c}
	c.namespace, c.former = namespaceOf(r), formerOf(r)
	c.progress = progressOf(r, on)
	a, err := c.run(ctx)
	return c.finish(ctx, cn, a, err)
}

// finish returns the reply to a call with the outcome of its verb.
func (c *call) finish(ctx context.Context, cn *conn, a *answer, err error) (upstream.Reply, error) {
	var p *paused
	if errors.As(err, &p) {
		return upstream.Reply{}, p.waiting(cn)
	}
	if isHeld(err) {
		return upstream.Reply{}, err
	}
	if err != nil {
		if a, err = c.refused(err); err != nil {
			return upstream.Reply{}, err
		}
	}
	if cn.Context.Err() != nil && cn.digest != "" {
		c.s.sessions.end(cn.who, cn.digest, true)
		c.s.nudge()
	}
	c.tally(a)
	out, err := a.encode(cn.modern)
	if a.then != nil && err == nil && ctx.Err() == nil && !upstream.Left(ctx) {
		a.then()
	}
	return upstream.Reply{Result: out, Plain: a.plain}, err
}

// run makes the checks of a call and runs its verb.
func (c *call) run(ctx context.Context) (*answer, error) {
	who := c.pass.Act().Who
	if !who.Valid() || !who.Local() {
		return nil, refuse(Unauthenticated)
	}
	u := asCall
	if c.namespace != "" {
		u = asBridged
	}
	c.session = c.s.sessions.of(who, c.pass.Act().Session, u)
	c.owner, c.before = c.s.sessions.ownerOf(c.session), names(c.s.sessions, c.session)
	if err := c.withinPace(); err != nil {
		return nil, err
	}
	var err error
	if c.args, err = c.verb.parseArgs(c.raw); err != nil {
		return nil, err
	}
	d := c.ask(c.verb.action, nil)
	if !d.Allow {
		return nil, denied(d.Rule)
	}
	c.pass, c.asked = c.pass.As(c.verb.action, ServerName+"/"+c.verb.name, d.Rule), d.Ask
	return c.verb.do(ctx, c)
}

// withinPace charges the call to its limiter, or refuses it. A call that was held has
// been charged before.
func (c *call) withinPace() error {
	if c.pass.Given != nil {
		return nil
	}
	t, l := c.s.sessions, c.s.o.Limits
	var wait time.Duration
	text := "too many sends of this peer"
	switch c.verb.pace {
	case paceOfSends:
		wait = t.paces.admit(t.paceOf(c.session), l.SendsPerMinute, l.Burst)
	case paceOfRegisters:
		wait, text = t.paces.admit("register\x00"+c.owner.Principal, l.RegistersPerMinute, l.RegisterBurst), "too many registrations of this principal"
	}
	if wait > 0 {
		return &problem{code: RateLimited, retry: wait, text: text}
	}
	return nil
}

// refused records a refusal, once, and returns its answer. A call whose client has left
// is recorded unless what it has done is recorded already, and the error of its context
// is returned.
func (c *call) refused(err error) (*answer, error) {
	p := problemOf(err)
	switch p.code {
	case RateLimited:
		c.s.stopped.count(c.pass, p.code, time.Now())
		return p.answer(), nil
	case cancelled:
		if c.recorded {
			return nil, p.err
		}
	case mail.AuditUnavailable, mail.StoreUnavailable, unexpected:
		c.s.quiet.failed(c.verb.name, p.code, p.err, time.Now())
	}
	fields := append(slices.Clone(c.details), field("code", p.code))
	if p.rule != "" {
		fields = append(fields, field("policy", p.rule))
	}
	if p.uncertain {
		fields = append(fields, field("outcome", "unknown"))
	}
	fields = append(fields, idFields("recipients", p.to)...)
	if refusal := c.pass.Refuse(rulePrefix+p.code, gate.CodeDenied, fields...); refusal.Err != nil {
		c.s.quiet.failed(c.verb.name, mail.AuditUnavailable, refusal.Err, time.Now())
		p = &problem{code: mail.AuditUnavailable}
	}
	if p.code == cancelled {
		return nil, p.err
	}
	return p.answer(), nil
}

// tally counts the outcomes of sends.
func (c *call) tally(a *answer) {
	if c.verb.pace != paceOfSends {
		return
	}
	switch out := a.out.(type) {
	case failure:
		c.s.sends.Add(out.Error.Code)
	case sendOut:
		word := "accepted"
		if out.Replay {
			word = "replay"
		}
		c.s.sends.Add(word)
	}
}

// namespaceOf returns the namespace of the caller's project, as its shim sent it; empty:
// none.
func namespaceOf(r *upstream.Request) string {
	if v := r.Headers[protocol.HeaderNamespace]; len(v) == 1 && protocol.ValidNamespace(v[0]) {
		return v[0]
	}
	return ""
}

// formerOf returns the name of the session that the caller's session replaces, as its shim
// sent it; empty: none.
func formerOf(r *upstream.Request) string {
	if v := r.Headers[protocol.HeaderFormer]; len(v) == 1 && protocol.ValidSessionDigest(v[0]) {
		return legacyPrefix + v[0]
	}
	return ""
}

// progressOf returns a function that sends progress notifications; nil: the client did not ask
// for them.
func progressOf(r *upstream.Request, on func(upstream.Event)) func(int) {
	if r.ProgressToken == nil || on == nil {
		return nil
	}
	return func(n int) {
		params := rawjson.Set(nil, rawjson.Edit{Key: "progressToken", Value: r.ProgressToken},
			rawjson.Edit{Key: "progress", Value: wire.IntID(int64(n))}, rawjson.Edit{Key: "message", Value: []byte(`"waiting"`)})
		on(upstream.Event{Method: "notifications/progress", Params: params})
	}
}
