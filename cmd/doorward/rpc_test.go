package main

import (
	"testing"

	"github.com/doorward/doorward/client"
)

// TestAnErrorOfACallIsOneLineOfText: an error of JSON-RPC is printed with its reason and the
// number of its record as text; with --json its data is unchanged.
func TestAnErrorOfACallIsOneLineOfText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		e          client.RPCError
		text, json string
		status     int
	}{
		{client.RPCError{Code: 1403, Message: "Denied by policy", Data: []byte(`{"ref":17,"reason":"no-etc"}`)},
			"Denied by policy (1403): no-etc (record 17)", `Denied by policy (1403) {"ref":17,"reason":"no-etc"}`, exitRefused},
		{client.RPCError{Code: 1502, Message: "Upstream failed", Data: []byte(`{"ref":17,"detail":"EOF","reason":"a \"b\""}`)},
			`Upstream failed (1502): a "b": EOF (record 17)`, `Upstream failed (1502) {"ref":17,"detail":"EOF","reason":"a \"b\""}`, exitFailed},
		{client.RPCError{Code: 1503, Message: "Unavailable", Data: []byte(`{"ref":0}`)}, "Unavailable (1503)", `Unavailable (1503) {"ref":0}`, exitFailed},
		{client.RPCError{Code: -32602, Message: "Unknown tool", Data: []byte("null")}, "Unknown tool (-32602)", "Unknown tool (-32602) null", exitFailed},
		{client.RPCError{Code: -32602, Message: "Unknown tool"}, "Unknown tool (-32602)", "Unknown tool (-32602)", exitFailed},
		{client.RPCError{Code: -32602, Message: "invalid: [\n  {\n    \"a\"\n", Data: []byte(`{"ref":1,"path":"/"}`)},
			`invalid: [ { "a" (-32602): {"ref":1,"path":"/"}`, "invalid: [\n  {\n    \"a\"\n (-32602) {\"ref\":1,\"path\":\"/\"}", exitFailed},
	} {
		for asJSON, want := range map[bool]string{false: c.text, true: c.json} {
			err := rpcFailure(&c.e, asJSON)
			f, ok := err.(*failure)
			if !ok || f.Error() != want || f.status != c.status {
				t.Errorf("json %v: %v, want %q and status %d", asJSON, err, want, c.status)
			}
		}
	}
}
