package listing

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/base/rawjson"
)

// A value of a wrong kind anywhere that clients look at is left out, because one takes away the entries of all servers.
// The members are those that ListToolsResultSchema and the like of the TypeScript SDK check.
func TestWhatClientsRejectIsLeftOutAtAnyDepth(t *testing.T) {
	t.Parallel()
	tool := func(member string) string { return `{"name":"a","inputSchema":{"type":"object"}` + member + `}` }
	resource := func(member string) string { return `{"uri":"a:b","name":"n"` + member + `}` }
	prompt := func(member string) string { return `{"name":"a"` + member + `}` }
	inSchema := func(member string) string { return `{"name":"a","inputSchema":{"type":"object"` + member + `}}` }
	for _, c := range []struct {
		kind    string
		entry   func(member string) string
		in, out string
	}{
		{"tools/list", tool, `,"annotations":{"title":null,"readOnlyHint":"yes","destructiveHint":1,"idempotentHint":true}`, `,"annotations":{"idempotentHint":true}`},
		{"tools/list", tool, `,"icons":[null]`, ``},
		{"tools/list", tool, `,"icons":[{"src":"a:b"},{}]`, ``},
		{"tools/list", tool, `,"icons":[{"src":"a:b"}]`, `,"icons":[{"src":"a:b"}]`},
		{"tools/list", tool, `,"execution":{"taskSupport":null}`, `,"execution":{}`},
		{"tools/list", inSchema, `,"required":["a",1]`, ``},
		{"tools/list", inSchema, `,"required":["a"]`, `,"required":["a"]`},
		{"tools/list", inSchema, `,"properties":{"a":true,"b":false,"c":null,"d":{"type":"string"}}`, `,"properties":{"a":{},"b":{"not":{}},"c":{},"d":{"type":"string"}}`},
		{"resources/list", resource, `,"size":null`, ``},
		{"resources/list", resource, `,"size":12`, `,"size":12`},
		{"resources/list", resource, `,"annotations":{"audience":null,"priority":null}`, `,"annotations":{}`},
		{"resources/list", resource, `,"annotations":{"audience":["user","me"],"lastModified":"today","priority":0.5}`, `,"annotations":{"priority":0.5}`},
		{"resources/list", resource, `,"annotations":{"audience":["user","assistant"],"lastModified":"2025-01-12T15:00:58Z"}`,
			`,"annotations":{"audience":["user","assistant"],"lastModified":"2025-01-12T15:00:58Z"}`},
		{"prompts/list", prompt, `,"arguments":[{"name":"x","description":null,"required":null},{"name":"y","required":true}]`, `,"arguments":[{"name":"x"},{"name":"y","required":true}]`},
		{"prompts/list", prompt, `,"arguments":[{"description":"no name"}]`, ``},
		{"prompts/list", prompt, `,"arguments":[null]`, ``},
	} {
		kind := Merged(c.kind)
		want := PrefixedEntry("s", kind, []byte(c.entry(c.out)))
		if diff := cmp.Diff(string(want), string(PrefixedEntry("s", kind, []byte(c.entry(c.in))))); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", c.kind, c.in, diff)
		}
	}
	for method, entry := range map[string]string{"resources/list": `{"uri":"a:b","name":null}`, "resources/templates/list": `{"uriTemplate":"a:b","name":1}`} {
		if diff := cmp.Diff(`"a:b"`, string(rawjson.Get(PrefixedEntry("s", Merged(method), []byte(entry)), "name"))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", entry, diff)
		}
	}
	for _, entry := range []string{`1`, `null`, `"x"`, `[]`, `{}`, `{"name":null}`} {
		if got := PrefixedEntry("s", Merged("tools/list"), []byte(entry)); got != nil {
			t.Errorf("%s: %s", entry, got)
		}
	}
}
