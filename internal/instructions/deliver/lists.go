package deliver

import (
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/trust/wire"
)

// seen is what a listener could see at the last check. The zero value is what every
// caller can see.
type seen struct {
	view  sight
	whole bool // view is set
}

func (s *readers) seenBy(r *Reader) seen {
	v, ok := s.glance(r)
	return seen{v, ok}
}

func (v seen) revision() string {
	if !v.whole {
		return ""
	}
	return v.view.Revision()
}

// textAt returns the text under a URI, for comparison only. A missing text is a NUL,
// which no text contains.
func (v seen) textAt(uri string) string {
	name, _ := nameAt(uri)
	if !v.whole {
		return "\x00"
	}
	if name == nameSession {
		return v.view.Revision()
	}
	text, err := v.view.Text(name)
	if err != nil {
		return "\x00"
	}
	return v.view.Preamble() + "\x00" + text
}

// Descriptions of the two texts that are no documents of their own name in lists.
const (
	aboutSession = "The instructions for this session"
	aboutVoice   = "The voice to write in"
)

// prompts returns the array of prompts/list; without a view, the prompts that every
// caller may use.
func prompts(v seen) []byte {
	out := append([]byte{'['}, entry("name", nameSession, aboutSession, nil)...)
	if !v.whole {
		return append(out, ']')
	}
	if v.view.Find(document.VoiceName) != nil {
		out = append(append(out, ','), entry("name", document.VoiceName, aboutVoice, nil)...)
	}
	for _, d := range v.view.Documents() {
		if d.Prompt {
			out = append(append(out, ','), entry("name", d.Name, d.Description, promptArguments(d))...)
		}
	}
	return append(out, ']')
}

// entry returns an element of a list.
func entry(key, name, description string, more []rawjson.Edit) []byte {
	edits := []rawjson.Edit{{Key: key, Value: rawjson.AppendQuote(nil, name)}}
	if description != "" {
		edits = append(edits, rawjson.Edit{Key: "description", Value: rawjson.AppendQuote(nil, description)})
	}
	return rawjson.Set(nil, append(edits, more...)...)
}

// promptArguments returns the arguments of a prompt: the variables of its document.
func promptArguments(d *document.Document) []rawjson.Edit {
	schema := d.Schema()
	needed := make(map[string]bool)
	for v := range rawjson.Elements(rawjson.Get(schema, "required")) {
		name, _ := wire.Text(v)
		needed[name] = true
	}
	var out []byte
	for name, v := range rawjson.Members(rawjson.Get(schema, "properties")) {
		about, _ := rawjson.GetString(v, "description")
		out = append(append(out, ','), entry("name", name, about,
			[]rawjson.Edit{{Key: "required", Value: strconv.AppendBool(nil, needed[name])}})...)
	}
	if out == nil {
		return nil
	}
	out[0] = '['
	return []rawjson.Edit{{Key: "arguments", Value: append(out, ']')}}
}

// The resources: the composed text, the voice, and each document by its name. Two schemes
// are equivalent.
const (
	uriScheme    = "instr://"
	uriLong      = "instructions://"
	uriTemplates = "templates/"
)

// nameAt returns the name of the text under a URI; false: the URI has no such form.
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

// resources returns the array of resources/list; without a view, the resources that every
// caller may read.
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

// resourceTemplates is the array of resources/templates/list, the same for all callers.
var resourceTemplates = []byte(`[{"uriTemplate":"` + uriScheme + uriTemplates + `{name}","name":"templates","title":"A text by its name","mimeType":"` + markdown + `"}]`)

const markdown = "text/markdown"
