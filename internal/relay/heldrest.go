package relay

import "github.com/doorward/doorward/internal/base/rawjson"

// restOf returns the params of a held act beside its object and its arguments, in the form of
// rawjson.Canonical; nil: there are none. The operator is shown them, since the server gets them.
// _meta is left out: clients put data into it that differs for each request, such as trace ids.
func restOf(method string, params []byte) []byte {
	edits := []rawjson.Edit{{Key: "_meta"}}
	switch method {
	case "tools/call", "prompts/get":
		edits = append(edits, rawjson.Edit{Key: "name"}, rawjson.Edit{Key: "arguments"})
	case "resources/read":
		edits = append(edits, rawjson.Edit{Key: "uri"})
	}
	rest := rawjson.Canonical(rawjson.Set(params, edits...))
	if string(rest) == "{}" {
		return nil
	}
	return rest
}

// formOf returns the form of the arguments of an act with the rest of its params, for the
// binding of an approval. The rest is read when the form is needed, which it is for few calls. It
// counts as it is written, numbers too: the server gets that of the call, and not the one that was
// shown. No JSON text begins with the separator.
func formOf(t *target) func(args []byte) []byte {
	method, params := t.Method(), t.Params()
	return func(args []byte) []byte {
		form, rest := rawjson.Comparable(args), restOf(method, params)
		if rest == nil {
			return form
		}
		return append(append(form, 0), rest...)
	}
}
