package rawjson

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/trust/wire"
)

func TestAppendMessages(t *testing.T) {
	t.Parallel()
	params := []byte(`{"n": 1.0}`)
	cases := []struct{ name, got, want string }{
		{"request", string(AppendRequest(nil, wire.IntID(1), "tools/call", params)),
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"n": 1.0}}`},
		{"request without params", string(AppendRequest([]byte("x"), wire.ID(`"\u0061"`), "a\"b", nil)),
			`x{"jsonrpc":"2.0","id":"\u0061","method":"a\"b"}`},
		{"notification", string(AppendNotification(nil, "n", params)), `{"jsonrpc":"2.0","method":"n","params":{"n": 1.0}}`},
		{"result", string(AppendResult(nil, wire.IntID(1), []byte("null"))), `{"jsonrpc":"2.0","id":1,"result":null}`},
		{"empty result", string(AppendResult(nil, wire.IntID(1), nil)), `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{"error", string(AppendError(nil, wire.IntID(1), &wire.Error{Code: -32601, Message: "no \"such\""})),
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no \"such\""}}`},
		{"error with data", string(AppendError(nil, nil, &wire.Error{Code: 1403, Data: []byte(`{"ref":7}`)})),
			`{"jsonrpc":"2.0","error":{"code":1403,"message":"","data":{"ref":7}}}`},
		{"error as it came", string(AppendError(nil, wire.IntID(1), &wire.Error{Code: 5, Raw: []byte(`{"message":"x", "code":1, "y":2}`)})),
			`{"jsonrpc":"2.0","id":1,"error":{"message":"x", "code":1, "y":2}}`},
	}
	for _, c := range cases {
		if c.got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, c.got, c.want)
		}
	}
}

// Parse accepts each message that the Append functions write, with the same content.
func TestAppendThenParse(t *testing.T) {
	t.Parallel()
	for _, m := range []wire.Message{
		{Kind: wire.Request, ID: wire.ID(`"x"`), Method: "a/ü\x00\n", Params: []byte(`{"a":1}`)},
		{Kind: wire.Notification, Method: "n"},
		{Kind: wire.Response, ID: wire.IntID(-1), Result: []byte(`[1]`)},
		{Kind: wire.Response, ID: wire.IntID(1), Error: &wire.Error{Code: -1, Message: "m", Data: []byte("[]")}},
		{Kind: wire.Response, Error: &wire.Error{Code: -1, Message: "\u2028"}},
	} {
		var text []byte
		switch {
		case m.Kind == wire.Request:
			text = AppendRequest(nil, m.ID, m.Method, m.Params)
		case m.Kind == wire.Notification:
			text = AppendNotification(nil, m.Method, m.Params)
		case m.Error != nil:
			text = AppendError(nil, m.ID, m.Error)
		default:
			text = AppendResult(nil, m.ID, m.Result)
		}
		got, err := wire.Parse(text, wire.FromServer)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got.Kind != m.Kind || string(got.ID) != string(m.ID) || got.Method != m.Method ||
			string(got.Params) != string(m.Params) || string(got.Result) != string(m.Result) || (got.Error == nil) != (m.Error == nil) {
			t.Errorf("got  %+v\nwant %+v", got, m)
		}
		if e := m.Error; e != nil && (got.Error.Code != e.Code || got.Error.Message != e.Message || string(got.Error.Data) != string(e.Data)) {
			t.Errorf("%s: error %+v", text, got.Error)
		}
	}
}

func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a", "\"\\/", "\x00\x1f\x7f\u0080", "\xff\xc3\xed\xa0\x80", "\u2028😀\ufffd", "\b\f\n\r\t"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		raw := AppendQuote(nil, s)
		if err := wire.ValidateValue(raw); err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		var std string
		if err := json.Unmarshal(raw, &std); err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		got, ok := wire.Text(raw)
		if !ok || got != std {
			t.Fatalf("%q: we read %q, encoding/json %q", raw, got, std)
		}
		if utf8.ValidString(s) && got != s {
			t.Fatalf("%q came back as %q", s, got)
		}
	})
}
