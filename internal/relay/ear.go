package relay

import (
	"context"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/naming"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/relay/subscribe"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/upstream"
)

// ear receives the events of one server for a subscription.
type ear struct {
	sub  *subscription
	b    *backend
	link *link
	w    *watcher
	pass gate.Pass
	stop func()
	left bool // the outcome is recorded
	// tasks maps the server's task ids to the client's.
	tasks map[string]string
}

func (e *ear) close() {
	e.stop()
	e.b.traffic.leaveStream()
	if !e.left {
		e.pass.Leave("ended", 0)
	}
}

// fail ends a listen that the server did not accept.
func (e *ear) fail(ctx context.Context, err error) front.Reply {
	e.left = true
	return e.sub.from.failures.fail(ctx, e.b.Name, e.pass, err)
}

// deliver queues an event if policy still lets the client receive it.
func (e *ear) deliver(ev upstream.Event) {
	x := e.sub.x
	if !e.sub.from.sight.mayHear(x.Who, e.b, ev, x.SameProgram) {
		return
	}
	switch {
	case ev.Method == protocol.TaskChanged:
		if !e.ofTask(&ev) {
			return
		}
	case x.Server == "":
		ev.Params = naming.Event(e.b.Name, ev)
	}
	e.sub.put(ev)
}

// ofTask rewrites a notification about a task with the client's names. False: the client must
// not receive its questions.
func (e *ear) ofTask(ev *upstream.Event) bool {
	x := e.sub.x
	to := question.Client{X: front.Exchange{Who: x.Who, SameProgram: x.SameProgram, Delivery: x.Delivery}, Caps: e.sub.caps}
	if !e.link.asks.questions.passes(func() question.Client { return to }, ev) {
		return false
	}
	inner, _ := rawjson.GetString(ev.Params, "taskId")
	if x.Server == "" {
		ev.Params = naming.Server(e.b.Name).Result("tasks/get", ev.Params)
	}
	ev.Params = rawjson.Set(ev.Params, rawjson.Edit{Key: "taskId", Value: rawjson.AppendQuote(nil, e.tasks[inner])})
	return true
}

// open waits until the server listens for this subscription, and adds what the server honours
// to what is granted. After the acknowledgement has been sent, the client is told to list
// again instead.
func (e *ear) open(ctx context.Context) error {
	got, err := e.cover(ctx)
	if err != nil {
		return err
	}
	s := e.sub
	s.mu.Lock()
	late := s.acked
	if !late {
		g := s.granted
		g.Tools, g.Prompts, g.Resources = g.Tools || got.Tools, g.Prompts || got.Prompts, g.Resources || got.Resources
		for uri := range got.URIs {
			g.URIs[naming.URI(s.x.Server == "", e.b.Name, uri)] = true
		}
		for id := range got.Tasks {
			g.Tasks[e.tasks[id]] = true
		}
		g.Rest = got.Rest
	}
	s.mu.Unlock()
	for _, m := range []string{protocol.ToolsChanged, protocol.PromptsChanged, protocol.ResourcesChanged} {
		if late && s.want.Wants(m, nil) {
			s.put(upstream.Event{Method: m})
		}
	}
	return nil
}

// persist retries open until it succeeds. The first outcome, of whatever kind, is reported on
// settled.
func (e *ear) persist(ctx context.Context, settled chan<- struct{}) {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		err := e.open(ctx)
		if settled != nil {
			settled <- struct{}{}
			settled = nil
		}
		if err == nil {
			return
		}
		e.sub.from.log.Debug("listening to server failed", "server", e.b.Name, "err", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		case <-e.link.ctx.Done():
			return
		}
	}
}

// cover makes the server listen for this subscription, as an observed stage.
func (e *ear) cover(ctx context.Context) (*subscribe.Filter, error) {
	cover := e.coverServer
	if e.b.Builtin != nil {
		cover = e.coverBuiltin
	}
	w := e.sub.from.watch.traces()
	act := e.pass.Act()
	inner, m := w.stage(ctx, StageServer, &act)
	got, err := cover(inner, e.w)
	w.end(m, serverWord(ctx, e.b.Name, upstream.Reply{}, err))
	return got, err
}

// coverServer is hub.cover within the server's limit for a call: a server may never acknowledge.
func (e *ear) coverServer(ctx context.Context, w *watcher) (*subscribe.Filter, error) {
	ctx, cancel := e.b.limited(ctx)
	defer cancel()
	return e.link.hub.cover(ctx, w)
}

// coverBuiltin is hub.cover for a built-in server. Each listen of a client is one listen of
// that server, under the pass that let the client in: its events are for that client and for
// the tokens of that request, and for no other client of the connection. It runs until ctx
// ends. When the server ends it, the whole subscription ends, because the client could not
// know what it missed, and its next listen may carry other tokens.
func (e *ear) coverBuiltin(ctx context.Context, w *watcher) (*subscribe.Filter, error) {
	c, err := e.link.get(ctx)
	if err != nil {
		return nil, err
	}
	req := upstream.Request{Method: "subscriptions/listen", Params: e.sub.from.watch.traced(ctx, era.OwnParams(c.meta, rawjson.Edit{Key: "notifications", Value: w.want.JSON()}))}
	granted, refused := make(chan *subscribe.Filter, 1), make(chan error, 1)
	go func() {
		acked := false
		_, err := c.conn.Call(gate.WithPass(ctx, e.pass), &req, func(ev upstream.Event) {
			switch {
			case ev.Method == "notifications/subscriptions/acknowledged":
				if !acked {
					acked = true
					granted <- subscribe.ParseFilter(rawjson.Get(ev.Params, "notifications"))
				}
			case protocol.IsChange(ev.Method):
				e.deliver(ev)
			}
		})
		switch {
		case !acked:
			refused <- err
		case ctx.Err() == nil && e.link.ctx.Err() == nil:
			e.sub.from.log.Info("a built-in server ended a listen", "server", e.b.Name, "err", err)
			e.sub.end()
		}
	}()
	select {
	case got := <-granted:
		return w.want.Both(got), nil
	case err := <-refused:
		return new(subscribe.Filter), err // without an error: the server reports no changes
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
