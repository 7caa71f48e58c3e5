package relay

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// maxRounds bounds how often a modern server may ask for input within one call of
// a legacy client.
const maxRounds = 10

// Pauses before a call is repeated whose server asked for nothing but a repeat
// (MRTR, "Load Shedding"), doubled each time, with jitter.
const (
	firstRound = 100 * time.Millisecond
	lastRound  = 5 * time.Second
)

var (
	errRounds      = fmt.Errorf("the server asked in more than %d rounds: %w", maxRounds, upstream.ErrProtocol)
	errOtherTool   = fmt.Errorf("the server has changed between two rounds of a call: %w", upstream.ErrProtocol)
	errNoQuestions = fmt.Errorf("the server requires input and asks for none: %w", upstream.ErrProtocol)
)

// rounds answers the questions of a modern server for a legacy client, which is
// asked on its session, and repeats the call with the answers until the server has
// a result. A legacy client sees one call that takes long. No error says that the call
// was not run: its first round was.
func (l *link) rounds(ctx context.Context, c *liveConn, x *front.Exchange, t target, req upstream.Request, reply upstream.Reply) (upstream.Reply, error) {
	var urls completions
	defer urls.send(x)
	params := rawjson.Set(req.Params, rawjson.Edit{Key: "inputResponses"}, rawjson.Edit{Key: "requestState"})
	for n := range maxRounds + 1 {
		if reply.Error != nil || !isText(wire.Get(reply.Result, "resultType"), "input_required") || !mayAsk(t.Method()) {
			return reply, nil
		}
		if n == maxRounds {
			break
		}
		edits, final, err := l.inputs(ctx, x, reply.Result, n, &urls)
		if err != nil || final != nil {
			return upstream.Reply{Error: final}, err
		}
		req.Params = rawjson.Set(params, edits...)
		if reply, c, err = l.nextRound(ctx, c, x, t, &req); err != nil {
			return reply, laterRound{err}
		}
		if l.refusedHeaders(c, t, reply) {
			l.b.params.forget()
			return upstream.Reply{}, errOtherTool
		}
	}
	return upstream.Reply{}, errRounds
}

// nextRound repeats a call, on a new connection if the one before is over and the round
// certainly did not reach the server: the state is all that a modern server needs.
func (l *link) nextRound(ctx context.Context, c *liveConn, x *front.Exchange, t target, req *upstream.Request) (upstream.Reply, *liveConn, error) {
	reply, err := l.callWith(ctx, c, x, t, req)
	if !notRun(err) || ctx.Err() != nil {
		return reply, c, err
	}
	l.drop(c)
	fresh, err := l.get(ctx)
	if err != nil {
		return upstream.Reply{}, c, err
	}
	if fresh.era != c.era {
		return upstream.Reply{}, c, errOtherTool
	}
	if _, err := l.pinned(ctx, fresh, t); err != nil {
		return upstream.Reply{}, c, err
	}
	reply, err = l.callWith(ctx, fresh, x, t, req)
	return reply, fresh, err
}

// notRun reports that a request certainly did not reach its server.
func notRun(err error) bool {
	return errors.Is(err, upstream.ErrSession) || errors.Is(err, upstream.ErrNotSent)
}

// laterRound is the error of a round behind the first, which hides that this round was
// not run: the call must not begin anew.
type laterRound struct{ err error }

func (e laterRound) Error() string { return e.err.Error() }

// Is implements errors.Is.
func (e laterRound) Is(target error) bool {
	return target != upstream.ErrSession && target != upstream.ErrNotSent && errors.Is(e.err, target)
}

// As implements errors.As.
func (e laterRound) As(target any) bool { return errors.As(e.err, target) }

// inputs returns what the next round adds to the params. final: the client will not
// give what the server needs, and the call ends with this error.
func (l *link) inputs(ctx context.Context, x *front.Exchange, result []byte, n int, urls *completions) (edits []rawjson.Edit, final *wire.Error, err error) {
	all, err := inputsOf(wire.Get(result, wire.InputRequests))
	if err != nil {
		return nil, nil, err
	}
	state := wire.Get(result, "requestState")
	if state != nil {
		edits = append(edits, rawjson.Edit{Key: "requestState", Value: state})
	}
	switch {
	case len(all) > 0:
		responses, final, err := l.askAll(ctx, x, all, urls)
		return append(edits, rawjson.Edit{Key: "inputResponses", Value: responses}), final, err
	case state == nil:
		return nil, nil, errNoQuestions
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

// input is one question of a round, with its answer.
type input struct {
	key, method string
	params      []byte
	answer      []byte
	err         error
}

// askAll puts all questions of a round to the client at once.
func (l *link) askAll(ctx context.Context, x *front.Exchange, inputs []input, urls *completions) (responses []byte, final *wire.Error, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var all sync.WaitGroup
	for i := range inputs {
		all.Go(func() { l.askOne(ctx, x, &inputs[i], urls) })
	}
	all.Wait()
	edits := make([]rawjson.Edit, 0, len(inputs))
	for _, in := range inputs {
		if errors.Is(in.err, errNotGiven) {
			return nil, &wire.Error{Code: front.CodeInternal, Message: "The client did not answer " + in.method + ", which the server requires"}, nil
		}
		if in.err != nil {
			return nil, nil, in.err
		}
		edits = append(edits, rawjson.Edit{Key: in.key, Value: in.answer})
	}
	return rawjson.Set(nil, edits...), nil, ctx.Err()
}

// inputsOf reads inputRequests. A request with more than one reading is refused.
func inputsOf(asks []byte) ([]input, error) {
	var all []input
	for key, ask := range wire.Members(asks) {
		method, ok := wire.GetString(ask, "method")
		if !ok || misspelt(ask, "method") || misspelt(ask, "params") || capabilityOf(method) == "" || len(all) >= openQuestions {
			return nil, errAsksTooMuch
		}
		params := wire.Get(ask, "params")
		if _, err := wire.Parse(rawjson.AppendRequest(nil, wire.IntID(0), method, params), wire.FromServer); err != nil {
			return nil, errAsksTooMuch
		}
		all = append(all, input{key: key, method: method, params: params})
	}
	return all, nil
}

// errNotGiven says that the client did not give what a call cannot go on without.
var errNotGiven = errors.New("the client did not answer")

// askOne asks one question. An elicitation that is not answered is cancelled, as if
// the user had closed it; sampling and roots have no such answer.
func (l *link) askOne(ctx context.Context, x *front.Exchange, in *input, urls *completions) {
	to := asked{x: *x, caps: wire.Get(x.Session.Init, "capabilities"), inside: true}
	params := in.params
	if in.method == policy.AskElicitation && isText(wire.Get(params, "mode"), "url") {
		params = urls.mint(params)
	}
	reply, err := l.pose(ctx, x, to, in.method, params)
	switch {
	case err != nil && !errors.Is(err, errUnanswered):
		in.err = err
	case err == nil && reply.Error == nil:
		in.answer, in.err = l.scannedInput(reply)
	case in.method == policy.AskElicitation:
		in.answer = cancelled.Result
	default:
		in.err = errNotGiven
	}
}

// scannedInput is an answer as content rules leave it.
func (l *link) scannedInput(reply upstream.Reply) ([]byte, error) {
	reply = l.scanAnswer(reply)
	if reply.Error != nil {
		return nil, errAsksTooMuch
	}
	return reply.Result, nil
}

// completions are the ids of URL elicitations, which the era of 2025-11-25 requires
// and a modern server does not give.
type completions struct {
	mu  sync.Mutex
	ids []string
}

// mint gives a URL elicitation an id of Doorward's own.
func (u *completions) mint(params []byte) []byte {
	id := "doorward-" + rand.Text()
	u.mu.Lock()
	u.ids = append(u.ids, id)
	u.mu.Unlock()
	return rawjson.Set(params, rawjson.Edit{Key: "elicitationId", Value: rawjson.AppendQuote(nil, id)})
}

// send tells the client that what the URLs were for is over (2025-11-25
// Elicitation, "Completion Notifications").
func (u *completions) send(x *front.Exchange) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, id := range u.ids {
		x.Notify("notifications/elicitation/complete", rawjson.Set(nil, rawjson.Edit{Key: "elicitationId", Value: rawjson.AppendQuote(nil, id)}))
	}
}
