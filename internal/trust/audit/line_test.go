package audit

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/mod/sumdb/note"

	"github.com/doorward/doorward/internal/trust/principal"
)

func makeLine(r *Record, now time.Time, t tip) []byte {
	return appendLine(nil, newBody(r, now), &t, new(callers))
}

func act() *Record { return &Record{Kind: Decision, Source: "gate", Action: "tools/call"} }

func TestAppendTime(t *testing.T) {
	t.Parallel()
	for _, want := range []string{
		"2026-01-02T03:04:05.000006Z", "1970-01-01T00:00:00.000000Z", "2024-02-29T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z",
	} {
		at, err := time.Parse(time.RFC3339Nano, want)
		if err != nil {
			t.Fatal(err)
		}
		for _, zone := range []*time.Location{time.UTC, time.FixedZone("", -11*3600)} {
			if got := Stamp(at.Add(999 * time.Nanosecond).In(zone)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	}
}

func TestLineForm(t *testing.T) {
	t.Parallel()
	good := strings.TrimSuffix(string(makeLine(act(), time.Unix(0, 0), genesis())), "\n")
	if l, ok := ParseLine([]byte(good)); !ok || !l.Intact() || l.Seq != 1 || string(l.Prev) != Genesis {
		t.Fatalf("%s is refused", good)
	}
	for name, edit := range map[string][2]string{
		"white space":      {`{"seq"`, `{ "seq"`},
		"seq 0":            {`:1,`, `:0,`},
		"seq with sign":    {`:1,`, `:+1,`},
		"seq as text":      {`:1,`, `:"1",`},
		"seq too large":    {`:1,`, `:18446744073709551616,`},
		"local time":       {`000Z"`, `000+"`},
		"short time":       {`.000000Z"`, `.000Z"`},
		"no kind":          {`"kind"`, `"kin"`},
		"no source":        {`"source"`, `"sauce"`},
		"upper-case prev":  {Genesis, strings.Repeat("A", 64)},
		"no prev":          {`"prev"`, `"pre_"`},
		"raw control":      {"gate", "ga\x01te"},
		"raw newline":      {"gate", "ga\nte"},
		"invalid UTF-8":    {"gate", "ga\xffte"},
		"member twice":     {`"action"`, `"source"`},
		"value missing":    {`"tools/call"`, ``},
		"second object":    {`,"prev"`, `}{"prev"`},
		"trailing comment": {`,"prev"`, `,//"prev"`},
	} {
		bad := strings.Replace(good, edit[0], edit[1], 1)
		if bad == good {
			t.Errorf("%s: nothing to change", name)
		}
		if _, ok := ParseLine([]byte(bad)); ok {
			t.Errorf("%s passed: %s", name, bad)
		}
	}
	// A member that a later version adds is not refused.
	if _, ok := ParseLine([]byte(strings.Replace(good, `,"prev"`, `,"node":{"a":[1,null]},"prev"`, 1))); !ok {
		t.Error("a member that is not known was refused")
	}
}

// FuzzEncode: a record of any strings gives one line of JSON with the same values,
// cut at MaxText, which is a line of the log.
func FuzzEncode(f *testing.F) {
	f.Add("decision", "gate", "uid:1", "exe", "tools/call", "a/b", int64(1), uint64(2), int64(0))
	f.Add("\x00", "\xff\xfe", "oauth:https://i#\u00e9", "\u202e", "\"\\", strings.Repeat("\xf0\x9f\x98", 300), int64(-1), uint64(0), int64(1)<<40)
	f.Fuzz(func(t *testing.T, kind, source, name, fact, action, resource string, n int64, ref uint64, nanos int64) {
		r := &Record{
			Kind: kind, Source: source, Who: principal.New(name, principal.Fact{Name: fact, Value: resource, Grade: principal.Claimed}),
			Session: action, Action: action, Resource: resource, Decision: kind, Rule: source, Result: fact, Bytes: n, Count: -n, Reason: resource, Ref: ref,
		}
		text := makeLine(r, time.Unix(0, nanos), genesis())
		if len(text) > MaxLine || bytes.Count(text, []byte("\n")) != 1 {
			t.Fatalf("%q", text)
		}
		var got struct {
			Seq                                                                uint64
			Time                                                               time.Time
			Kind, Source, Principal, Session, Action, Resource, Decision, Rule string
			Facts                                                              []struct{ Name, Value, Grade string }
			Result, Reason, Prev, Hash                                         string
			Bytes, Count                                                       int64
			Ref                                                                uint64
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		for _, c := range [][2]string{
			{got.Kind, kind}, {got.Source, source}, {got.Session, action}, {got.Action, action}, {got.Resource, resource},
			{got.Decision, kind}, {got.Rule, source}, {got.Result, fact}, {got.Reason, resource}, {got.Facts[0].Name, fact}, {got.Facts[0].Value, resource},
		} {
			if !means(c[0], c[1]) {
				t.Fatalf("%q was recorded as %q", c[1], c[0])
			}
		}
		at := time.Unix(0, nanos).UTC().Truncate(time.Microsecond)
		if got.Bytes != n || got.Count != -n || got.Ref != ref || got.Seq != 1 || !got.Time.Equal(at) || got.Principal != r.Who.Name() {
			t.Fatalf("%+v from %+v", got, r)
		}
		if l, ok := ParseLine(text[:len(text)-1]); !ok || !l.Intact() {
			t.Fatalf("not a line: %s", text)
		}
	})
}

// means reports whether recorded is s, or its beginning with the mark of a cut.
func means(recorded, s string) bool {
	if len(s) <= MaxText {
		return recorded == string([]rune(s))
	}
	for cut := MaxText - utf8.UTFMax + 1; cut <= MaxText; cut++ {
		if recorded == string([]rune(s[:cut]))+"…[cut]" {
			return true
		}
	}
	return false
}

// FuzzFlip: a line with any one byte changed is no line of the log.
func FuzzFlip(f *testing.F) {
	f.Add("a/b", 0, byte(1))
	f.Add("\x00\"", 50, byte(0x20))
	f.Fuzz(func(t *testing.T, resource string, at int, mask byte) {
		r := act()
		r.Resource = resource
		text := makeLine(r, time.Unix(0, 0), genesis())
		text = text[:len(text)-1]
		if mask == 0 || at < 0 {
			return
		}
		text[at%len(text)] ^= mask
		if l, ok := ParseLine(text); ok && l.Intact() {
			t.Fatalf("passed: %s", text)
		}
	})
}

// FuzzParseLine: a line that ParseLine accepts is a JSON object with the same number
// and hash for encoding/json, and the signed part is the text before the hash.
func FuzzParseLine(f *testing.F) {
	f.Add(bytes.TrimSuffix(makeLine(act(), time.Unix(0, 0), genesis()), []byte("\n")))
	f.Add([]byte(`{"seq":1,"time":"0000-00-00T00:00:00.000000Z","kind":"","source":"","prev":"` + Genesis + `","hash":"` + Genesis + `"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, ok := ParseLine(text)
		if !ok {
			return
		}
		var got struct {
			Seq        uint64
			Prev, Hash string
		}
		if err := json.Unmarshal(text, &got); err != nil || got.Seq != l.Seq {
			t.Fatalf("%v: %+v from %q", err, got, text)
		}
		before, _, _ := bytes.Cut(text, []byte(`,"hash":`))
		if !bytes.Equal(before, l.signed) || !bytes.Contains(text, []byte(`"hash":"`+string(l.Hash)+`"}`)) {
			t.Fatalf("taken apart wrongly: %q", text)
		}
	})
}

// FuzzCheckpoint: only the bytes that were signed are accepted as a checkpoint.
func FuzzCheckpoint(f *testing.F) {
	key, err := freshKey()
	if err != nil {
		f.Fatal(err)
	}
	first := Mark{Hash: Genesis, Time: timeShape}
	good, err := Beginning{Mark: first}.sign(key)
	good = append(good, '\n')
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, 0, byte(0))
	f.Add(good, 200, byte(1))
	f.Fuzz(func(t *testing.T, text []byte, at int, mask byte) {
		if at >= 0 && len(text) > 0 {
			text = bytes.Clone(text)
			text[at%len(text)] ^= mask
		}
		c, err := ParseCheckpoint(text, key.Verifier)
		if same := bytes.Equal(text, good); same != (err == nil) || same && c != first {
			t.Fatalf("%q: %+v %v", text, c, err)
		}
		_, _ = ParseCheckpoint(text, nil)
	})
}

func freshKey() (*Key, error) {
	private, public, err := note.GenerateKey(rand.Reader, Origin)
	if err != nil {
		return nil, err
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		return nil, err
	}
	verifier, err := note.NewVerifier(public)
	return &Key{signer, verifier}, err
}
