package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// strict is the error of an independent strict reader, jsontext: one JSON value,
// valid UTF-8, no duplicate names, nothing behind it.
func strict(b []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(b))
	if _, err := dec.ReadValue(); err != nil {
		return err
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return errors.New("data behind the value")
	}
	return nil
}

// ours are the refusals with -32700 that go beyond strict.
var ours = []string{reasonDepth, reasonMembers, reasonLongNumber}

// folding is a message for encoding/json, which matches keys by folding case and
// takes the last of them.
type folding struct {
	JSONRPC json.RawMessage
	ID      json.RawMessage
	Method  json.RawMessage
	Params  json.RawMessage
	Result  json.RawMessage
	Error   json.RawMessage
}

type foldingParams struct {
	Name      json.RawMessage
	URI       json.RawMessage
	Arguments json.RawMessage
	TaskID    json.RawMessage
	Meta      json.RawMessage `json:"_meta"`
}

func FuzzParse(f *testing.F) {
	for _, c := range refusals {
		f.Add([]byte(c.text))
	}
	for _, text := range []string{ping, call300, withParams(`{"name":"x","uri":"y","_meta":{"progressToken":1}}`),
		`[` + ping + `]`, `{"jsonrpc":"2.0","id":"\u0061","result":[null,true,-1.5E-7,"ä😀\ud83d\ude00"]}`,
		`{"jsonrpc":"2.0","error":{"code":-1,"message":"","data":{}},"id":null}`,
		withParams(object(numbered("k%d", 20))), withParams(`{"arguments":` + object(numbered("k%d", 20)) + `}`)} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		m, err := Parse(b, FromServer)
		judge(t, b, err)
		if err == nil {
			sameReading(t, b, m)
			sameAgain(t, m)
		}
		if c, errClient := Parse(b, FromClient); errClient == nil && (err != nil || c.Method != m.Method || !bytes.Equal(c.ID, m.ID)) {
			t.Fatalf("a client's %+v is a server's %+v, %v", c, m, err)
		}
		_, _, err = ParseBatch(b, FromServer)
		judge(t, b, err)
		err = ValidateValue(b)
		judge(t, b, err)
		if err != nil && len(reasonOf(err)) > 0 && err.(*SyntaxError).Code != codeParse {
			t.Fatalf("a value refused as a message: %v", err)
		}
		handle(b)
		if !bytes.Equal(b, before) {
			t.Fatalf("the input changed from %q to %q", before, b)
		}
	})
}

// judge compares an error of this package with the errors of two other readers.
func judge(t *testing.T, b []byte, err error) {
	t.Helper()
	theirs := strict(b)
	var e *SyntaxError
	switch {
	case err == nil && theirs != nil:
		t.Fatalf("%q: accepted, jsontext says %v", b, theirs)
	case err == nil && !json.Valid(b):
		t.Fatalf("%q: accepted, encoding/json does not", b)
	case err == nil:
	case !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(b) || e.Reason == "":
		t.Fatalf("%q: %#v", b, err)
	case e.Code == codeInvalid && theirs != nil:
		t.Fatalf("%q: %v with %d, jsontext says %v", b, e, e.Code, theirs)
	case e.Code == codeParse && theirs == nil && !slices.Contains(ours, e.Reason):
		t.Fatalf("%q: %v, jsontext accepts", b, e)
	case e.Code != codeInvalid && e.Code != codeParse:
		t.Fatalf("%q: code %d", b, e.Code)
	}
}

// sameReading compares what Parse read with a decoder that folds case.
func sameReading(t *testing.T, b []byte, m Message) {
	t.Helper()
	var other folding
	if err := json.Unmarshal(b, &other); err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	var method string
	if other.Method != nil {
		if err := json.Unmarshal(other.Method, &method); err != nil {
			t.Fatal(err)
		}
	}
	id := []byte(other.ID)
	if m.ID == nil && string(id) == "null" {
		id = nil
	}
	if method != m.Method || !bytes.Equal(id, m.ID) || !bytes.Equal(other.Params, m.Params) ||
		!bytes.Equal(other.Result, m.Result) || (other.Error != nil) != (m.Error != nil) {
		t.Fatalf("%q: we read %+v, encoding/json %+v", b, m, other)
	}
	if m.Params == nil {
		return
	}
	var params foldingParams
	if err := json.Unmarshal(m.Params, &params); err != nil {
		t.Fatalf("%q: %v", m.Params, err)
	}
	var exact map[string]json.RawMessage
	if err := json.Unmarshal(m.Params, &exact); err != nil {
		t.Fatalf("%q: %v", m.Params, err)
	}
	for key, theirs := range map[string]json.RawMessage{"name": params.Name, "uri": params.URI,
		"arguments": params.Arguments, "taskId": params.TaskID, "_meta": params.Meta} {
		if !bytes.Equal(exact[key], theirs) {
			t.Fatalf("%q: %s is %q by its exact name, %q for a decoder that folds case", m.Params, key, exact[key], theirs)
		}
	}
}

// sameAgain checks that the message, written anew, is read as the same.
func sameAgain(t *testing.T, m Message) {
	t.Helper()
	text := written(t, m)
	again, err := Parse(text, FromServer)
	if err != nil || !reflect.DeepEqual(again, m) {
		t.Fatalf("%+v came back from %q as %+v, %v", m, text, again, err)
	}
}

// written is m as another program would write it.
func written(t *testing.T, m Message) []byte {
	t.Helper()
	members := map[string]json.RawMessage{"jsonrpc": []byte(`"2.0"`)}
	for name, raw := range map[string][]byte{"id": m.ID, "params": m.Params, "result": m.Result} {
		if raw != nil {
			members[name] = raw
		}
	}
	if m.Kind != Response {
		method, err := json.Marshal(m.Method)
		if err != nil {
			t.Fatal(err)
		}
		members["method"] = method
	}
	if m.Error != nil {
		members["error"] = m.Error.Raw
	}
	out := []byte("{")
	for name, raw := range members {
		out = fmt.Appendf(out, "%q:%s,", name, raw)
	}
	out[len(out)-1] = '}'
	return out
}
