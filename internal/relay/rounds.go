package relay

import (
	"context"
	"errors"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// Pauses before a call is repeated because its server asked for nothing but a repeat (MRTR,
// "Load Shedding"), doubled each time, with jitter.
const (
	firstRound = 100 * time.Millisecond
	lastRound  = 5 * time.Second
)

// rounds answers the questions of a modern server for a legacy client, which is asked on its
// session, and repeats the call with the answers until the server has a result. A legacy
// client sees one call that takes long. An error never says that the call was not run,
// because its first round was.
func (l *link) rounds(ctx context.Context, c *liveConn, x *front.Exchange, t *target, req upstream.Request, reply upstream.Reply) (upstream.Reply, error) {
	var urls question.Completions
	defer urls.Send(x)
	params := rawjson.Set(req.Params, rawjson.Edit{Key: "inputResponses"}, rawjson.Edit{Key: "requestState"})
	for n := range failure.MaxRounds + 1 {
		if reply.Error != nil || !rawjson.IsText(rawjson.Get(reply.Result, "resultType"), "input_required") || !question.MayAsk(t.Method()) {
			return reply, nil
		}
		if n == failure.MaxRounds {
			break
		}
		edits, final, err := l.inputs(ctx, x, reply.Result, n, &urls)
		if err != nil || final != nil {
			return upstream.Reply{Error: final}, err
		}
		req.Params = rawjson.Set(params, edits...)
		if reply, c, err = l.nextRound(ctx, c, x, t, &req); err != nil {
			return reply, failure.LaterRound{Err: err}
		}
		if l.refusedHeaders(c, t, reply) {
			l.b.params.Forget()
			return upstream.Reply{}, failure.ErrOtherTool
		}
	}
	return upstream.Reply{}, failure.ErrRounds
}

// nextRound repeats a call. If the connection is over and the round certainly did not reach
// the server, it uses a new connection: a modern server needs nothing but the state.
func (l *link) nextRound(ctx context.Context, c *liveConn, x *front.Exchange, t *target, req *upstream.Request) (upstream.Reply, *liveConn, error) {
	reply, err := l.callWith(ctx, c, x, t, req)
	if !failure.NotRun(err) || ctx.Err() != nil {
		return reply, c, err
	}
	l.drop(c)
	fresh, err := l.get(ctx)
	if err != nil {
		return upstream.Reply{}, c, err
	}
	if fresh.era != c.era {
		return upstream.Reply{}, c, failure.ErrOtherTool
	}
	if _, err := fresh.offers.Settled(ctx, t.Target); err != nil {
		return upstream.Reply{}, c, err
	}
	reply, err = l.callWith(ctx, fresh, x, t, req)
	return reply, fresh, err
}

// inputs returns what the next round adds to the params. final: the client does not give what
// the server needs, and the call ends with this error.
func (l *link) inputs(ctx context.Context, x *front.Exchange, result []byte, n int, urls *question.Completions) (edits []rawjson.Edit, final *wire.Error, err error) {
	all, err := question.Inputs(rawjson.Get(result, wire.InputRequests))
	if err != nil {
		return nil, nil, err
	}
	state := rawjson.Get(result, "requestState")
	if state != nil {
		edits = append(edits, rawjson.Edit{Key: "requestState", Value: state})
	}
	switch {
	case len(all) > 0:
		responses, final, err := l.askAll(ctx, x, all, urls)
		return append(edits, rawjson.Edit{Key: "inputResponses", Value: responses}), final, err
	case state == nil:
		return nil, nil, failure.ErrNoQuestions
	}
	return edits, nil, backOff(ctx, n)
}

func backOff(ctx context.Context, n int) error {
	pause := min(firstRound<<n, lastRound)
	pause = pause/2 + mathrand.N(pause/2)
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// askAll puts all questions of a round to the client at once.
func (l *link) askAll(ctx context.Context, x *front.Exchange, inputs []question.Input, urls *question.Completions) (responses []byte, final *wire.Error, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var all sync.WaitGroup
	for i := range inputs {
		all.Go(func() { l.askOne(ctx, x, &inputs[i], urls) })
	}
	all.Wait()
	if s := x.Session; s != nil && s.Context().Err() != nil {
		select {
		case <-ctx.Done(): // a session that ends cancels its calls a moment later
		case <-time.After(time.Second):
		}
		return nil, nil, context.Canceled
	}
	edits := make([]rawjson.Edit, 0, len(inputs))
	for _, in := range inputs {
		if errors.Is(in.Err, failure.ErrNotGiven) {
			return nil, &wire.Error{Code: front.CodeInternal, Message: "The client did not answer " + in.Method + ", which the server requires"}, nil
		}
		if in.Err != nil {
			return nil, nil, in.Err
		}
		edits = append(edits, rawjson.Edit{Key: in.Key, Value: in.Answer})
	}
	return rawjson.Set(nil, edits...), nil, ctx.Err()
}

// askOne asks one question. An elicitation that is not answered is cancelled, as if
// the user had closed it; sampling and roots have no such answer.
func (l *link) askOne(ctx context.Context, x *front.Exchange, in *question.Input, urls *question.Completions) {
	to := question.Client{X: *x, Caps: rawjson.Get(x.Session.Init.Params(), "capabilities"), Inside: true}
	params := in.Params
	if in.Method == policy.AskElicitation && rawjson.IsText(rawjson.Get(params, "mode"), "url") {
		params = urls.Mint(params)
	}
	reply, err := l.asks.pose(ctx, x, to, in.Method, params)
	switch {
	case err != nil && !errors.Is(err, failure.ErrUnanswered):
		in.Err = err
	case err == nil && reply.Error == nil:
		in.Answer, in.Err = l.scannedInput(reply)
	case in.Method == policy.AskElicitation:
		in.Answer = question.Cancelled.Result
	default:
		in.Err = failure.ErrNotGiven
	}
}

// scannedInput applies the content rules to a client's answer to a question.
func (l *link) scannedInput(reply upstream.Reply) ([]byte, error) {
	reply = l.asks.cleaned(reply)
	if reply.Error != nil {
		return nil, failure.ErrAsksTooMuch
	}
	return reply.Result, nil
}
