package relay

import (
	"maps"
	"slices"

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
}

// lists is the filter for every list and no resource.
func lists() *filter { return &filter{tools: true, prompts: true, resources: true} }

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
	}
	return false
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
	if len(f.uris) > 0 {
		out = append(comma(out), `"resourceSubscriptions":[`...)
		for i, u := range slices.Sorted(maps.Keys(f.uris)) {
			if i > 0 {
				out = append(out, ',')
			}
			out = wire.AppendQuote(out, u)
		}
		out = append(out, ']')
	}
	return append(out, '}')
}

func comma(b []byte) []byte {
	if len(b) > 1 {
		return append(b, ',')
	}
	return b
}

// parseFilter reads a notifications object.
func parseFilter(raw []byte) *filter {
	f := &filter{uris: make(map[string]bool)}
	f.tools = isTrue(wire.Get(raw, "toolsListChanged"))
	f.prompts = isTrue(wire.Get(raw, "promptsListChanged"))
	f.resources = isTrue(wire.Get(raw, "resourcesListChanged"))
	for u := range wire.Elements(wire.Get(raw, "resourceSubscriptions")) {
		if uri, ok := wire.Text(u); ok {
			f.uris[uri] = true
		}
	}
	return f
}

func isTrue(raw []byte) bool { return string(raw) == "true" }

// both keeps what f requested and g grants.
func (f *filter) both(g *filter) *filter {
	out := &filter{tools: f.tools && g.tools, prompts: f.prompts && g.prompts, resources: f.resources && g.resources, uris: make(map[string]bool)}
	for u := range f.uris {
		if g.uris[u] {
			out.uris[u] = true
		}
	}
	return out
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
