package relay

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"time"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/relay/seal"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// Hold configures how acts are held for the operator.
type Hold struct {
	Queue *approval.Queue
	// Wait is how long a call waits for the operator before its client is told that it is
	// pending. client is the name that the client gives itself.
	Wait func(client string) time.Duration
	// Page returns the address of the page where the operator decides; "": there is none.
	Page func() string
}

// Rules of the refusals of acts that the operator did not let through.
const (
	ruleDenied = "approval.denied"
	ruleQueue  = "approvals.queue"
)

// progressEvery is the interval of progress messages to a client whose call waits.
const progressEvery = 10 * time.Second

// holding takes acts through the gate, after the operator where policy holds them.
type holding struct {
	gate     *gate.Gate
	seal     *seal.Sealer
	hold     *Hold
	watch    watch
	failures *failures
	sessions *sessions
}

// admit takes an act through the gate. An act that policy holds waits for the operator first
// and is then decided again, so that a policy or a definition that changed meanwhile leads to
// a new question. t and pass become those of the request that was let in. reply is the answer if
// the act may not happen now.
func (h *holding) admit(ctx context.Context, x *front.Exchange, t *target, act *gate.Act, pass *gate.Pass) (reply *front.Reply) {
	h.claimed(x, t, act)
	if err := h.enter(ctx, t.b, act, pass); err != nil {
		return h.waited(ctx, x, t, act, pass, err)
	}
	return nil
}

// enter takes an act through the gate once.
func (h *holding) enter(ctx context.Context, b *backend, act *gate.Act, pass *gate.Pass) (err error) {
	act.Generation = b.fallen.Load()
	*pass, err = h.watch.decide(ctx, h.gate, act)
	return err
}

// waited is admit for an act that the gate has not let in, for the reason err.
func (h *holding) waited(ctx context.Context, x *front.Exchange, t *target, act *gate.Act, pass *gate.Pass, err error) (reply *front.Reply) {
	var notes []string
	for looked := false; err != nil; err = h.enter(ctx, t.b, act, pass) {
		held, is := errors.AsType[*gate.Held](err)
		if !is {
			reply := h.failures.refused(err)
			return &reply
		}
		parked := h.continued(x, t, held)
		if !looked && parked == nil { // once for a question: a server that ends when it is asked would be started again without end
			looked = true
			if notes, reply = h.withheld(ctx, x, t, held); reply != nil {
				return reply
			}
		}
		if act.Definition == "" && h.described(t.b, act) || respawned(t.b, act.Generation) {
			continue
		}
		if act.Approval = parked; parked != nil {
			t.continues = true
			continue
		}
		answer, reply := h.await(ctx, x, t, held, act.Args, notes...)
		if reply != nil {
			return reply
		}
		if *t = asShown(*t, answer); answer.Run != "" {
			act.Args = argsOf(t)
		}
		act.Approval, looked = answer.Approval, answer.Stale
		h.described(t.b, act)
		respawned(t.b, act.Generation)
	}
	return nil
}

// lookFirst is how long a server may take to say what it offers before the operator is asked.
const lookFirst = 3 * time.Second

// noteWithheld is shown to the operator with a call that an approval does not let through.
const noteWithheld = "what the server offers under this name is withheld (doorward trust): the call will be refused"

// withheld looks whether pinning withholds the tool of a held call, which could not run after an
// approval. For the owner it refuses the call. Any other caller must not be able to tell the tool
// from one that does not exist, which is held: the call is held too, with a note for the operator.
func (h *holding) withheld(ctx context.Context, x *front.Exchange, t *target, held *gate.Held) (notes []string, reply *front.Reply) {
	if t.Method() != "tools/call" || t.b.Pin == nil {
		return nil, nil
	}
	leave, err := h.hold.Queue.Enter(approval.Call{Act: held.Act, Session: sessionKey(x)})
	if err != nil {
		return nil, h.unapproved(ctx, x, t, held.Act, approval.Answer{}, err)
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, lookFirst)
	defer cancel()
	c, err := h.sessions.linkFor(x, t.b).get(ctx)
	if err == nil {
		_, err = c.offers.Settled(ctx, t.Target)
	}
	shut, is := errors.AsType[*pin.Held](err)
	switch {
	case !is:
		return nil, nil
	case !h.failures.owns(x.Who):
		return []string{noteWithheld}, nil
	}
	refusal := h.gate.Refuse(held.Act, shut.Reason.Rule(), gate.CodeDenied, 0)
	return nil, h.failures.withheld(t.Method(), held.Act, refusal.Ref, shut)
}

// errReplaced answers a call that was held for a server that the configuration no longer has in
// this form.
var errReplaced = errors.New("the server was removed or changed while the call waited")

// outdated reports that an approval does not let a held act through any more: the policy, the
// definition of the tool or the process of the server is another one.
func (h *holding) outdated(b *backend, held *gate.Held) bool {
	now := held.Act
	return !h.gate.InForce(held.Binding) || h.described(b, &now) || over(b) || respawned(b, now.Generation)
}

// questionOf returns the question about a held act. It keeps nothing else of the message, whose
// _meta may be long: a question may stay open for longer than its exchange.
func (h *holding) questionOf(x *front.Exchange, t *target, held gate.Held, run []byte, notes []string) approval.Call {
	args := rawjson.Canonical(held.Act.Args)
	held.Act.Args, held.Act.Form = nil, nil
	b, session := t.b, x.Session
	return approval.Call{Held: &held, Act: held.Act, Args: args, Rest: restOf(t.Method(), t.Params()), Run: rawjson.Canonical(run), Notes: notes, Client: program(x.Who), Session: sessionKey(x),
		Stale: func() bool { return h.outdated(b, &held) }, Gone: func() bool { return session != nil && session.Context().Err() != nil }}
}

// respawned reports whether a connection of b has ended since generation was read. It first
// prunes the dead connections, because only then are they counted.
func respawned(b *backend, generation uint64) bool {
	b.instances()
	return b.fallen.Load() != generation
}

// asShown returns a call with the arguments that the operator was shown. They equal the
// call's own, but numbers may be written in another way.
func asShown(t target, a approval.Answer) target {
	if a.Run == "" {
		return t
	}
	if shown, ok := t.With(rawjson.Set(t.Params(), rawjson.Edit{Key: "arguments", Value: []byte(a.Run)})); ok {
		t.Target = shown
	}
	return t
}

// claimed prepares an act for the check whether policy holds it. It removes the state of the
// operator's page from a call that comes back from there.
func (h *holding) claimed(x *front.Exchange, t *target, act *gate.Act) {
	if act.Holds = h.hold != nil; !act.Holds {
		return
	}
	if h.gate.AsksOfClaims(t.Server()) {
		h.described(t.b, act)
	}
	if x.Era == front.Modern && h.seal.IsPage(rawjson.Get(t.Params(), "requestState"), x.Who, t.Target) {
		if plain, ok := t.With(rawjson.Set(t.Params(), rawjson.Edit{Key: "inputResponses"}, rawjson.Edit{Key: "requestState"})); ok {
			t.Target, t.back = plain, true
		}
	}
	act.Form = formOf(t)
}

// described adds the claims of the tool's definition, and reports whether the definition
// changed.
func (h *holding) described(b *backend, act *gate.Act) bool {
	if act.Action != "tools/call" || b.Pin == nil {
		return false
	}
	was := act.Definition
	c, known := b.Pin.Claims(act.Name)
	known = known && b.Pin.Shut(pin.Tools, act.Name) == "" // a withheld tool looks like an unknown one
	act.Definition, act.Tool = c.Definition, policy.Claims{ReadOnly: known && c.ReadOnly, Harmless: known && !c.Destructive}
	return act.Definition != was
}

// continued returns the approval of a call that continues a parked one: that one was approved
// when it began, and the state leads to that run alone.
func (h *holding) continued(x *front.Exchange, t *target, held *gate.Held) *gate.Approval {
	state := rawjson.Get(t.Params(), "requestState")
	if state == nil || x.Era != front.Modern || !question.MayAsk(t.Method()) {
		return nil
	}
	if _, err := h.seal.OpenParked(state, x.Who, t.Target); err != nil {
		return nil
	}
	return held.Binding.Approve(time.Now().Add(time.Minute), 0)
}

// await asks the operator about a held act. run is the raw arguments of the call itself.
func (h *holding) await(ctx context.Context, x *front.Exchange, t *target, held *gate.Held, run []byte, notes ...string) (approval.Answer, *front.Reply) {
	call := h.questionOf(x, t, *held, run, notes)
	token := rawjson.GetPath(t.Params(), "_meta", "progressToken")
	page := !t.back && x.Era == front.Modern && question.HasURLMode(x) && h.hold.Page() != ""
	wait := time.Duration(0)
	if !page {
		wait = h.hold.Wait(clientName(x))
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	_, m := h.watch.begin(ctx, StageApproval, t)
	a, err := h.hold.Queue.Await(ctx, call, wait, x.Left, func(n uint64) { go reportWait(waiting, x, token, n) })
	h.watch.end(m, approvalWord(ctx, a, err))
	switch {
	case err == nil && a.Stale && over(t.b):
		err = errReplaced
	case err == nil && (a.Approval != nil || a.Stale):
		return a, nil
	case err == nil && page && !a.Denied:
		if reply, err := h.sendToPage(x, t, a); err == nil {
			return a, reply
		}
	}
	return a, h.unapproved(ctx, x, t, held.Act, a, err)
}

// unapproved answers a call that the operator has not let through.
func (h *holding) unapproved(ctx context.Context, x *front.Exchange, t *target, act gate.Act, a approval.Answer, err error) *front.Reply {
	switch {
	case errors.Is(err, approval.ErrFull):
		reply := h.failures.refused(h.gate.Refuse(act, ruleQueue, gate.CodeUnavailable, sessionWait))
		return &reply
	case ctx.Err() != nil:
		return &front.Reply{None: true}
	case err != nil:
		reply := h.failures.refused(&gate.Refusal{Code: gate.CodeUnavailable, Rule: ruleQueue, Who: act.Who, Err: err})
		return &reply
	case a.Denied:
		refusal := h.gate.Refuse(act, ruleDenied, gate.CodeDenied, 0)
		text := "Not approved by the operator"
		if a.Why != "" {
			text += ": " + a.Why
		}
		return &front.Reply{Error: h.failures.local(gate.CodeDenied, text, refusal.Ref, nil)}
	}
	return h.pending(x, t, a)
}

// pending tells a client that its call waits for the operator. A call of a tool gets a
// result, which the model reads; other methods get an error.
func (h *holding) pending(x *front.Exchange, t *target, a approval.Answer) *front.Reply {
	text := fmt.Sprintf("This call was not made yet: it waits for the approval of a person, as number %d, until %s. Make the same call again later to get its result.",
		a.Pending, a.Expires.UTC().Format(time.RFC3339))
	data := rawjson.Set(nil, rawjson.Edit{Key: "pending", Value: strconv.AppendUint(nil, a.Pending, 10)},
		rawjson.Edit{Key: "expires", Value: rawjson.AppendQuote(nil, a.Expires.UTC().Format(time.RFC3339))},
		rawjson.Edit{Key: "message", Value: rawjson.AppendQuote(nil, text)}) // some clients show their model this content alone
	if t.Method() != "tools/call" {
		return &front.Reply{Error: &wire.Error{Code: gate.CodeDenied, Message: text, Data: data}}
	}
	content := append(rawjson.AppendQuote([]byte(`[{"type":"text","text":`), text), `}]`...)
	failed := "false"
	if c, known := h.claimsOf(t); known && c { // clients refuse content that does not match the tool's schema
		failed = "true"
	}
	result := rawjson.Set(nil, rawjson.Edit{Key: "content", Value: content}, rawjson.Edit{Key: "structuredContent", Value: data}, rawjson.Edit{Key: "isError", Value: []byte(failed)})
	if x.Era == front.Modern {
		result = rawjson.Set(result, rawjson.Edit{Key: "resultType", Value: []byte(`"complete"`)})
	}
	return &front.Reply{Result: result}
}

// claimsOf reports whether a tool declares an output schema.
func (h *holding) claimsOf(t *target) (schema, known bool) {
	if t.b.Pin == nil {
		return false, false
	}
	c, known := t.b.Pin.Claims(t.Name())
	return c.Schema, known
}

// sendToPage asks a modern client to open the page where the operator decides. The question has
// an elicitationId, as in 2025-11-25: the official Rust SDK refuses a question of mode url without
// one, and other clients ignore it.
func (h *holding) sendToPage(x *front.Exchange, t *target, a approval.Answer) (*front.Reply, error) {
	state, err := h.seal.SealPage(x.Who, t.Target)
	if err != nil {
		return nil, fmt.Errorf("sealing a held call: %w", err)
	}
	params := rawjson.Set(nil, rawjson.Edit{Key: "mode", Value: []byte(`"url"`)}, rawjson.Edit{Key: "url", Value: rawjson.AppendQuote(nil, h.hold.Page())},
		rawjson.Edit{Key: "message", Value: rawjson.AppendQuote(nil, fmt.Sprintf("Doorward holds this call for the approval of a person, as number %d.", a.Pending))},
		rawjson.Edit{Key: "elicitationId", Value: rawjson.AppendQuote(nil, fmt.Sprintf("approval-%d", a.Pending))})
	ask := rawjson.Set(nil, rawjson.Edit{Key: "method", Value: rawjson.AppendQuote(nil, policy.AskElicitation)}, rawjson.Edit{Key: "params", Value: params})
	requests := rawjson.Set(nil, rawjson.Edit{Key: "doorward-approval", Value: ask})
	return &front.Reply{Result: rawjson.Set(nil, rawjson.Edit{Key: "resultType", Value: []byte(`"input_required"`)},
		rawjson.Edit{Key: wire.InputRequests, Value: requests}, rawjson.Edit{Key: "requestState", Value: state})}, nil
}

// reportWait sends progress while a call waits. Its numbers are small, so that those of the
// server are larger.
func reportWait(ctx context.Context, x *front.Exchange, token []byte, n uint64) {
	if token == nil {
		return
	}
	tick := time.Tick(progressEvery)
	for i := 1; ; i++ {
		x.Notify("notifications/progress", rawjson.Set(nil, rawjson.Edit{Key: "progressToken", Value: token},
			rawjson.Edit{Key: "progress", Value: strconv.AppendFloat(nil, float64(i)/1e6, 'f', 6, 64)},
			rawjson.Edit{Key: "message", Value: rawjson.AppendQuote(nil, fmt.Sprintf("waiting for the operator's approval, number %d", n))}))
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}

// program returns the name of the caller's program, as it was observed; for a shim it is the
// program that started the shim.
func program(who *principal.Principal) string {
	value := func(name string) string { f, _ := who.Fact(name); return f.Value }
	exe := path.Base(value("exe"))
	if parent := value("parent_exe"); exe == "doorward" && parent != "" {
		exe = path.Base(parent)
	}
	if exe == "." {
		return ""
	}
	return plaintext.Line(exe)
}

// clientName returns the name that a client gives itself.
func clientName(x *front.Exchange) string {
	info := rawjson.GetPath(x.Params, "_meta", wire.MetaClientInfo)
	if x.Session != nil {
		info = rawjson.Get(x.Session.Init.Params(), "clientInfo")
	}
	name, _ := rawjson.GetString(info, "name")
	return name
}

// sessionKey returns the key that a grant for a session is bound to.
func sessionKey(x *front.Exchange) string {
	if x.Session != nil {
		return "session:" + x.Session.Digest
	}
	return "process:" + x.Who.Key()
}
