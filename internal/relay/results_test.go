package relay

import (
	"testing"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/relay/naming"
	"github.com/doorward/doorward/internal/relay/question"
	"github.com/doorward/doorward/internal/relay/seal"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/test/policytest"
)

// A client gets valid JSON from any valid JSON of a server, and a list without
// what policy forbids.
func FuzzResults(f *testing.F) {
	for _, s := range []string{`{"tools":[{"name":"a"},{"name":"secret"},{"name":7},[],null]}`, `{"tools":{"name":"a"},"nextCursor":7}`, `[]`, `"x"`, `null`, `7`, ` { } `,
		`{"resources":[{"uri":"a"}],"ttlMs":null,"resultType":"complete"}`, `{"message":{"a":1},"_meta":7,"uri":[],"logger":"\u0000"}`,
		`{"inputRequests":{"k":{"method":"elicitation/create","params":7}},"requestState":null,"taskId":7,"resultType":"task"}`} {
		f.Add(s)
	}
	log, err := audit.Open(f.TempDir(), audit.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { log.Close() })
	seal, err := seal.New(make([]byte, 32))
	if err != nil {
		f.Fatal(err)
	}
	all := policy.List{Allow: []string{"*"}, Deny: []string{"secret"}}
	g := gate.New(policytest.New(f, 1000, map[string]policy.ServerRules{"s": {Tools: all, Ask: askAll}}), log, gate.Limits{})
	r := New(Options{Gate: g, Seal: seal, Servers: []Server{{Name: "s", Kind: "http"}}})
	f.Cleanup(r.Close)
	b := r.table.Load().byName["s"]
	f.Fuzz(func(t *testing.T, result string) {
		if _, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":`+result+`}`), wire.FromServer); err != nil {
			return
		}
		for _, client := range []front.Era{front.Legacy, front.Modern} {
			for _, server := range []front.Era{front.Legacy, front.Modern} {
				for _, method := range []string{"tools/list", "resources/list", "tools/call", "resources/read", "tasks/get", "future/x"} {
					x := exchangeOf("uid:1000")
					x.Era, x.Params = client, []byte(`{"taskId":"mine","_meta":{"`+wire.MetaCapabilities+`":{"elicitation":{}}}}`)
					l := r.links.new(b, owner{who: x.Who, client: client})
					got, err := r.translation.incoming(x, l, &liveConn{era: server}, aimed(t, "s", method, `{"name":"x","uri":"x"}`), upstream.Reply{Result: []byte(result)})
					l.close()
					if err != nil {
						continue
					}
					valid(t, method, got.Result)
					for e := range rawjson.Elements(rawjson.Get(got.Result, "tools")) {
						if n, _ := rawjson.GetString(e, "name"); method == "tools/list" && n == "secret" {
							t.Errorf("listed: %s", got.Result)
						}
					}
					asked, _ := question.Label("s", got.Result)
					valid(t, "label", asked)
					kind, _ := listing.Of("resources/list")
					valid(t, "prefixed", listing.Prefixed("s", kind, got.Result))
					for _, m := range []string{protocol.ResourceUpdated, "notifications/message"} {
						if len(result) > 0 && result[0] == '{' {
							valid(t, m, naming.Event("s", upstream.Event{Method: m, Params: []byte(result)}))
							valid(t, m, withoutListen([]byte(result)))
						}
					}
				}
			}
		}
	})
}

func valid(t *testing.T, what string, raw []byte) {
	t.Helper()
	if err := wire.ValidateValue(raw); err != nil {
		t.Errorf("%s: %q: %v", what, raw, err)
	}
}
