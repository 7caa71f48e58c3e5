package deliver

import (
	"context"
	"errors"
	"strings"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/builtin"
)

// The resources: the composed text, the voice, and each document by its name,
// under two schemes that mean the same.
const (
	uriScheme    = "instr://"
	uriLong      = "instructions://"
	uriTemplates = "templates/"
)

// nameAt is the name of the text under a URI; false: there is none of that form.
func nameAt(uri string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(uri, uriScheme)
	if !ok {
		rest, ok = strings.CutPrefix(uri, uriLong)
	}
	if !ok {
		return "", false
	}
	if rest == nameSession || rest == document.VoiceName {
		return rest, true
	}
	name, ok = strings.CutPrefix(rest, uriTemplates)
	return name, ok && document.ValidName(name) && name != nameSession
}

// resources is the array of resources/list; without a view, what every caller may
// have.
func resources(v seen) []byte {
	out := append([]byte{'['}, resource(nameSession, nameSession, aboutSession)...)
	if !v.whole {
		return append(out, ']')
	}
	if v.view.Find(document.VoiceName) != nil {
		out = append(append(out, ','), resource(document.VoiceName, document.VoiceName, aboutVoice)...)
	}
	for _, d := range v.view.Documents() {
		if d.Name != document.VoiceName && d.Name != document.PreambleName {
			out = append(append(out, ','), resource(uriTemplates+d.Name, d.Name, d.Description)...)
		}
	}
	return append(out, ']')
}

func resource(path, name, about string) []byte {
	return entry("uri", uriScheme+path, about, []rawjson.Edit{{Key: "name", Value: rawjson.AppendQuote(nil, name)},
		{Key: "mimeType", Value: []byte(`"` + markdown + `"`)}})
}

// read serves resources/read. The relay has recorded it; the delivery has a
// record of its own. A document is read as it is, with the names of its
// variables in it.
func (c *conn) read(ctx context.Context, r *upstream.Request) (upstream.Reply, error) {
	p, ok := c.pass(ctx)
	if !ok {
		return upstream.Reply{Error: errNoPass}, nil
	}
	uri, _ := wire.GetString(r.Params, "uri")
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
