package relay

import (
	"fmt"
	"strings"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/failure"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// openHandles replaces the handles that were sealed for this client by the server's own
// values: the state of a question, a cursor, the id of a task. Members that have a meaning
// only between two modern ends are removed for others. misspelt is that of survey.
func (tr *translation) openHandles(x *front.Exchange, l *link, c *liveConn, t *target, misspelt bool) ([]byte, error) {
	p := t.Params()
	switch {
	case misspelt && (question.MayAsk(t.Method()) || isTask(t.Method())):
		return nil, failure.Invalid{E: failure.Params}
	case question.MayAsk(t.Method()) && x.Era == front.Modern && c.era == front.Modern:
		raw := rawjson.Get(p, "requestState")
		if raw == nil {
			return p, nil
		}
		inner, err := tr.seal.OpenState(raw, x.Who, t.Target)
		if err != nil {
			return nil, failure.Invalid{E: failure.State}
		}
		return rawjson.Set(p, rawjson.Edit{Key: "requestState", Value: inner}), nil
	case question.MayAsk(t.Method()) && x.Era == front.Modern && rawjson.Get(p, "requestState") != nil:
		return tr.replay(x, t)
	case question.MayAsk(t.Method()) && x.Era != c.era:
		return rawjson.Set(p, rawjson.Edit{Key: "inputResponses"}, rawjson.Edit{Key: "requestState"}), nil
	case listing.Is(t.Method()) && l.seals(c):
		raw := issued(listing.Cursor(p))
		switch {
		case rawjson.Get(p, "cursor") == nil:
			return p, nil
		case raw == nil:
			return rawjson.Set(p, rawjson.Edit{Key: "cursor"}), nil
		}
		inner, err := tr.seal.OpenCursor(raw, x.Who, l.b.Name, t.Method())
		if err != nil {
			return nil, failure.Invalid{E: failure.Cursor}
		}
		return rawjson.Set(p, rawjson.Edit{Key: "cursor", Value: inner}), nil
	case isTask(t.Method()) && c.era == front.Modern:
		return tr.openTask(x, l, p)
	}
	return p, nil
}

// issued returns a cursor that Doorward may have issued; nil: none. It issues no empty one, and
// clients that keep the cursor in a string send it empty to ask from the start.
func issued(cursor []byte) []byte {
	if string(cursor) == `""` {
		return nil
	}
	return cursor
}

// survey returns the member _meta of params. misspelt reports whether params has a member that
// some parsers take for a handle: the server would get its value without the seal being checked.
func survey(params []byte) (meta []byte, misspelt bool) {
	for at, value := range rawjson.Fields(params) {
		quoted := at.In(params)
		if len(quoted) < len(`"_meta"`) || string(quoted) == `"arguments"` { // no spelling of a name below
			continue
		}
		key, _ := wire.Text(quoted)
		if key == "_meta" {
			meta = value.In(params)
			continue
		}
		for _, handle := range handles {
			misspelt = misspelt || key != handle && wire.Resembles(key, handle)
		}
	}
	return meta, misspelt
}

// handles are the members of params that Doorward seals.
var handles = [...]string{"requestState", "inputResponses", "taskId"}

// inputRequired forwards a multi-round-trip result whose questions were decided.
// The state is sealed, because the server cannot bind it to a user that it never
// sees.
func (tr *translation) inputRequired(x *front.Exchange, c *liveConn, t *target, reply upstream.Reply) (upstream.Reply, error) {
	if x.Era != front.Modern || c.era != front.Modern || !question.MayAsk(t.Method()) {
		return reply, failure.ErrAsksTooMuch
	}
	result := reply.Result
	for _, ask := range rawjson.Members(rawjson.Get(result, wire.InputRequests)) {
		if !question.HasFolded(ask, "method") { // every other one was decided
			return reply, failure.ErrAsksTooMuch
		}
	}
	if state := rawjson.Get(result, "requestState"); state != nil {
		sealed, err := tr.seal.SealState(state, x.Who, t.Target)
		if err != nil {
			return reply, fmt.Errorf("sealing requestState: %w", err)
		}
		result = rawjson.Set(result, rawjson.Edit{Key: "requestState", Value: sealed})
	}
	reply.Result = result
	return reply, nil
}

// replayed is the state of a call that a legacy server ended with codeURLRequired. A request
// with it makes the call again; the server knows by itself what the user did at the URL.
var replayed = []byte(`"replay"`)

// needsURL reports whether an error has to become input_required for the client.
func needsURL(x *front.Exchange, c *liveConn, method string, e *wire.Error) bool {
	return e != nil && e.Code == failure.CodeURLRequired && x.Era == front.Modern && c.era == front.Legacy && question.MayAsk(method)
}

// urlRequired makes a result that requires input from the questions of such an error, which
// were decided and labelled before.
func (tr *translation) urlRequired(x *front.Exchange, t *target, e *wire.Error) (upstream.Reply, error) {
	requests, n := rawjson.Empty, 0
	for params := range rawjson.Elements(rawjson.Get(e.Data, wire.Elicitations)) {
		n++
		ask := rawjson.Set(nil, rawjson.Edit{Key: "method", Value: rawjson.AppendQuote(nil, policy.AskElicitation)},
			rawjson.Edit{Key: "params", Value: rawjson.Set(params, rawjson.Edit{Key: "elicitationId"})})
		requests = rawjson.Set(requests, rawjson.Edit{Key: fmt.Sprintf("%s-%d", t.b.Name, n), Value: ask})
	}
	if n == 0 {
		return upstream.Reply{}, failure.ErrNoQuestions
	}
	state, err := tr.seal.SealState(replayed, x.Who, t.Target)
	if err != nil {
		return upstream.Reply{}, fmt.Errorf("sealing a call that is made again: %w", err)
	}
	return upstream.Reply{Result: rawjson.Set(nil, rawjson.Edit{Key: "resultType", Value: []byte(`"input_required"`)},
		rawjson.Edit{Key: wire.InputRequests, Value: requests}, rawjson.Edit{Key: "requestState", Value: state})}, nil
}

// replay removes the state of urlRequired from the params of a call that is made again.
func (tr *translation) replay(x *front.Exchange, t *target) ([]byte, error) {
	inner, err := tr.seal.OpenState(rawjson.Get(t.Params(), "requestState"), x.Who, t.Target)
	if err != nil || string(inner) != string(replayed) {
		return nil, failure.Invalid{E: failure.State} // a legacy server makes no state, and a parked call was looked up before
	}
	for _, answer := range rawjson.Members(rawjson.Get(t.Params(), "inputResponses")) {
		if !rawjson.IsText(rawjson.Get(answer, "action"), "accept") {
			return nil, failure.Invalid{E: failure.URLRefused}
		}
	}
	return rawjson.Set(t.Params(), rawjson.Edit{Key: "inputResponses"}, rawjson.Edit{Key: "requestState"}), nil
}

// openTask replaces a sealed task id in the params by the server's own. A server sees one
// caller and cannot tell whose a task is, so the client holds a sealed id.
func (tr *translation) openTask(x *front.Exchange, l *link, params []byte) ([]byte, error) {
	inner, err := tr.seal.OpenTask(rawjson.Get(params, "taskId"), x.Who, l.b.Name)
	if err != nil {
		return nil, failure.Invalid{E: failure.NoTask}
	}
	return rawjson.Set(params, rawjson.Edit{Key: "taskId", Value: inner}), nil
}

// sealTask protects a task's id from other principals. It seals a new id, and puts the
// client's own spelling where the client named the task.
func (tr *translation) sealTask(x *front.Exchange, l *link, t *target, result []byte) []byte {
	id := rawjson.Get(result, "taskId")
	if id == nil {
		return result
	}
	sealed := rawjson.Get(t.Params(), "taskId")
	if !isTask(t.Method()) {
		if kind, _ := rawjson.GetString(result, "resultType"); kind != "task" {
			return result
		}
		var err error
		if sealed, err = tr.seal.SealTask(id, x.Who, l.b.Name); err != nil {
			tr.log.Error("sealing a task's id", "err", err)
		}
	}
	return rawjson.Set(result, rawjson.Edit{Key: "taskId", Value: sealed})
}

// isTask reports whether a method names a task (2025-11-25 Tasks, SEP-2663).
func isTask(method string) bool {
	return strings.HasPrefix(method, "tasks/") && method != "tasks/list"
}

// taskError returns the error for a request about tasks that this connection does not carry; nil:
// it does.
func taskError(x *front.Exchange, l *link, c *liveConn, t *target) error {
	switch {
	case !strings.HasPrefix(t.Method(), "tasks/"):
		return nil
	case x.Era != c.era: // each era has states and methods of tasks that the other one does not have
		return failure.Invalid{E: failure.OtherTasks}
	case c.era == front.Legacy && l.who == nil: // the tasks of a shared connection belong to all its principals
		return failure.Invalid{E: failure.NoMethod}
	case isTask(t.Method()) && minglesTasks(l.b, c.era) && !l.b.tasks.has(x.Who, rawjson.Get(t.Params(), "taskId")):
		return failure.Invalid{E: failure.NoTask}
	}
	return nil
}

// makesTasks reports whether a call of a legacy client at a tool of this connection may make a
// task that the client can ask for.
func makesTasks(l *link, c *liveConn) bool {
	return c.era == front.Legacy && l.who != nil && rawjson.GetPath(c.hello, "capabilities", "tasks", "requests", "tools", "call") != nil
}
