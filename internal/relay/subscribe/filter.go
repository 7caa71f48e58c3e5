// Package subscribe holds what clients listen to: the filter of a listen, and the audience of
// changes that no server reports.
package subscribe

import (
	"maps"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Filter is the set of changes that a listener wants to receive (Subscriptions, "Filter"). A
// filter in use is replaced by a changed copy, see With.
type Filter struct {
	Tools, Prompts, Resources bool
	URIs                      map[string]bool
	Tasks                     map[string]bool   // ids (SEP-2663)
	Rest                      map[string]string // members that Doorward does not know, raw
}

// Named returns how many objects the filter names.
func (f *Filter) Named() int { return len(f.URIs) + len(f.Tasks) }

// Lists returns the filter for every list and no object.
func Lists() *Filter { return &Filter{Tools: true, Prompts: true, Resources: true} }

// Wants reports whether a change is part of the filter. A server may report the change of a
// sub-resource to the subscriber of the whole (schema, ResourceUpdatedNotification).
func (f *Filter) Wants(method string, params []byte) bool {
	if method == protocol.ResourceUpdated {
		uri, _ := rawjson.GetString(params, "uri")
		return f.Whole(uri) != ""
	}
	return f.Names(method, params)
}

// Names reports whether the filter itself names what changed.
func (f *Filter) Names(method string, params []byte) bool {
	switch method {
	case protocol.ToolsChanged:
		return f.Tools
	case protocol.PromptsChanged:
		return f.Prompts
	case protocol.ResourcesChanged:
		return f.Resources
	case protocol.ResourceUpdated:
		uri, _ := rawjson.GetString(params, "uri")
		return f.URIs[uri]
	case protocol.TaskChanged:
		id, _ := rawjson.GetString(params, "taskId")
		return f.Tasks[id]
	case "notifications/message", protocol.TaskStatus:
		return false
	}
	return len(f.Rest) > 0
}

// Whole returns the resource of the filter that uri names or is a sub-resource of, the longest if
// there are several; empty: none. A sub-resource continues the URI of the whole behind a slash, a
// question mark or a number sign.
func (f *Filter) Whole(uri string) (whole string) {
	if f.URIs[uri] {
		return uri
	}
	for one := range f.URIs { // not each part of uri: the server chooses its length
		if len(one) > len(whole) && isPart(uri, one) {
			whole = one
		}
	}
	return whole
}

func isPart(uri, whole string) bool {
	rest, ok := strings.CutPrefix(uri, whole)
	return ok && (rest == "" || strings.IndexByte("/?#", rest[0]) >= 0 || strings.IndexByte("/?#", whole[len(whole)-1]) >= 0)
}

// With returns a copy of f with or without a resource.
func (f *Filter) With(uri string, on bool) *Filter {
	g := *f
	g.URIs = make(map[string]bool, len(f.URIs)+1)
	maps.Copy(g.URIs, f.URIs)
	if on {
		g.URIs[uri] = true
	} else {
		delete(g.URIs, uri)
	}
	return &g
}

// JSON returns the notifications object of f, in a fixed order.
func (f *Filter) JSON() []byte {
	out := []byte{'{'}
	for _, k := range []struct {
		on   bool
		name string
	}{{f.Tools, "toolsListChanged"}, {f.Prompts, "promptsListChanged"}, {f.Resources, "resourcesListChanged"}} {
		if k.on {
			out = append(rawjson.AppendComma(out), `"`+k.name+`":true`...)
		}
	}
	out = appendTexts(out, "resourceSubscriptions", f.URIs)
	out = appendTexts(out, "taskIds", f.Tasks)
	for _, key := range slices.Sorted(maps.Keys(f.Rest)) {
		out = append(append(rawjson.AppendQuote(rawjson.AppendComma(out), key), ':'), f.Rest[key]...)
	}
	return append(out, '}')
}

// appendTexts adds a member that lists texts, if there are any.
func appendTexts(out []byte, member string, texts map[string]bool) []byte {
	if len(texts) == 0 {
		return out
	}
	out = append(rawjson.AppendComma(out), `"`+member+`":[`...)
	for i, text := range slices.Sorted(maps.Keys(texts)) {
		if i > 0 {
			out = append(out, ',')
		}
		out = rawjson.AppendQuote(out, text)
	}
	return append(out, ']')
}

// ParseFilter reads a notifications object.
func ParseFilter(raw []byte) *Filter {
	f := &Filter{Rest: make(map[string]string)}
	for key, value := range rawjson.Members(raw) {
		switch key {
		case "toolsListChanged":
			f.Tools = rawjson.IsTrue(value)
		case "promptsListChanged":
			f.Prompts = rawjson.IsTrue(value)
		case "resourcesListChanged":
			f.Resources = rawjson.IsTrue(value)
		case "resourceSubscriptions":
			f.URIs = texts(value)
		case "taskIds":
			f.Tasks = texts(value)
		default:
			f.Rest[key] = string(value)
		}
	}
	return f
}

// texts returns the set of the texts in a list.
func texts(list []byte) map[string]bool {
	out := make(map[string]bool)
	for raw := range rawjson.Elements(list) {
		if text, ok := wire.Text(raw); ok {
			out[text] = true
		}
	}
	return out
}

// Both returns what f requests and g grants.
func (f *Filter) Both(g *Filter) *Filter {
	out := &Filter{Tools: f.Tools && g.Tools, Prompts: f.Prompts && g.Prompts, Resources: f.Resources && g.Resources,
		URIs: maps.Clone(f.URIs), Tasks: maps.Clone(f.Tasks), Rest: maps.Clone(g.Rest)}
	maps.DeleteFunc(out.URIs, func(uri string, _ bool) bool { return !g.URIs[uri] })
	maps.DeleteFunc(out.Tasks, func(id string, _ bool) bool { return !g.Tasks[id] })
	maps.DeleteFunc(out.Rest, func(key, _ string) bool { return f.Rest[key] == "" })
	return out
}

// Add adds the requests of g to f. If a member that Doorward does not know has two values,
// the first one stays.
func (f *Filter) Add(g *Filter) {
	f.URIs, f.Tasks, f.Rest = united(f.URIs, g.URIs), united(f.Tasks, g.Tasks), united(f.Rest, g.Rest)
}

// united adds to a map, nil for an empty one, the entries of another whose keys it lacks, and
// returns it.
func united[V any](m, more map[string]V) map[string]V {
	if m == nil {
		return maps.Clone(more)
	}
	for key, value := range more {
		if _, ok := m[key]; !ok {
			m[key] = value
		}
	}
	return m
}

// Covers reports whether f asks for every object and member that g asks for.
func (f *Filter) Covers(g *Filter) bool {
	for key := range g.Rest {
		if f.Rest[key] == "" {
			return false
		}
	}
	return covers(f.URIs, g.URIs) && covers(f.Tasks, g.Tasks)
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
