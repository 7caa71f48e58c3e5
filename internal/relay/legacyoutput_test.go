package relay

import (
	"fmt"
	"testing"
)

// On the aggregate a legacy client gets no output schema that it would reject with the whole list, also from a legacy server,
// in the first answer and in one that is kept. Its other output schemas stay.
func TestAnOutputSchemaDoesNotTakeTheListFromALegacyClient(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			s := stdio(t, "quiz", era)
			const tool = `{"name":%q,"inputSchema":{"type":"object"},"outputSchema":%s}`
			s.setList("tools/list", fmt.Sprintf(`{"tools":[`+tool+`,`+tool+`,`+tool+`]`, "a", `{"type":"array"}`, "b", `{}`, "c", `{"type":"object"}`)+modernList(era)+`}`)
			h := build(t, []Server{s.server()})
			c := h.legacy("/mcp", "uid:1000", `{}`)
			for range 2 {
				equal(t, "tools", field(c.call("tools/list", ""), "result", "tools"),
					`[{"name":"quiz__a","inputSchema":{"type":"object"}},{"name":"quiz__b","inputSchema":{"type":"object"}},{"name":"quiz__c","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}]`)
			}
		})
	}
}

func modernList(era string) string {
	if era == "modern" {
		return `,"resultType":"complete","ttlMs":60000,"cacheScope":"private"`
	}
	return ""
}
