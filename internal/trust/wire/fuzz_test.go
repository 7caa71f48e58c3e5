package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// strict is the judgement of an independent strict reader: one JSON value,
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

// folding is a message as a decoder reads it that matches keys by folding
// case and lets the last one win, which is what encoding/json does.
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
		if err == nil {
			sameCanonical(t, b)
		} else if len(reasonOf(err)) > 0 && err.(*SyntaxError).Code != codeParse {
			t.Fatalf("a value refused as a message: %v", err)
		}
		handle(b)
		if !bytes.Equal(b, before) {
			t.Fatalf("the input changed from %q to %q", before, b)
		}
	})
}

// judge compares our judgement with that of the two other readers.
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

// sameReading holds what Parse read against a decoder that folds case.
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
	for key, theirs := range map[string]json.RawMessage{"name": params.Name, "uri": params.URI,
		"arguments": params.Arguments, "taskId": params.TaskID, "_meta": params.Meta} {
		if got := Get(m.Params, key); !bytes.Equal(got, theirs) {
			t.Fatalf("%q: %s is %q for us, %q for encoding/json", m.Params, key, got, theirs)
		}
	}
}

// sameAgain writes the message anew and reads that.
func sameAgain(t *testing.T, m Message) {
	t.Helper()
	var text []byte
	switch {
	case m.Kind == Request:
		text = AppendRequest(nil, m.ID, m.Method, m.Params)
	case m.Kind == Notification:
		text = AppendNotification(nil, m.Method, m.Params)
	case m.Kind == Response && m.Error != nil:
		text = AppendError(nil, m.ID, m.Error)
	default:
		text = AppendResult(nil, m.ID, m.Result)
	}
	again, err := Parse(text, FromServer)
	if err != nil || !reflect.DeepEqual(again, m) {
		t.Fatalf("%+v came back from %q as %+v, %v", m, text, again, err)
	}
}

// sameCanonical checks that Canonical keeps the value and settles its form.
func sameCanonical(t *testing.T, b []byte) {
	t.Helper()
	c := Canonical(b)
	if err := ValidateValue(c); err != nil {
		t.Fatalf("%q: canonical %q: %v", b, c, err)
	}
	if again := Canonical(c); !bytes.Equal(again, c) {
		t.Fatalf("%q: canonical %q, then %q", b, c, again)
	}
	if one, other := decode(t, b), decode(t, c); !reflect.DeepEqual(one, other) {
		t.Fatalf("%q: canonical %q is another value", b, c)
	}
}

func decode(t *testing.T, b []byte) (v any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	return v
}

func FuzzSplice(f *testing.F) {
	for _, obj := range []string{`{}`, `{ }`, `{"a":1}`, ` { "a" : 1 , "b":{"a":2} } `, `{"\u0061":1,"b":[{}]}`, `{"b":1,"a":2,"c":"x\"}"}`} {
		for _, key := range []string{"a", "b", "", "ü\"\n"} {
			f.Add([]byte(obj), key, []byte(`{"x":[1, 2]}`))
		}
	}
	f.Fuzz(func(t *testing.T, obj []byte, key string, value []byte) {
		Set(obj, Edit{key, value})
		if ValidateValue(obj) != nil || bytes.TrimSpace(obj)[0] != '{' || ValidateValue(value) != nil || !utf8.ValidString(key) {
			return
		}
		value = bytes.Trim(value, " \n\r\t")
		before := bytes.Clone(obj)
		old := Get(obj, key)

		set := Set(obj, Edit{key, value})
		if reasonOf(ValidateValue(set)) == reasonDepth {
			return
		}
		spliced(t, obj, set, key, value)
		if old != nil { // nothing but the value's bytes has changed
			at := bytes.Index(obj, old)
			for ; !bytes.Equal(slices.Concat(obj[:at], value, obj[at+len(old):]), set); at++ {
				next := bytes.Index(obj[at+1:], old)
				if next < 0 {
					t.Fatalf("%q with %q changed became %q", obj, key, set)
				}
				at += next
			}
		}
		spliced(t, obj, Set(obj, Edit{key, nil}), key, nil)
		if back := Set(Set(obj, Edit{key, value}), Edit{key, nil}); old == nil && !bytes.Equal(back, obj) {
			t.Fatalf("%q with %q set and removed became %q", obj, key, back)
		}
		in := SetIn(obj, key, Edit{"k", value})
		if reasonOf(ValidateValue(in)) != reasonDepth {
			spliced(t, obj, in, key, Get(in, key))
			if got := GetPath(in, key, "k"); !bytes.Equal(got, value) {
				t.Fatalf("%q: inside %q is %q, want %q", in, key, got, value)
			}
		}
		if !bytes.Equal(obj, before) {
			t.Fatalf("the original changed from %q to %q", before, obj)
		}
	})
}

// spliced checks that after is before with key set to value, or removed when
// that is nil, and all other members as they were, in the same order.
func spliced(t *testing.T, before, after []byte, key string, value []byte) {
	t.Helper()
	if err := ValidateValue(after); err != nil {
		t.Fatalf("%q became %q: %v", before, after, err)
	}
	if got := Get(after, key); !bytes.Equal(got, value) || (got == nil) != (value == nil) {
		t.Fatalf("%q: %q is %q, want %q", after, key, got, value)
	}
	others := func(obj []byte) (members []string) {
		for k, v := range Members(obj) {
			if k != key {
				members = append(members, k, string(v))
			}
		}
		return members
	}
	if one, other := others(before), others(after); !slices.Equal(one, other) {
		t.Fatalf("with %q changed the other members %q became %q", key, one, other)
	}
}
