package listing

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEntriesHaveTheFormThatClientsRequire: what the schema of the protocol requires of an entry is there,
// and what it allows stays byte for byte.
func TestEntriesHaveTheFormThatClientsRequire(t *testing.T) {
	t.Parallel()
	tools, prompts, resources := Merged("tools/list"), Merged("prompts/list"), Merged("resources/list")
	for entry, want := range map[string]struct {
		kind Kind
		out  string
	}{
		`{"name":"a", "inputSchema": {"type":"object","properties":{"b":{}}},"vendor":null}`: {tools, `{"name":"s__a", "inputSchema": {"type":"object","properties":{"b":{}}},"vendor":null}`},
		`{"name":"a"}`:                                       {tools, `{"name":"s__a","inputSchema":{"type":"object"}}`},
		`{"name":"a","inputSchema":null}`:                    {tools, `{"name":"s__a","inputSchema":{"type":"object"}}`},
		`{"name":"a","inputSchema":[]}`:                      {tools, `{"name":"s__a","inputSchema":{"type":"object"}}`},
		`{"name":"a","inputSchema":{}}`:                      {tools, `{"name":"s__a","inputSchema":{"type":"object"}}`},
		`{"name":"a","inputSchema":{"type":"string","x":1}}`: {tools, `{"name":"s__a","inputSchema":{"type":"object","x":1}}`},
		`{"name":"a","inputSchema":{"type":"object","properties":null,"required":null}}`:                                       {tools, `{"name":"s__a","inputSchema":{"type":"object"}}`},
		`{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"type":"object","required":null}}`:                        {tools, `{"name":"s__a","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}`},
		`{"name":"a","title":1,"description":null,"annotations":null,"icons":null,"_meta":[],"inputSchema":{"type":"object"}}`: {tools, `{"name":"s__a","inputSchema":{"type":"object"}}`},
		`{"name":"a","arguments":null,"description":null}`:                                                                     {prompts, `{"name":"s__a"}`},
		`{"uri":"file:///a","mimeType":null}`:                                                                                  {resources, `{"uri":"doorward://s/file:///a","name":"file:///a"}`},
	} {
		if diff := cmp.Diff("["+want.out+"]", string(Prefixed("s", want.kind, []byte("["+entry+"]")))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", entry, diff)
		}
	}
}
