package relay

import (
	"bytes"
	"context"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/era"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/relay/naming"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// outgoing makes the upstream request of an exchange: the params as they came, apart from
// what the eras and the sealed handles require.
func (tr *translation) outgoing(ctx context.Context, x *front.Exchange, l *link, c *liveConn, t *target) (upstream.Request, error) {
	req := upstream.Request{Method: t.Method(), Params: t.Params()}
	if err := taskError(x, l, c, t); err != nil {
		return req, err
	}
	// A server's progress may be read after the call has ended, when the buffer of its params
	// is used again, so the token is a copy.
	meta, misspelt := survey(t.Params())
	req.ProgressToken = bytes.Clone(rawjson.Get(meta, "progressToken"))
	params, err := tr.openHandles(x, l, c, t, misspelt)
	if err != nil {
		return req, err
	}
	switch {
	case x.Era == front.Legacy && c.era == front.Modern:
		params = rawjson.SetIn(params, "_meta", tr.modernMeta(x, l.b)...)
	case x.Era == front.Modern && c.era == front.Legacy:
		params = rawjson.SetIn(params, "_meta", era.LegacyMeta...)
	case x.Era == front.Modern:
		if caps, changed := tr.narrow(x, l.b, rawjson.GetPath(params, "_meta", wire.MetaCapabilities)); changed {
			params = rawjson.SetIn(params, "_meta", rawjson.Edit{Key: wire.MetaCapabilities, Value: caps})
		}
	}
	req.Params = tr.watch.traced(ctx, params)
	if x.Era == front.Modern || c.era == front.Modern {
		return req, tr.mirror(ctx, x, l, c, t, &req)
	}
	return req, nil
}

// modernMeta returns what a modern server needs in the _meta of every request, for a legacy
// client. It declares the capabilities of the client's session that Doorward can serve across
// the eras.
func (tr *translation) modernMeta(x *front.Exchange, b *backend) []rawjson.Edit {
	info := rawjson.Get(x.Session.Init.Params(), "clientInfo")
	if info == nil {
		info = tr.info
	}
	edits := []rawjson.Edit{
		{Key: wire.MetaVersion, Value: []byte(`"` + protocol.LatestModern + `"`)},
		{Key: wire.MetaCapabilities, Value: tr.carried(x, b, rawjson.Get(x.Session.Init.Params(), "capabilities"))},
		{Key: wire.MetaClientInfo, Value: info},
	}
	if level := bound(x.Session).memory.levelOf(); level != nil {
		edits = append(edits, rawjson.Edit{Key: wire.MetaLogLevel, Value: level})
	}
	return edits
}

// incoming makes the client's answer from a server's: the bytes that came, apart from what
// the eras and the sealed handles require.
func (tr *translation) incoming(x *front.Exchange, l *link, c *liveConn, t target, reply upstream.Reply) (upstream.Reply, error) {
	reply, err := tr.translated(x, l, c, &t, reply)
	if err != nil || x.Server != "" {
		return reply, err
	}
	if reply.Error != nil {
		reply.Error = naming.Server(l.b.Name).Failure(reply.Error)
	} else if !listing.Is(t.Method()) {
		reply.Result = naming.Server(l.b.Name).Result(t.Method(), reply.Result)
	}
	return reply, nil
}

// later returns incoming for the reply to a call that waits.
func (tr *translation) later(x *front.Exchange, l *link, c *liveConn, t target) func(context.Context, upstream.Reply, error) (upstream.Reply, error) {
	return func(_ context.Context, reply upstream.Reply, err error) (upstream.Reply, error) {
		if err != nil {
			return reply, err
		}
		return tr.incoming(x, l, c, t, reply)
	}
}

// translated is incoming with the server's own names.
func (tr *translation) translated(x *front.Exchange, l *link, c *liveConn, t *target, reply upstream.Reply) (upstream.Reply, error) {
	url := needsURL(x, c, t.Method(), reply.Error)
	reply, err := l.asks.questions.inReply(x, reply)
	switch {
	case err != nil && url && !question.HasURLMode(x):
		return upstream.Reply{Error: failure.NeedsURL}, nil
	case err != nil:
		return reply, err
	case url:
		return tr.urlRequired(x, t, reply.Error)
	case reply.Error != nil:
		reply.Error = era.Error(x.Era, c.era, reply.Error)
		return reply, nil
	}
	if x.Era == front.Modern || c.era == front.Modern {
		switch kind, _ := rawjson.GetString(reply.Result, "resultType"); {
		case kind == "input_required":
			return tr.inputRequired(x, c, t, reply)
		case x.Era == front.Legacy && kind != "" && kind != "complete":
			return upstream.Reply{Error: failure.NewKind}, nil
		}
	}
	if listing.Is(t.Method()) {
		if t.Method() == "tools/list" && x.Era == front.Legacy && x.Server == "" && !makesTasks(l, c) { // the aggregate declares tasks
			reply.Result = rawjson.InMember(reply.Result, "tools", listing.WithoutTasks)
		}
		t.shelf.take(reply.Result)
		reply.Result = tr.filterList(x, l, c, t.Method(), reply.Result)
	}
	if c.era == front.Modern {
		reply.Result = tr.sealTask(x, l, t, reply.Result)
	} else if minglesTasks(l.b, c.era) {
		if key, made := l.b.tasks.made(x.Who, reply.Result); made && x.Session != nil {
			bound(x.Session).noteTask(l.b.Name, key)
		}
		reply.Result = l.b.tasks.own(x.Who, t.Method(), reply.Result)
	}
	switch {
	case x.Era == front.Legacy && c.era == front.Modern:
		reply.Result = era.Legacy(t.Method(), reply.Result)
	case x.Era == front.Modern:
		reply.Result = era.Modern(t.Method(), reply.Result)
	}
	return reply, nil
}
