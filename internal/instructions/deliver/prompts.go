package deliver

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// prompt serves prompts/get. The relay has recorded it; the delivery has a
// record of its own.
func (c *conn) prompt(ctx context.Context, r *upstream.Request) (upstream.Reply, error) {
	p, ok := c.pass(ctx)
	if !ok {
		return upstream.Reply{Error: errNoPass}, nil
	}
	name, _ := rawjson.GetString(r.Params, "name")
	args := rawjson.Get(r.Params, "arguments")
	o, about := composed(MaxComposed), aboutSession
	if name != nameSession {
		reader, _ := c.s.readers.readerOf(p.Act())
		d := c.s.readers.offered(reader, name)
		if d == nil {
			return upstream.Reply{Error: errNoPrompt}, nil
		}
		if o, ok = promptOrder(d, args); !ok {
			return upstream.Reply{Error: badVariable("")}, nil
		}
		about = d.Description
	} else if !isEmpty(args) {
		return upstream.Reply{Error: badVariable("")}, nil
	}
	t, err := c.get(ctx, p, o)
	var variable *document.VarError
	switch {
	case errors.Is(err, ErrNotFound):
		return upstream.Reply{Error: errNoPrompt}, nil
	case errors.As(err, &variable):
		return upstream.Reply{Error: badVariable(variable.Name)}, nil
	case err != nil:
		return upstream.Reply{}, err
	}
	return c.prompted(t, about), nil
}

// prompted returns a GetPromptResult.
func (c *conn) prompted(t *Text, about string) upstream.Reply {
	text := append([]byte(`[{"role":"user","content":{"type":"text","text":`), rawjson.AppendQuote(nil, t.Body)...)
	edits := []rawjson.Edit{{Key: "messages", Value: append(text, "}}]"...)}}
	if about != "" {
		edits = append(edits, rawjson.Edit{Key: "description", Value: rawjson.AppendQuote(nil, about)})
	}
	if c.modern {
		edits = append(edits, rawjson.Edit{Key: "resultType", Value: []byte(`"complete"`)})
	}
	return upstream.Reply{Result: marked(rawjson.Set(nil, edits...), t)}
}

// badVariable returns the error for invalid arguments. The name of a variable is in
// prompts/list, so it reveals nothing.
func badVariable(name string) *wire.Error {
	e := &wire.Error{Code: -32602, Message: "Invalid arguments"}
	if name != "" {
		e.Data = rawjson.Set(nil, rawjson.Edit{Key: "variable", Value: rawjson.AppendQuote(nil, name)})
	}
	return e
}

// offered returns the document that a prompt stands for, for this reader; nil: there is
// none.
func (s *readers) offered(r *Reader, name string) *document.Document {
	v, ok := s.glance(r)
	if !ok {
		return nil
	}
	if d := v.Find(name); d != nil && (d.Prompt || name == document.VoiceName) {
		return d
	}
	return nil
}

// promptOrder returns the order of a document with the arguments of a prompt.
func promptOrder(d *document.Document, args []byte) (order, bool) {
	if !isObject(args) {
		return order{}, false
	}
	if !d.Prompt {
		return order{action: actionRead, name: d.Name}, isEmpty(args)
	}
	vars, ok := promptVars(d, args)
	return order{action: actionRender, name: d.Name, vars: vars}, ok
}

// promptVars converts the arguments of a prompt to variables. Arguments are strings
// (MCP), variables have types: a string is read as JSON unless its variable takes texts
// or it is no JSON value. The schema of the variable then checks it.
func promptVars(d *document.Document, args []byte) ([]byte, bool) {
	var edits []rawjson.Edit
	for name, raw := range rawjson.Members(args) {
		text, ok := wire.Text(raw)
		if !ok {
			return nil, false
		}
		value := []byte(text)
		if isText(d.Variables[name]) || !isValue(value) {
			value = rawjson.AppendQuote(nil, text)
		}
		edits = append(edits, rawjson.Edit{Key: name, Value: value})
	}
	return rawjson.Set([]byte("{}"), edits...), true
}

// isText reports whether a schema accepts a text. A schema without a type does.
func isText(schema []byte) bool {
	kind := rawjson.Get(schema, "type")
	if kind == nil || string(kind) == `"string"` {
		return true
	}
	for k := range rawjson.Elements(kind) {
		if string(k) == `"string"` {
			return true
		}
	}
	return false
}

// isValue reports whether a text is one JSON value that all readers read alike.
func isValue(raw []byte) bool { return json.Valid(raw) && wire.ValidateValue(raw) == nil }
