package wire

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"
)

// A member that holds questions is found by HoldsQuestions in a part of a message, and
// by Parse, which does not call such a message plain.
func TestHoldsQuestions(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{
		`{"inputRequests":1}`: true, `{"elicitations":[]}`: true, `{"a":[{"b":{"inputRequests" : {}}}]}`: true,
		`{"inputRequ\u0065sts":1}`: true, `{"x":{"INPUTREQUESTS":1}}`: true, "{\"x\":{\"inputReque\u017ft\u017f\":1}}": true,
		"{\"x\":{\"\\u0069nputReque\u017fts\":1}}": true, `{"x":{"elicitation\u017f":1}}`: true, "{\"x\\\"\":1,\"inputRequests\"\n:2}": true,
		`{"input_requests":1}`: true, `{"a":[{"INPUT_REQUESTS":1}]}`: true, `{"input-requests":1}`: true, `{"input\u005fRequests":1}`: true, "{\"input_reque\u017ft\u017f\":1}": true,
		`{"in_putrequests":1,"inputrequests_":2,"elicitation_s":3,"input__requests":4,"_inputrequests":5}`: false,
		`{"_meta":{"inputRequests":1}}`: true, `{"structuredContent":{"y":[[{"Elicitations":null}]]}}`: true,
		`{"a":"inputRequests"}`: false, `{"a":["inputRequests"]}`: false, `{"a":"\"inputRequests\":1"}`: false, `{"inputRequests2":1,"inputRequest":2,"elicitation":3}`: false,
		`{"a":["inputRequests","elicitations"]}`: false, `{}`: false, `{"a\"inputRequests":1}`: false, `{"inputResponses":1,"abcdefghijklm":2,"abcdefghijkl":3}`: false,
	} {
		if got := HoldsQuestions([]byte(raw)); got != want {
			t.Errorf("%s: %v", raw, got)
		}
		for _, text := range []string{`{"jsonrpc":"2.0","id":1,"result":{"r":` + raw + `}}`, `{"jsonrpc":"2.0","method":"notifications/x","params":{"r":` + raw + `}}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","data":` + raw + `}}`} {
			m, err := Parse([]byte(text), FromServer)
			if err != nil || m.Plain == want {
				t.Errorf("%s: plain %v, %v", text, m.Plain, err)
			}
		}
	}
	for _, raw := range []string{``, `null`, `"inputRequests"`} {
		if HoldsQuestions([]byte(raw)) {
			t.Errorf("%s holds questions", raw)
		}
	}
	for _, raw := range []string{`"`, `{"a":1`, `{"a":1,"a":1}`, ` `} {
		if !HoldsQuestions([]byte(raw)) {
			t.Errorf("%s is not strict JSON and holds no questions", raw)
		}
	}
	msgs, _, err := ParseBatch([]byte(`[{"jsonrpc":"2.0","id":1,"result":{"inputRequests":1}},{"jsonrpc":"2.0","id":2,"result":{}}]`), FromServer)
	if err != nil || msgs[0].Plain {
		t.Errorf("in a batch: %+v %v", msgs, err)
	}
}

// TestResembles: a name is known in any case, and with its words separated.
func TestResembles(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"aToZAndBack", "atozandback", "A_TO_Z_AND_BACK", "a_to_z_and_back", "a-to-Z-and-back", "a_to-z_and-back"} {
		if !Resembles(key, "aToZAndBack") {
			t.Errorf("%s is not taken for the name", key)
		}
	}
	for _, key := range []string{"a_to_zandback", "a_toz_and_back", "_a_to_z_and_back", "a_to_z_and_back_", "a to z and back", "atozandbac"} {
		if Resembles(key, "aToZAndBack") {
			t.Errorf("%s is taken for the name", key)
		}
	}
}

// hasQuestionKey searches the strings that a colon follows, without the scanner.
func hasQuestionKey(keys *regexp.Regexp, text []byte) bool {
	for _, found := range keys.FindAllSubmatch(text, -1) {
		var key string
		if json.Unmarshal(found[1], &key) == nil && (Resembles(key, InputRequests) || Resembles(key, Elicitations)) {
			return true
		}
	}
	return false
}

// Parse calls a message plain, and HoldsQuestions is false, exactly when it has no such
// member.
func TestPlainMessagesHoldNoQuestions(t *testing.T) {
	t.Parallel()
	w := &writer{Rand: rand.New(rand.NewPCG(3, 4))}
	plain, held, keys := 0, 0, regexp.MustCompile(`("(?:[^"\\]|\\.)*")\s*:`)
	for i := range 20_000 {
		text := w.message()
		if i%3 == 0 {
			text = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"result":{"a":[%s,{"%s":1}]}}`, text, w.pick("inputRequests", "input_requests", `input\u002dREQUESTS`, "input_reque\u017fts", "Elicitations", `elicit\u0061tions`, "inputreque\u017fts", "x"))
		}
		m, err := Parse(text, FromServer)
		if err != nil {
			continue
		}
		if HoldsQuestions(text) {
			held++
		}
		if m.Plain {
			plain++
		}
		if found := hasQuestionKey(keys, text); m.Plain == found || HoldsQuestions(text) != found {
			t.Errorf("plain %v, found %v: %s", m.Plain, found, text)
		}
	}
	if plain < 1000 || held < 500 {
		t.Errorf("%d plain, %d that hold questions", plain, held)
	}
}
