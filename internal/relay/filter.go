package relay

import (
	"maps"
	"slices"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// The notifications of changes, which belong to no call, whatever stream they
// came on.
const (
	toolsChanged     = "notifications/tools/list_changed"
	promptsChanged   = "notifications/prompts/list_changed"
	resourcesChanged = "notifications/resources/list_changed"
	resourceUpdated  = "notifications/resources/updated"
)

func isChange(method string) bool {
	switch method {
	case toolsChanged, promptsChanged, resourcesChanged, resourceUpdated:
		return true
	}
	return false
}

// filter is what a listener wants to receive (Subscriptions, "Filter"). It is
// replaced, never changed.
type filter struct {
	tools, prompts, resources bool
	uris                      map[string]bool
	tasks                     map[string]bool   // ids (SEP-2663)
	rest                      map[string]string // members that Doorward does not know, raw
}

// named is how many objects it names.
func (f *filter) named() int { return len(f.uris) + len(f.tasks) }

// lists is the filter for every list and no object.
func lists() *filter {
	return &filter{tools: true, prompts: true, resources: true,
		uris: make(map[string]bool), tasks: make(map[string]bool), rest: make(map[string]string)}
}

// wants decides whether a change is part of it.
func (f *filter) wants(method string, params []byte) bool {
	switch method {
	case toolsChanged:
		return f.tools
	case promptsChanged:
		return f.prompts
	case resourcesChanged:
		return f.resources
	case resourceUpdated:
		uri, _ := wire.GetString(params, "uri")
		return f.uris[uri]
	case taskChanged:
		id, _ := wire.GetString(params, "taskId")
		return f.tasks[id]
	case "notifications/message", taskStatus:
		return false
	}
	return len(f.rest) > 0
}

// with is f with a resource more, or less.
func (f *filter) with(uri string, on bool) *filter {
	g := *f
	g.uris = make(map[string]bool, len(f.uris)+1)
	maps.Copy(g.uris, f.uris)
	if on {
		g.uris[uri] = true
	} else {
		delete(g.uris, uri)
	}
	return &g
}

// json is the notifications object of f, in a fixed order.
func (f *filter) json() []byte {
	out := []byte{'{'}
	for _, k := range []struct {
		on   bool
		name string
	}{{f.tools, "toolsListChanged"}, {f.prompts, "promptsListChanged"}, {f.resources, "resourcesListChanged"}} {
		if k.on {
			out = append(comma(out), `"`+k.name+`":true`...)
		}
	}
	out = appendTexts(out, "resourceSubscriptions", f.uris)
	out = appendTexts(out, "taskIds", f.tasks)
	for _, key := range slices.Sorted(maps.Keys(f.rest)) {
		out = append(append(rawjson.AppendQuote(comma(out), key), ':'), f.rest[key]...)
	}
	return append(out, '}')
}

// appendTexts adds a member that lists texts, if there are any.
func appendTexts(out []byte, member string, texts map[string]bool) []byte {
	if len(texts) == 0 {
		return out
	}
	out = append(comma(out), `"`+member+`":[`...)
	for i, text := range slices.Sorted(maps.Keys(texts)) {
		if i > 0 {
			out = append(out, ',')
		}
		out = rawjson.AppendQuote(out, text)
	}
	return append(out, ']')
}

func comma(b []byte) []byte {
	if len(b) > 1 {
		return append(b, ',')
	}
	return b
}

// parseFilter reads a notifications object.
func parseFilter(raw []byte) *filter {
	f := &filter{rest: make(map[string]string)}
	for key, value := range wire.Members(raw) {
		switch key {
		case "toolsListChanged":
			f.tools = isTrue(value)
		case "promptsListChanged":
			f.prompts = isTrue(value)
		case "resourcesListChanged":
			f.resources = isTrue(value)
		case "resourceSubscriptions":
			f.uris = texts(value)
		case "taskIds":
			f.tasks = texts(value)
		default:
			f.rest[key] = string(value)
		}
	}
	return f
}

// texts is the set of a list's texts.
func texts(list []byte) map[string]bool {
	out := make(map[string]bool)
	for raw := range wire.Elements(list) {
		if text, ok := wire.Text(raw); ok {
			out[text] = true
		}
	}
	return out
}

func isTrue(raw []byte) bool { return string(raw) == "true" }

// both keeps what f requested and g grants.
func (f *filter) both(g *filter) *filter {
	out := &filter{tools: f.tools && g.tools, prompts: f.prompts && g.prompts, resources: f.resources && g.resources,
		uris: maps.Clone(f.uris), tasks: maps.Clone(f.tasks), rest: maps.Clone(g.rest)}
	maps.DeleteFunc(out.uris, func(uri string, _ bool) bool { return !g.uris[uri] })
	maps.DeleteFunc(out.tasks, func(id string, _ bool) bool { return !g.tasks[id] })
	maps.DeleteFunc(out.rest, func(key, _ string) bool { return f.rest[key] == "" })
	return out
}

// add makes f ask for what g asks too. Of two values of a member that Doorward does not
// know, the first one stays.
func (f *filter) add(g *filter) {
	maps.Copy(f.uris, g.uris)
	maps.Copy(f.tasks, g.tasks)
	for key, value := range g.rest {
		if f.rest[key] == "" {
			f.rest[key] = value
		}
	}
}

// covers reports whether f asks for every object and member that g asks for.
func (f *filter) covers(g *filter) bool {
	for key := range g.rest {
		if f.rest[key] == "" {
			return false
		}
	}
	return covers(f.uris, g.uris) && covers(f.tasks, g.tasks)
}

// covers reports whether everything in want is in the set.
func covers(set, want map[string]bool) bool {
	for k := range want {
		if !set[k] {
			return false
		}
	}
	return true
}
