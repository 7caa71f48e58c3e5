package wire

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// refusals says, for each rule, what is refused, with which code, and why.
// The comment on each group names the rule.
var refusals = []struct {
	name, text string
	code       int
	reason     string
}{
	// Not one strict JSON value.
	{"nothing", ``, -32700, reasonEOF},
	{"white space only", " \n", -32700, reasonEOF},
	{"byte order mark", "\uFEFF" + ping, -32700, reasonBOM},
	{"a second value", ping + ping, -32700, reasonTrailing},
	{"a second value on its own line", ping + "\n{}", -32700, reasonTrailing},
	{"form feed is no white space", ping + "\f", -32700, reasonTrailing},
	{"no-break space is no white space", "\u00A0" + ping, -32700, reasonValue},
	{"unfinished object", `{"jsonrpc":"2.0"`, -32700, reasonEOF},
	{"unfinished key", `{"jsonrpc`, -32700, reasonEOF},
	{"object ends behind a comma", `{"jsonrpc":"2.0",}`, -32700, reasonKey},
	{"no end behind a comma", `{"jsonrpc":"2.0",`, -32700, reasonEOF},
	{"no colon", `{"jsonrpc" "2.0"}`, -32700, reasonColon},
	{"no value", `{"jsonrpc":`, -32700, reasonEOF},
	{"no comma", `{"jsonrpc":"2.0" "id":1}`, -32700, reasonObjectNext},
	{"key is no string", `{jsonrpc:"2.0"}`, -32700, reasonKey},
	{"single quotes", `{'jsonrpc':"2.0"}`, -32700, reasonKey},
	{"comment", `/* */` + ping, -32700, reasonValue},
	{"array ends behind a comma", withParams(`{"a":[1,]}`), -32700, reasonValue},
	{"no comma in an array", withParams(`{"a":[1 2]}`), -32700, reasonArrayNext},
	{"unfinished array", `{"jsonrpc":"2.0","params":{"a":[1`, -32700, reasonEOF},
	{"wrong bracket", withParams(`{"a":[1}}`), -32700, reasonArrayNext},
	{"literal in capitals", withParams(`{"a":True}`), -32700, reasonValue},
	{"cut literal", withParams(`{"a":tru}`), -32700, reasonLiteral},
	{"NaN", withParams(`{"a":NaN}`), -32700, reasonValue},
	{"leading zero", withParams(`{"a":01}`), -32700, reasonObjectNext},
	{"leading plus", withParams(`{"a":+1}`), -32700, reasonValue},
	{"minus alone", withParams(`{"a":-}`), -32700, reasonNumber},
	{"no digit before the point", withParams(`{"a":.5}`), -32700, reasonValue},
	{"no digit behind the point", withParams(`{"a":1.}`), -32700, reasonNumber},
	{"no digit in the exponent", withParams(`{"a":1e}`), -32700, reasonNumber},
	{"no digit behind the exponent's sign", withParams(`{"a":1e+}`), -32700, reasonNumber},
	{"hexadecimal", withParams(`{"a":0x1}`), -32700, reasonObjectNext},
	{"a number of many digits", withParams(`{"a":` + strings.Repeat("1", maxNumber+1) + `}`), -32700, reasonLongNumber},

	// Strings: UTF-8 and escapes.
	{"raw control character", withParams("{\"a\":\"\x01\"}"), -32700, reasonControl},
	{"raw line feed", withParams("{\"a\":\"\n\"}"), -32700, reasonControl},
	{"raw control character behind eight others", withParams("{\"a\":\"12345678\x1f\"}"), -32700, reasonControl},
	{"unknown escape", withParams(`{"a":"\x41"}`), -32700, reasonEscape},
	{"short unicode escape", withParams(`{"a":"\u12"}`), -32700, reasonEscape},
	{"bad digit in a unicode escape", withParams(`{"a":"\u12G4"}`), -32700, reasonEscape},
	{"escape at the end", `"\`, -32700, reasonEOF},
	{"high surrogate alone", withParams(`{"a":"\ud800"}`), -32700, reasonSurrogate},
	{"low surrogate alone", withParams(`{"a":"\udc00 and more text"}`), -32700, reasonSurrogate},
	{"surrogates the wrong way round", withParams(`{"a":"\udc00\ud800"}`), -32700, reasonSurrogate},
	{"two high surrogates", withParams(`{"a":"\ud800\ud800"}`), -32700, reasonSurrogate},
	{"high surrogate and an escape", withParams(`{"a":"\ud800\u0041"}`), -32700, reasonSurrogate},
	{"high surrogate and text", withParams(`{"a":"\ud800 plain text"}`), -32700, reasonSurrogate},
	{"stray continuation byte", withParams("{\"a\":\"\x80\"}"), -32700, reasonUTF8},
	{"cut sequence", withParams("{\"a\":\"\xe2\x82\"}"), -32700, reasonUTF8},
	{"overlong sequence", withParams("{\"a\":\"\xc0\xaf\"}"), -32700, reasonUTF8},
	{"surrogate in UTF-8", withParams("{\"a\":\"\xed\xa0\x80\"}"), -32700, reasonUTF8},
	{"above U+10FFFF", withParams("{\"a\":\"\xf4\x90\x80\x80\"}"), -32700, reasonUTF8},
	{"invalid UTF-8 in a key", withParams("{\"a\xff\":1}"), -32700, reasonUTF8},
	{"UTF-16", "\xfe\xff\x00{", -32700, reasonValue},

	// Duplicate keys at any depth, compared unescaped.
	{"method twice", `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`, -32700, reasonDuplicate},
	{"method twice, once escaped", `{"jsonrpc":"2.0","id":1,"method":"ping","\u006dethod":"tools/call"}`, -32700, reasonDuplicate},
	{"strange member twice", `{"jsonrpc":"2.0","id":1,"method":"ping","x":1,"x":1}`, -32700, reasonDuplicate},
	{"name twice", withParams(`{"name":"a","name":"b"}`), -32700, reasonDuplicate},
	{"argument twice", withParams(`{"arguments":{"path":1,"path":2}}`), -32700, reasonDuplicate},
	{"argument twice, escaped", withParams(`{"arguments":{"path":1,"pat\u0068":2}}`), -32700, reasonDuplicate},
	{"both escaped, differently", withParams(`{"a":{"\u0061b":1,"a\u0062":2}}`), -32700, reasonDuplicate},
	{"escaped solidus", withParams(`{"a":{"x/y":1,"x\/y":2}}`), -32700, reasonDuplicate},
	{"pair of surrogates against UTF-8", withParams(`{"a":{"\ud83d\ude00":1,"😀":2}}`), -32700, reasonDuplicate},
	{"deep inside", withParams(`{"a":[[{"b":{"c":1,"d":2,"c":3}}]]}`), -32700, reasonDuplicate},
	{"empty key twice", withParams(`{"a":{"":1,"":2}}`), -32700, reasonDuplicate},
	{"long keys twice", withParams(`{"a":{"a long key, equal":1,"a long key, differ":2,"a long key, equal":3}}`), -32700, reasonDuplicate},
	{"in a result", `{"jsonrpc":"2.0","id":1,"result":{"content":[],"content":[]}}`, -32700, reasonDuplicate},
	{"in error data", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","data":{"a":1,"a":2}}}`, -32700, reasonDuplicate},

	// Texts that end early.
	{"an open string", "\"ä", -32700, reasonEOF},
	{"an open object", `{`, -32700, reasonEOF},
	{"half a surrogate pair", `"\ud83d`, -32700, reasonSurrogate},
	{"half a surrogate pair and a backslash", `"\ud83d\`, -32700, reasonSurrogate},
	{"a surrogate pair but for a digit", `"\ud83d\ude0`, -32700, reasonSurrogate},
	{"an escape but for a digit", `"\u004`, -32700, reasonEscape},
	{"a sign alone", `-`, -32700, reasonNumber},
	{"a point without digits", `1.`, -32700, reasonNumber},
	{"an exponent without digits", `1e`, -32700, reasonNumber},
	{"a signed exponent without digits", `1e+`, -32700, reasonNumber},
	{"a key alone", `{"a"`, -32700, reasonEOF},
	{"a byte order mark alone", "\uFEFF", -32700, reasonBOM},

	// Depth.
	{"objects too deep", strings.Repeat(`{"a":`, maxDepth) + `{}`, -32700, reasonDepth},
	{"too deep", withParams(nested(maxDepth)), -32700, reasonDepth},
	{"far too deep", strings.Repeat("[", 1_000_000), -32700, reasonDepth},

	// JSON, but no message.
	{"a string", `"ping"`, -32600, reasonNotObject},
	{"null", `null`, -32600, reasonNotObject},
	{"a batch where none is read", `[` + ping + `]`, -32600, reasonNotObject},
	{"empty object", `{}`, -32600, reasonVersion},
	{"no version", `{"id":1,"method":"ping"}`, -32600, reasonVersion},
	{"other version", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, -32600, reasonVersion},
	{"version as a number", `{"jsonrpc":2.0,"id":1,"method":"ping"}`, -32600, reasonVersion},
	{"version in an array", `{"jsonrpc":[2.0],"id":1,"method":"ping"}`, -32600, reasonVersion},
	{"version null", `{"jsonrpc":null,"id":1,"method":"ping"}`, -32600, reasonVersion},
	{"version with a space", `{"jsonrpc":"2.0 ","id":1,"method":"ping"}`, -32600, reasonVersion},
	{"id alone", `{"jsonrpc":"2.0","id":1}`, -32600, reasonNoKind},
	{"method null", `{"jsonrpc":"2.0","id":1,"method":null}`, -32600, reasonMethod},
	{"method empty", `{"jsonrpc":"2.0","id":1,"method":""}`, -32600, reasonMethod},
	{"method a number", `{"jsonrpc":"2.0","id":1,"method":12}`, -32600, reasonMethod},
	{"method an object", `{"jsonrpc":"2.0","id":1,"method":{"a":"b"}}`, -32600, reasonMethod},
	{"params an array", `{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`, -32600, reasonParams},
	{"params null", `{"jsonrpc":"2.0","id":1,"method":"ping","params":null}`, -32600, reasonParams},
	{"params a string", `{"jsonrpc":"2.0","method":"ping","params":"{}"}`, -32600, reasonParams},

	// Ids.
	{"id null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, -32600, reasonID},
	{"id true", `{"jsonrpc":"2.0","id":true,"method":"ping"}`, -32600, reasonID},
	{"id an object", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, -32600, reasonID},
	{"id an array", `{"jsonrpc":"2.0","id":[1],"method":"ping"}`, -32600, reasonID},
	{"id a fraction", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, -32600, reasonID},
	{"id a whole fraction", `{"jsonrpc":"2.0","id":1.0,"method":"ping"}`, -32600, reasonID},
	{"id with an exponent", `{"jsonrpc":"2.0","id":1e3,"method":"ping"}`, -32600, reasonID},
	{"id minus zero", `{"jsonrpc":"2.0","id":-0,"method":"ping"}`, -32600, reasonID},
	{"id of 257 bytes", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 255) + `","method":"ping"}`, -32600, reasonLongID},
	{"id of 257 digits", `{"jsonrpc":"2.0","id":` + strings.Repeat("1", 257) + `,"method":"ping"}`, -32600, reasonLongID},
	{"result for id null", `{"jsonrpc":"2.0","id":null,"result":{}}`, -32600, reasonID},

	// Responses.
	{"result without id", `{"jsonrpc":"2.0","result":{}}`, -32600, reasonNoID},
	{"result and error", `{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}`, -32600, reasonResultAndError},
	{"result and null error", `{"jsonrpc":"2.0","id":1,"result":{},"error":null}`, -32600, reasonResultAndError},
	{"method and result", `{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}`, -32600, reasonMixed},
	{"method and error", `{"jsonrpc":"2.0","id":1,"method":"ping","error":{"code":1,"message":""}}`, -32600, reasonMixed},
	{"params and result", `{"jsonrpc":"2.0","id":1,"params":{},"result":{}}`, -32600, reasonMixed},
	{"error null", `{"jsonrpc":"2.0","id":1,"error":null}`, -32600, reasonErrorObject},
	{"error a string", `{"jsonrpc":"2.0","id":1,"error":"no"}`, -32600, reasonErrorObject},
	{"error empty", `{"jsonrpc":"2.0","id":1,"error":{}}`, -32600, reasonErrorObject},
	{"error without message", `{"jsonrpc":"2.0","id":1,"error":{"code":1}}`, -32600, reasonErrorObject},
	{"error without code", `{"jsonrpc":"2.0","id":1,"error":{"message":"no"}}`, -32600, reasonErrorObject},
	{"error code a string", `{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":"no"}}`, -32600, reasonErrorObject},
	{"error code a fraction", `{"jsonrpc":"2.0","id":1,"error":{"code":1.0,"message":"no"}}`, -32600, reasonErrorObject},
	{"error code beyond 64 bits", `{"jsonrpc":"2.0","id":1,"error":{"code":9223372036854775808,"message":"no"}}`, -32600, reasonErrorObject},
	{"error message null", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":null}}`, -32600, reasonErrorObject},

	// Case: keys that a decoder which folds case would take for another.
	{"METHOD", `{"jsonrpc":"2.0","id":1,"method":"ping","METHOD":"tools/call"}`, -32600, reasonKeyVariant},
	{"METHOD alone", `{"jsonrpc":"2.0","id":1,"METHOD":"tools/call"}`, -32600, reasonKeyVariant},
	{"METHOD, escaped", `{"jsonrpc":"2.0","id":1,"method":"ping","\u004dETHOD":"tools/call"}`, -32600, reasonKeyVariant},
	{"param\u017f", `{"jsonrpc":"2.0","id":1,"method":"ping","param` + "\u017f" + `":{}}`, -32600, reasonKeyVariant},
	{"param\u017f, escaped", `{"jsonrpc":"2.0","id":1,"method":"ping","param\u017f":{}}`, -32600, reasonKeyVariant},
	{"json\u017frpc", `{"j` + "\u017f" + `onrpc":"1.0","jsonrpc":"2.0","id":1,"method":"ping"}`, -32600, reasonKeyVariant},
	{"params.Name", withParams(`{"name":"a","Name":"b"}`), -32600, reasonKeyVariant},
	{"params.URI", withParams(`{"URI":"b"}`), -32600, reasonKeyVariant},
	{"params.Arguments", withParams(`{"Arguments":{}}`), -32600, reasonKeyVariant},
	{"params._META", withParams(`{"_META":{}}`), -32600, reasonKeyVariant},
	{"params.ta\u017fKId with a Kelvin sign", withParams(`{"ta` + "\u017f\u212a" + `Id":"x"}`), -32600, reasonKeyVariant},
	{"the version in _meta", withParams(`{"_meta":{"io.modelcontextprotocol/ProtocolVersion":"2025-11-25"}}`), -32600, reasonKeyVariant},
	{"result.Content", `{"jsonrpc":"2.0","id":1,"result":{"Content":[]}}`, -32600, reasonKeyVariant},
	{"result.toolS", `{"jsonrpc":"2.0","id":1,"result":{"tool` + "\u017f" + `":[]}}`, -32600, reasonKeyVariant},
	{"result._meta", `{"jsonrpc":"2.0","id":1,"result":{"_meta":{"Io.modelcontextprotocol/subscriptionId":1}}}`, -32600, reasonKeyVariant},
	{"error.Code", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"Code":2,"message":""}}`, -32600, reasonKeyVariant},
	{"strange members that fold", `{"jsonrpc":"2.0","id":1,"method":"ping","trace":1,"Trace":2}`, -32600, reasonFoldedKeys},
	{"arguments that fold", withParams(`{"arguments":{"path":"a","Path":"b"}}`), -32600, reasonFoldedKeys},
	{"arguments that fold beyond ASCII", withParams(`{"arguments":{"Straße":"a","STRASSE":"b","straße":1}}`), -32600, reasonFoldedKeys},
	{"arguments that fold to ASCII", withParams(`{"arguments":{"task":"a","ta` + "\u017f\u212a" + `":"b"}}`), -32600, reasonFoldedKeys},
	{"arguments that fold, escaped", withParams(`{"arguments":{"k":"a","\u212a":"b"}}`), -32600, reasonFoldedKeys},
	{"_meta keys that fold", withParams(`{"_meta":{"com.example/x":"a","com.Example/x":"b"}}`), -32600, reasonFoldedKeys},

	// Control characters in keys.
	{"method and NUL", `{"jsonrpc":"2.0","id":1,"method":"ping","method\u0000":"tools/call"}`, -32600, reasonKeyControl},
	{"name and line feed", withParams(`{"name":"a","name\n":"b"}`), -32600, reasonKeyControl},
	{"argument and DEL", withParams("{\"arguments\":{\"path\x7f\":1}}"), -32600, reasonKeyControl},
	{"_meta and U+0085", withParams("{\"_meta\":{\"a\u0085\":1}}"), -32600, reasonKeyControl},
	{"_meta and escaped U+009F", withParams(`{"_meta":{"a\u009f":1}}`), -32600, reasonKeyControl},
	{"result and tab", `{"jsonrpc":"2.0","id":1,"result":{"\t":1}}`, -32600, reasonKeyControl},
	{"error and escape", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","\u001b":2}}`, -32600, reasonKeyControl},

	// Broken JSON is reported before a broken message.
	{"variant, then garbage", `{"METHOD":1,}`, -32700, reasonKey},
}

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

func withParams(params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
}

// nested is an object of the given depth.
func nested(depth int) string {
	return `{"a":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + `}`
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, side := range []Side{FromClient, FromServer} {
				_, err := Parse([]byte(c.text), side)
				var e *SyntaxError
				if !errors.As(err, &e) {
					t.Fatalf("side %d: accepted, or not a SyntaxError: %v", side, err)
				}
				if e.Code != c.code || e.Reason != c.reason {
					t.Errorf("side %d: %d %q, want %d %q", side, e.Code, e.Reason, c.code, c.reason)
				}
				if e.Offset < 0 || e.Offset > len(c.text) {
					t.Errorf("side %d: offset %d of %d bytes", side, e.Offset, len(c.text))
				}
			}
		})
	}
}

// Each variant of a known key in capitals or with folding characters is refused at
// the level of the key.
func TestParseRefusesEveryVariant(t *testing.T) {
	t.Parallel()
	around := map[level][2]string{
		levelEnvelope: {`{"jsonrpc":"2.0","method":"m",`, `}`},
		levelParams:   {`{"jsonrpc":"2.0","method":"m","params":{`, `}}`},
		levelMeta:     {`{"jsonrpc":"2.0","method":"m","params":{"_meta":{`, `}}}`},
		levelResult:   {`{"jsonrpc":"2.0","id":1,"result":{`, `}}`},
		levelError:    {`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"",`, `}}`},
	}
	for lv, v := range vocabularies {
		for _, k := range v.keys {
			for _, variant := range []string{strings.ToUpper(k), strings.ToUpper(k[:1]) + k[1:],
				strings.ReplaceAll(k, "s", "\u017f"), strings.ReplaceAll(k, "k", "\u212a")} {
				if variant == k {
					continue
				}
				text := around[level(lv)][0] + `"` + variant + `":null` + around[level(lv)][1]
				_, err := Parse([]byte(text), FromServer)
				var e *SyntaxError
				if !errors.As(err, &e) || e.Reason != reasonKeyVariant {
					t.Errorf("%s: %v", text, err)
				}
			}
		}
	}
}

// Six members have a level of their own. Objects in all others may have keys that differ
// in case alone.
func TestLevelsBelowALevel(t *testing.T) {
	t.Parallel()
	below := map[level]map[string]level{
		levelEnvelope: {"params": levelParams, "result": levelResult, "error": levelError},
		levelParams:   {"_meta": levelMeta, "arguments": levelArguments},
		levelResult:   {"_meta": levelMeta},
	}
	for lv, v := range vocabularies {
		for i, k := range v.keys {
			if got, want := level(lv).child(field(i+1)), below[level(lv)][k]; got != want {
				t.Errorf("%s of level %d leads to level %d, want %d", k, lv, got, want)
			}
		}
		if got := level(lv).child(fieldNone); got != levelNone {
			t.Errorf("a strange key of level %d leads to level %d", lv, got)
		}
	}
}

func TestVocabularies(t *testing.T) {
	t.Parallel()
	for lv, v := range vocabularies {
		if len(v.keys) > 63 {
			t.Errorf("level %d has %d keys: more than the bits that tell them apart", lv, len(v.keys))
		}
		sorted := slices.Sorted(slices.Values(v.keys))
		if len(slices.Compact(sorted)) != len(v.keys) {
			t.Errorf("level %d names a key twice", lv)
		}
		for _, k := range v.keys {
			if len(k) > 63 {
				t.Errorf("%q is too long for the filter by length", k)
			}
		}
	}
	for _, lv := range []level{levelParams, levelResult} {
		if f, _ := vocabularies[lv].find([]byte("_meta"), false); f != metaField {
			t.Errorf("level %d has _meta at %d", lv, f)
		}
	}
	if f, _ := vocabularies[levelParams].find([]byte("arguments"), false); f != argumentsField {
		t.Errorf("params has arguments at %d", f)
	}
}

func TestParseAccepts(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, text string
		want       Message
	}{
		{"request", ping, Message{Kind: Request, ID: ID("1"), Method: "ping"}},
		{"white space around", " \t\r\n" + ping + "\n", Message{Kind: Request, ID: ID("1"), Method: "ping"}},
		{"string id, kept with its escapes", `{"jsonrpc":"2.0","id":"\u0061\/","method":"ping"}`,
			Message{Kind: Request, ID: ID(`"\u0061\/"`), Method: "ping"}},
		{"empty string id", `{"jsonrpc":"2.0","id":"","method":"ping"}`, Message{Kind: Request, ID: ID(`""`), Method: "ping"}},
		{"negative id", `{"jsonrpc":"2.0","id":-7,"method":"ping"}`, Message{Kind: Request, ID: ID("-7"), Method: "ping"}},
		{"id beyond 2^53", `{"jsonrpc":"2.0","id":123456789012345678901,"method":"ping"}`,
			Message{Kind: Request, ID: ID("123456789012345678901"), Method: "ping"}},
		{"id of 256 bytes", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 254) + `","method":"ping"}`,
			Message{Kind: Request, ID: ID(`"` + strings.Repeat("x", 254) + `"`), Method: "ping"}},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}`,
			Message{Kind: Notification, Method: "notifications/initialized", Params: []byte("{}")}},
		{"escaped method and keys", `{"jsonrpc":"2\u002e0","\u0069d":1,"m\u0065thod":"tools\u002fcall","par\u0061ms":{"a":1.0}}`,
			Message{Kind: Request, ID: ID("1"), Method: "tools/call", Params: []byte(`{"a":1.0}`)}},
		{"params as they came", withParams(`{ "n" : 12345678901234567890 , "x":1.0e+5, "s":"\u00e4\ud83d\ude00" }`),
			Message{Kind: Request, ID: ID("1"), Method: "tools/call",
				Params: []byte(`{ "n" : 12345678901234567890 , "x":1.0e+5, "s":"\u00e4\ud83d\ude00" }`)}},
		{"strange members are dropped", `{"x":{"y":[]},"jsonrpc":"2.0","id":1,"method":"ping","trace":null}`,
			Message{Kind: Request, ID: ID("1"), Method: "ping"}},
		{"result null", `{"jsonrpc":"2.0","id":1,"result":null}`, Message{Kind: Response, ID: ID("1"), Result: []byte("null")}},
		{"result of any type", `{"jsonrpc":"2.0","id":1,"result":[1,"x"]}`, Message{Kind: Response, ID: ID("1"), Result: []byte(`[1,"x"]`)}},
		{"keys that fold below the protocol levels", withParams(`{"arguments":{"o":{"a":1,"A":2,"k":3,"\u212a":4,"n\u0000":5}}}`),
			Message{Kind: Request, ID: ID("1"), Method: "tools/call",
				Params: []byte(`{"arguments":{"o":{"a":1,"A":2,"k":3,"\u212a":4,"n\u0000":5}}}`)}},
		{"known keys of another level", withParams(`{"arguments":{"Name":1,"METHOD":2}}`),
			Message{Kind: Request, ID: ID("1"), Method: "tools/call", Params: []byte(`{"arguments":{"Name":1,"METHOD":2}}`)}},
		{"as deep as allowed", withParams(nested(maxDepth - 1)),
			Message{Kind: Request, ID: ID("1"), Method: "tools/call",
				Params: []byte(nested(maxDepth - 1))}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, err := Parse([]byte(c.text), FromClient)
			if err != nil {
				t.Fatal(err)
			}
			sameMessage(t, m, c.want)
		})
	}
}

func sameMessage(t *testing.T, got, want Message) {
	t.Helper()
	if got.Kind != want.Kind || string(got.ID) != string(want.ID) || got.Method != want.Method ||
		string(got.Params) != string(want.Params) || string(got.Result) != string(want.Result) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if (got.ID == nil) != (want.ID == nil) || (got.Params == nil) != (want.Params == nil) ||
		(got.Result == nil) != (want.Result == nil) || (got.Error == nil) != (want.Error == nil) {
		t.Errorf("absent and empty confused: got %+v, want %+v", got, want)
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	const object = `{"code":-32602,"message":"b\u00e4d","data":{"a": 1},"more":true}`
	m, err := Parse([]byte(`{"jsonrpc":"2.0","id":"x","error":`+object+`}`), FromClient)
	if err != nil {
		t.Fatal(err)
	}
	sameMessage(t, m, Message{Kind: Response, ID: ID(`"x"`), Error: m.Error})
	e := m.Error
	if e.Code != -32602 || e.Message != "bäd" || string(e.Data) != `{"a": 1}` || string(e.Raw) != object {
		t.Errorf("got %+v", e)
	}
	if got := e.Error(); got != "JSON-RPC error -32602: bäd" {
		t.Errorf("as text: %q", got)
	}
}

// An error without an id, or with null, is accepted from a server that could not read
// the id (JSON-RPC 2.0, section 5), and refused from a client.
func TestErrorWithoutID(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"jsonrpc":"2.0","error":{"code":-32000,"message":"x"}}`,
		`{"jsonrpc":"2.0","error":{"code":-32000,"message":"x"},"id":null}`,
	} {
		m, err := Parse([]byte(text), FromServer)
		if err != nil || m.Kind != Response || m.ID != nil || m.Error == nil || m.Error.Code != -32000 {
			t.Errorf("from a server: %+v, %v", m, err)
		}
		if m, err := Parse([]byte(text), FromClient); err == nil {
			t.Errorf("from a client: accepted %+v", m)
		}
	}
}

func TestParseBatch(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, text string
		methods    []string // of what is accepted
		batch      bool
		code       int
	}{
		{"single message", " " + ping, []string{"ping"}, false, 0},
		{"batch of one", ` [ ` + ping + ` ] `, []string{"ping"}, true, 0},
		{"batch", `[` + ping + `,{"jsonrpc":"2.0","method":"notifications/a","params":{}},{"jsonrpc":"2.0","id":2,"result":{}}]`,
			[]string{"ping", "notifications/a", ""}, true, 0},
		{"the same id twice is for the session to judge", `[` + ping + `,` + ping + `]`, []string{"ping", "ping"}, true, 0},
		{"empty", `[]`, nil, true, -32600},
		{"a request without an id inside", `[` + ping + `,{"jsonrpc":"2.0","method":"tools/call"}]`, nil, true, -32600},
		{"of something else", `[1]`, nil, true, -32600},
		{"one bad element refuses all", `[` + ping + `,{}]`, nil, true, -32600},
		{"members do not leak into the next", `[` + ping + `,{"jsonrpc":"2.0"}]`, nil, true, -32600},
		{"batch in a batch", `[[` + ping + `]]`, nil, true, -32600},
		{"variant inside", `[{"jsonrpc":"2.0","id":1,"method":"ping","ID":2}]`, nil, true, -32600},
		{"unfinished", `[` + ping, nil, true, -32700},
		{"comma at the end", `[` + ping + `,]`, nil, true, -32700},
		{"garbage behind", `[` + ping + `]]`, nil, true, -32700},
		{"broken behind an offence", `[{},{]`, nil, true, -32700},
		{"nothing", ``, nil, false, -32700},
		{"bad single message", `{}`, nil, false, -32600},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			msgs, batch, err := ParseBatch([]byte(c.text), FromClient)
			var e *SyntaxError
			if errors.As(err, &e) != (c.code != 0) || e != nil && e.Code != c.code {
				t.Fatalf("error %v, want code %d", err, c.code)
			}
			var methods []string
			for _, m := range msgs {
				methods = append(methods, m.Method)
			}
			if batch != c.batch || !slices.Equal(methods, c.methods) {
				t.Errorf("batch %v of %q, want %v of %q", batch, methods, c.batch, c.methods)
			}
		})
	}
}

// A message of a client without an id must be a notification, by its method. Messages
// of servers are not restricted here.
func TestRequestsOfClientsHaveAnID(t *testing.T) {
	t.Parallel()
	for method, ok := range map[string]bool{
		"notifications/initialized": true, "notifications/future": true, `notifications\/x`: true, "notifications/": true,
		"tools/call": false, `tools\u002fcall`: false, "prompts/get": false, "resources/read": false, "resources/subscribe": false,
		"initialize": false, "future/method": false, "notifications": false, "Notifications/x": false, " notifications/x": false,
		"notification/x": false, "doorward/listening": false,
	} {
		text := []byte(`{"jsonrpc":"2.0","method":"` + method + `","params":{"name":"x"}}`)
		_, err := Parse(text, FromClient)
		var e *SyntaxError
		if errors.As(err, &e) == ok || !ok && (e.Code != -32600 || e.Reason != reasonRequestNoID) {
			t.Errorf("%s from a client: %v", method, err)
		}
		if _, err := Parse(text, FromServer); err != nil {
			t.Errorf("%s from a server: %v", method, err)
		}
	}
}

func TestIDInt(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		n  int64
		ok bool
	}{
		"0": {0, true}, "7": {7, true}, "-7": {-7, true},
		"9223372036854775807": {1<<63 - 1, true}, "-9223372036854775808": {-1 << 63, true},
		"9223372036854775808": {}, `"7"`: {}, "": {}, "-": {}, "-0": {}, "+1": {}, "01": {}, "1.0": {}, "1e1": {}, "0x1": {}, "1_0": {}, " 1": {},
	}
	for text, want := range cases {
		n, ok := ID(text).Int()
		if ok != want.ok || ok && n != want.n {
			t.Errorf("%q: %d, %v", text, n, ok)
		}
	}
	if got := IntID(-42); string(got) != "-42" {
		t.Errorf("IntID: %s", got)
	}
}

// Parse allocates nothing for an ordinary message. Each call is parsed twice.
func TestParseAllocatesNothing(t *testing.T) {
	text := []byte(call300)
	allocs := testing.AllocsPerRun(1000, func() {
		if _, err := Parse(text, FromClient); err != nil {
			t.Fatal(err)
		}
	})
	if allocs >= 1 { // the pool may be emptied by a collection in between
		t.Errorf("%v allocations", allocs)
	}
}
