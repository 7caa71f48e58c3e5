package deliver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// Answers of a tool that could not do what was asked. None reveals what other callers
// have.
const (
	textUnknown = "There is no text of that name."
	textInvalid = "The arguments do not fit the schema of this tool."
)

// ruleArguments and ruleTool are the rules of malformed calls.
const (
	ruleArguments = rulePrefix + "invalid_arguments"
	ruleTool      = rulePrefix + "unknown_tool"
)

// call serves tools/call. Only the relay's pass identifies the caller.
func (c *conn) call(ctx context.Context, r *upstream.Request) (upstream.Reply, error) {
	p, ok := c.pass(ctx)
	if !ok {
		return upstream.Reply{Error: errNoPass}, nil
	}
	args := rawjson.Get(r.Params, "arguments")
	switch name, _ := rawjson.GetString(r.Params, "name"); name {
	case "read":
		return c.callRead(ctx, p, args)
	case "status":
		return c.callStatus(p, args)
	}
	if refusal := p.Refuse(ruleTool, gate.CodeDenied); refusal.Err != nil {
		return upstream.Reply{}, refusal.Err
	}
	return upstream.Reply{Error: errNoTool}, nil
}

// readArgs parses the arguments of read; false: they do not fit.
func readArgs(raw []byte) (o order, ok bool) {
	o = composed(MaxComposed)
	for key, v := range rawjson.Members(raw) {
		switch {
		case key == "name":
			name, isText := wire.Text(v)
			if !isText || !document.ValidName(name) {
				return o, false
			}
			o = order{action: actionRead, name: name, vars: o.vars}
		case key == "vars" && bytes.HasPrefix(v, []byte("{")):
			o.vars = v
		default:
			return o, false
		}
	}
	if o.name == nameSession { // as the prompt and the resource are named
		o = order{action: actionRead, name: nameSession, max: MaxComposed, vars: o.vars}
	}
	return o, isObject(raw) && (o.max == 0 || o.vars == nil)
}

// isObject reports whether arguments are an object, or left out.
func isObject(raw []byte) bool { return len(raw) == 0 || raw[0] == '{' }

func isEmpty(raw []byte) bool {
	for range rawjson.Members(raw) {
		return false
	}
	return isObject(raw)
}

func (c *conn) callRead(ctx context.Context, p gate.Pass, args []byte) (upstream.Reply, error) {
	o, ok := readArgs(args)
	if !ok {
		return c.invalid(p)
	}
	t, err := c.get(ctx, p, c.s.readers.filled(p, o))
	var variable *document.VarError
	switch {
	case errors.Is(err, ErrNotFound):
		return c.textResult(textUnknown, true), nil
	case errors.As(err, &variable):
		return c.textResult(fmt.Sprintf("vars.%s: %s", variable.Name, variable.Text), true), nil
	case err != nil:
		return upstream.Reply{}, err
	}
	reply := c.textResult(t.Body, false)
	reply.Result = marked(reply.Result, t)
	return reply, nil
}

// filled returns the order of a model's read: a document with variables is rendered, so
// that the error names a missing one.
func (s *readers) filled(p gate.Pass, o order) order {
	if o.max > 0 {
		return o
	}
	if o.vars == nil {
		r, _ := s.readerOf(p.Act())
		v, ok := s.glance(r)
		if !ok || v.Find(o.name) == nil || len(v.Find(o.name).Variables) == 0 {
			return o
		}
	}
	o.action = actionRender
	return o
}

// callStatus returns the state of delivery for the caller. It delivers no text.
func (c *conn) callStatus(p gate.Pass, args []byte) (upstream.Reply, error) {
	if !isEmpty(args) {
		return c.invalid(p)
	}
	r, why := c.s.readers.readerOf(p.Act())
	status := c.s.readers.Status(r)
	if r == nil && why != "" {
		status.Reason = why
	}
	out, err := json.Marshal(status)
	if err != nil {
		return upstream.Reply{}, fmt.Errorf("encoding the status: %w", err)
	}
	if _, err := p.Record(field("state", status.State)); err != nil {
		return upstream.Reply{}, unrecorded(p, err)
	}
	reply := c.textResult(string(out), false)
	reply.Result = rawjson.Set(reply.Result, rawjson.Edit{Key: "structuredContent", Value: out})
	return reply, nil
}

func (c *conn) invalid(p gate.Pass) (upstream.Reply, error) {
	if refusal := p.Refuse(ruleArguments, gate.CodeDenied); refusal.Err != nil {
		return upstream.Reply{}, refusal.Err
	}
	return c.textResult(textInvalid, true), nil
}

// textResult returns a CallToolResult of one text.
func (c *conn) textResult(text string, failed bool) upstream.Reply {
	content := append([]byte(`[{"type":"text","text":`), rawjson.AppendQuote(nil, text)...)
	out := rawjson.Set(nil, rawjson.Edit{Key: "content", Value: append(content, "}]"...)})
	if failed {
		out = rawjson.Set(out, rawjson.Edit{Key: "isError", Value: []byte("true")})
	}
	if c.modern {
		out = rawjson.Set(out, rawjson.Edit{Key: "resultType", Value: []byte(`"complete"`)})
	}
	return upstream.Reply{Result: out}
}
