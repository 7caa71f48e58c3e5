package deliver

import (
	"context"
	"errors"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/builtin"
)

// read serves resources/read. The relay has recorded the request; the delivery has a
// record of its own. A document with variables is read as it is, with the names of the
// variables.
func (c *conn) read(ctx context.Context, r *upstream.Request) (upstream.Reply, error) {
	p, ok := c.pass(ctx)
	if !ok {
		return upstream.Reply{Error: errNoPass}, nil
	}
	uri, _ := rawjson.GetString(r.Params, "uri")
	name, ok := nameAt(uri)
	if !ok {
		return upstream.Reply{Error: errNoURI}, nil
	}
	o := order{action: actionRead, name: name}
	if name == nameSession {
		o = composed(MaxComposed)
	} else if reader, _ := c.s.readers.readerOf(p.Act()); reader == nil {
		return upstream.Reply{Error: errNoURI}, nil
	}
	t, err := c.get(ctx, p, o)
	if errors.Is(err, ErrNotFound) {
		return upstream.Reply{Error: errNoURI}, nil
	}
	if err != nil {
		return upstream.Reply{}, err
	}
	content := rawjson.Set(nil, rawjson.Edit{Key: "uri", Value: rawjson.AppendQuote(nil, uri)},
		rawjson.Edit{Key: "mimeType", Value: []byte(`"` + markdown + `"`)}, rawjson.Edit{Key: "text", Value: rawjson.AppendQuote(nil, t.Body)})
	out := rawjson.Set(nil, rawjson.Edit{Key: "contents", Value: append(append([]byte{'['}, content...), ']')})
	if c.modern {
		out = rawjson.Set(out, builtin.Hints(textTime)...)
	}
	return upstream.Reply{Result: marked(out, t)}, nil
}
