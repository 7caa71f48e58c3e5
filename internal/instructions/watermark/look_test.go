package watermark

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

var other = Delivery{Session: "ffff", Template: "session", Revision: "r"}

func TestModes(t *testing.T) {
	t.Parallel()
	x := index(delivery, other)
	raw := []byte(` {"name" : "echo", "n":1.0, "arguments":{ "a\/b":"caf\u00e9 ` + strings.ToUpper(known) + ` \ud83d\ude42", "b":["` + Ref(testKey, other) + `",null,"` + known + `"]}} `)
	cut := ` {"name" : "echo", "n":1.0, "arguments":{ "a\/b":"caf\u00e9 [redacted] \ud83d\ude42", "b":["[redacted]",null,"[redacted]"]}} `
	for mode, want := range map[Mode]struct {
		out     string
		blocked bool
	}{Alert: {string(raw), false}, Redact: {cut, false}, Block: {string(raw), true}, "": {string(raw), false}} {
		r := x.Look(mode, raw)
		if string(r.Out) != want.out || r.Blocked != want.blocked || len(r.Found) != 2 || r.Found[0] != delivery || r.Found[1] != other {
			t.Errorf("%s: %s %v %v", mode, r.Out, r.Blocked, r.Found)
		}
	}
	for _, mode := range []Mode{Alert, Redact, Block} {
		clean := []byte(`{"arguments":{"a":"dwi-abcdefghijklmnop"}}`)
		if r := x.Look(mode, clean, "name"); &r.Out[0] != &clean[0] || r.Found != nil || r.Blocked {
			t.Errorf("%s: %+v", mode, r)
		}
		if r := index().Look(mode, raw); &r.Out[0] != &raw[0] || r.Found != nil || r.Blocked {
			t.Errorf("%s, empty index: %+v", mode, r)
		}
		var none *Index
		if r := none.Look(mode, raw); &r.Out[0] != &raw[0] || r.Found != nil || r.Blocked {
			t.Errorf("%s, no index: %+v", mode, r)
		}
		if r := x.Look(mode, nil); r.Out != nil || r.Found != nil || r.Blocked {
			t.Errorf("%s, nothing: %+v", mode, r)
		}
	}
}

// Refs are searched in decoded strings and cut from their JSON spelling. All other
// bytes stay.
func TestEscapesAndOtherBytesStay(t *testing.T) {
	t.Parallel()
	x := index(delivery)
	escaped := ""
	for _, c := range known {
		escaped += fmt.Sprintf(`\u%04X`, c)
	}
	b64 := base64.StdEncoding.EncodeToString([]byte("~~~?>?>?" + known + "~~~???"))
	if !strings.Contains(b64, "/") {
		t.Fatal("the example has no slash in it")
	}
	for raw, want := range map[string]string{
		`"` + escaped + `"`:                     `"[redacted]"`,
		`"\u0022\/\t` + escaped + `\u00e9\n\\"`: `"\u0022\/\t[redacted]\u00e9\n\\"`,
		`"a\n` + strings.Join(strings.Split(known, ""), `\n\u200b`) + `\nb\u000a"`: `"a\n[redacted]\nb\u000a"`,
		`"\\` + known + `\\"`: `"\\[redacted]\\"`,
		`"\"` + known + `\""`: `"\"[redacted]\""`,
		`"see ` + strings.ReplaceAll(b64, "/", `\/`) + ` there"`:       `"see [redacted] there"`,
		`"see ` + b64 + `== there"`:                                    `"see [redacted] there"`,
		`"see \u00e9` + hex.EncodeToString([]byte(known)) + `, there"`: `"see \u00e9[redacted], there"`,
		`"twice ` + known + known + ` "`:                               `"twice [redacted][redacted] "`,
		`"half dwi-` + known[4:9] + known + known[9:] + `"`:            `"half dwi-` + known[4:9] + `[redacted]` + known[9:] + `"`,
		`"\ud83d\ude42` + known + `\ud83d\ude42"`:                      `"\ud83d\ude42[redacted]\ud83d\ude42"`,
		`"é` + known + `é"`:                                            `"é[redacted]é"`,
		`[1.50,"` + known + `" , {} ]`:                                 `[1.50,"[redacted]" , {} ]`,
		`{"` + known + `":1,"b":2}`:                                    `{"[redacted]":1,"b":2}`,
	} {
		r := x.Look(Redact, []byte(raw))
		if string(r.Out) != want || r.Blocked || len(r.Found) != 1 {
			t.Errorf("%s\nbecame %s, %v %v\nwant   %s", raw, r.Out, r.Blocked, r.Found, want)
		}
	}
}

func TestAValueThatCannotBeRedactedIsBlocked(t *testing.T) {
	t.Parallel()
	x := index(delivery, other)
	for what, c := range map[string]struct {
		raw  string
		skip []string
	}{
		"names that became equal":            {`{"a":{"` + known + `":1,"` + Ref(testKey, other) + `":2}}`, nil},
		"a name at the level of the skipped": {`{"` + known + `":1}`, []string{"name"}},
		"more than is looked at":             {`{"a":"` + strings.Repeat("!", MaxBytes) + `"}`, nil},
	} {
		for _, mode := range []Mode{Redact, Block} {
			if r := x.Look(mode, []byte(c.raw), c.skip...); !r.Blocked || string(r.Out) != c.raw {
				t.Errorf("%s under %s: %v", what, mode, r.Blocked)
			}
		}
		if r := x.Look(Alert, []byte(c.raw), c.skip...); r.Blocked {
			t.Errorf("%s is held back under alert", what)
		}
	}
	// The beginning of a text that is too large is searched, even when it is cut within
	// an escape.
	for _, end := range []string{`\u00`, `\`} {
		raw := []byte(`{"a":"` + known + `","b":"` + strings.Repeat("!", MaxBytes-40-len(end)) + end + `\\\\\\\\\\\\\\"}`)
		if r := x.Look(Alert, raw, "c"); len(r.Found) != 1 || r.Blocked || len(r.Out) != len(raw) {
			t.Errorf("%v %v", r.Found, r.Blocked)
		}
		if r := x.Look(Redact, raw, "c"); len(r.Found) != 1 || !r.Blocked || len(r.Out) != len(raw) {
			t.Errorf("%v %v", r.Found, r.Blocked)
		}
	}
	if r := x.Look(Alert, []byte(`{"b":"`+strings.Repeat("!", MaxBytes)+known+`"}`)); r.Found != nil {
		t.Error("a ref behind the limit was found: the comment of MaxBytes is wrong")
	}
}

func TestMembersThatAreSkipped(t *testing.T) {
	t.Parallel()
	x := index(delivery)
	raw := []byte(`{"_meta":{"t":"` + known + `"},"arguments":{"_meta":"` + known + `"},"name":"x"}`)
	want := `{"_meta":{"t":"` + known + `"},"arguments":{"_meta":"[redacted]"},"name":"x"}`
	if r := x.Look(Redact, raw, "name", "_meta"); string(r.Out) != want || r.Blocked || len(r.Found) != 1 {
		t.Errorf("%s %v", r.Out, r.Blocked)
	}
	if r := x.Look(Block, []byte(`{"_meta":{"t":"`+known+`"}}`), "_meta"); r.Blocked || r.Found != nil {
		t.Errorf("%+v", r)
	}
	for _, notAnObject := range []string{`["` + known + `"]`, `"` + known + `"`, ` [["` + known + `"]]`} {
		if r := x.Look(Redact, []byte(notAnObject), "_meta"); len(r.Found) != 1 || bytes.Contains(r.Out, []byte(known)) {
			t.Errorf("%s became %s", notAnObject, r.Out)
		}
	}
}

// A ref that is split over several strings is not noticed: an admitted limit.
func TestARefOverSeveralStringsIsNotNoticed(t *testing.T) {
	t.Parallel()
	if r := index(delivery).Look(Block, []byte(`{"a":"`+known[:10]+`","b":"`+known[10:]+`"}`)); r.Found != nil {
		t.Error("the ref was noticed: the package comment is wrong")
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	x := index(delivery)
	for s, want := range map[string]string{
		"":                            "",
		"a \\u0041 \"" + known + "\"": "a \\u0041 \"[redacted]\"",
		"\xff" + known + "\xff":       "\xff[redacted]\xff",
		"d w i" + known:               "d w i[redacted]",
	} {
		if out, found := x.Text(Redact, s); out != want || (found == nil) != (s == "") {
			t.Errorf("%q became %q, %v", s, out, found)
		}
		for _, mode := range []Mode{Alert, Block} {
			if out, found := x.Text(mode, s); out != s || (found == nil) != (s == "") {
				t.Errorf("%s: %q became %q, %v", mode, s, out, found)
			}
		}
	}
}

// A redacted random value is JSON, differs from the original only where a ref was
// cut, and contains no further ref.
func TestARedactedValueStaysWellFormed(t *testing.T) {
	t.Parallel()
	x := index(delivery, other)
	r := rand.New(rand.NewPCG(1, 2))
	refs := []string{known, Ref(testKey, other)}
	hidings := []func(string) string{
		strings.ToUpper, wide, tagged,
		func(s string) string { return joined(s, "\u200b ") },
		func(s string) string { return base64.StdEncoding.EncodeToString([]byte("é" + s)) },
		func(s string) string { return hex.EncodeToString([]byte(s)) },
	}
	fillers := []string{"plain", "é\n\t\"\\", "ZHdp", "64 77 69", "dwi-", "🙂", " ", "a/b", "</script>\u2028", ""}
	for range 2000 {
		var parts []string
		hidden := 0
		for range r.IntN(8) {
			s := fillers[r.IntN(len(fillers))]
			if r.IntN(3) == 0 {
				s = " " + hidings[r.IntN(len(hidings))](refs[r.IntN(2)]) + " "
				hidden++
			}
			parts = append(parts, s)
		}
		raw, err := json.Marshal(map[string]any{"a": strings.Join(parts, "|"), "b": parts, "c": 1.5})
		if err != nil {
			t.Fatal(err)
		}
		got := x.Look(Redact, raw)
		if got.Blocked || (got.Found != nil) != (hidden > 0) {
			t.Fatalf("%s: %d hidden, %v", raw, hidden, got.Found)
		}
		check(t, x, raw, got)
		var out struct{ B []string }
		if err := json.Unmarshal(got.Out, &out); err != nil || len(out.B) != len(parts) {
			t.Fatalf("%s: %v", got.Out, err)
		}
		for i, s := range out.B {
			if s != parts[i] && strings.TrimSpace(s) != Redacted {
				t.Fatalf("%q became %q", parts[i], s)
			}
		}
	}
}

// check fails the test unless a result under Redact keeps the invariants.
func check(t *testing.T, x *Index, raw []byte, r Result) {
	t.Helper()
	if err := wire.ValidateValue(r.Out); err != nil {
		t.Fatalf("%s\nbecame %s: %v", raw, r.Out, err)
	}
	if r.Blocked {
		return
	}
	if again := x.Look(Alert, r.Out); again.Found != nil {
		t.Fatalf("%s\nbecame %s, and in that is %v", raw, r.Out, again.Found)
	}
	// The pieces between the cuts are in raw, in this order.
	rest := raw
	for i, piece := range bytes.Split(r.Out, []byte(Redacted)) {
		at := bytes.Index(rest, piece)
		if at < 0 || i == 0 && at > 0 {
			t.Fatalf("%s\nbecame %s: %q is not from there", raw, r.Out, piece)
		}
		rest = rest[at+len(piece):]
	}
}

// A look allocates nothing with an empty index, and hardly anything when it finds no
// ref.
func TestALookAllocatesNothing(t *testing.T) {
	raw := []byte(`{"name":"echo","arguments":{"text":"` + strings.Repeat("Some text of no interest, 0123. ", 100) + `"}}`)
	empty, filled := index(), index(delivery)
	if n := testing.AllocsPerRun(100, func() { empty.Look(Redact, raw, "name", "_meta") }); n != 0 {
		t.Errorf("with an empty index: %v", n)
	}
	if n := testing.AllocsPerRun(100, func() { empty.Text(Redact, known) }); n != 0 {
		t.Errorf("a text with an empty index: %v", n)
	}
	// Allowed are the names of the members and an occasional miss of the pool.
	if n := testing.AllocsPerRun(100, func() { filled.Look(Alert, raw) }); n > 3 {
		t.Errorf("with a filled one: %v", n)
	}
}

// The time of a look is proportional to the length of the text, even when the text
// looks like the beginning of a ref everywhere or is full of refs.
func TestLookingIsLinear(t *testing.T) {
	t.Parallel()
	x := index(delivery)
	b64 := base64.StdEncoding
	const size = 1 << 16
	began := time.Now()
	for _, unit := range []string{"d", "dw", "dwi", "dwi-", "d w i ", "d.", "…", "d…", "ｄ", "\u200b", "\xff", "\U000E0064", "\U000E0064x", "64", "6477", "0x64,", `\x64`, "0", "%",
		b64.EncodeToString([]byte("dwdwdw")), b64.EncodeToString([]byte("dwi-dwi-dwi-")), b64.EncodeToString([]byte("d…d…")), b64.EncodeToString([]byte("………")), "ZH dp", "Z\n", known[:19] + " "} {
		text := strings.Repeat(unit, size/len(unit))
		if _, found := x.Text(Redact, text); found != nil {
			t.Errorf("%q: %v", unit, found)
		}
	}
	// Texts full of refs.
	for _, unit := range []string{known, b64.EncodeToString([]byte(known + "x")), hex.EncodeToString([]byte(known)), tagged(known)} {
		for _, between := range []string{" ", ""} {
			if out, found := x.Text(Redact, strings.Repeat(unit+between, size/len(unit))); len(found) != 1 || strings.Contains(out, unit) {
				t.Errorf("%q: %v", unit, found)
			}
		}
	}
	if d := time.Since(began); d > time.Minute {
		t.Errorf("some 2 MiB took %v", d)
	}
}

func BenchmarkLook(b *testing.B) {
	x := NewIndex(1 << 16)
	for i := range 1 << 16 {
		d := Delivery{Session: fmt.Sprint(i), Template: "session"}
		x.Add(Ref(testKey, d), d, time.Unix(int64(i), 0))
	}
	prose := "The weather in the north is cold, with winds from the west; see README.md and call read(name: \"voice\") twice. "
	code := "func (s *Server) Ahead(w http.ResponseWriter, r *http.Request) bool {\n\tif x := s.look(r); x != nil {\n\t\treturn false\n\t}\n}\n"
	var random [3 << 18]byte
	rand.NewChaCha8([32]byte{}).Read(random[:])
	encoded := base64.StdEncoding.EncodeToString(random[:])
	for _, size := range []int{4 << 10, 1 << 20} {
		for name, text := range map[string]string{
			"prose":  strings.Repeat(prose, size/len(prose)),
			"code":   strings.Repeat(code, size/len(code)),
			"base64": encoded[:min(size, len(encoded))],
			"wide":   strings.Repeat("北の天気は寒く、西から風が吹いています。", size/60),
		} {
			raw, _ := json.Marshal(map[string]any{"name": "write", "arguments": map[string]string{"path": "/tmp/x", "content": text}})
			b.Run(fmt.Sprintf("%s/%dKiB", name, size>>10), func(b *testing.B) {
				b.SetBytes(int64(len(raw)))
				b.ReportAllocs()
				for b.Loop() {
					if r := x.Look(Alert, raw, "name"); r.Found != nil {
						b.Fatal(r.Found)
					}
				}
			})
		}
	}
	b.Run("empty/4KiB", func(b *testing.B) {
		empty := NewIndex(1)
		raw := []byte(`{"a":"` + strings.Repeat("x", 4<<10) + `"}`)
		for b.Loop() {
			empty.Look(Alert, raw, "name")
		}
	})
}

// FuzzLook: no input makes it panic. A ref that is put into valid JSON is found, and
// the redacted form keeps the invariants.
func FuzzLook(f *testing.F) {
	for _, s := range []string{`{"a":"x"}`, `["\u0064\ud83d\ude42","` + known + `"]`, `{"` + known + `":{"` + known + ` ":1}}`, `"\"`, `"\u00`, `{"a`,
		`"ZHdpLQ=="`, `"6477692d"`, "\"\xff\xf3\xa0\x81\xa4\""} {
		f.Add([]byte(s), uint8(len(s)))
	}
	x := index(delivery, other)
	forms := []string{known, strings.ToUpper(known), wide(known), tagged(known), base64.StdEncoding.EncodeToString([]byte(known)), hex.EncodeToString([]byte(known))}
	f.Fuzz(func(t *testing.T, raw []byte, at uint8) {
		for _, mode := range []Mode{Alert, Redact, Block} {
			x.Look(mode, raw)
			x.Look(mode, raw, "a")
		}
		if wire.ValidateValue(raw) != nil {
			return
		}
		for _, form := range forms {
			s := string(raw)
			i := min(int(at), len(s))
			with := []byte(`{"x":[` + s + `],"y":"` + form + `","z":` + string(rawjson.AppendQuote(nil, s[:i]+" "+form+" "+s[i:])) + `}`)
			r := x.Look(Redact, with)
			if len(r.Found) == 0 {
				t.Fatalf("nothing was found in %s", with)
			}
			check(t, x, with, r)
		}
	})
}

// TestEightDifferentRefsAreEnough: where nothing is cut, a look stops at eight
// different refs, which bounds its cost. Redact has to find all.
func TestEightDifferentRefsAreEnough(t *testing.T) {
	t.Parallel()
	var all []Delivery
	var refs []string
	for i := range 100 {
		d := Delivery{Session: fmt.Sprint(i), Template: "voice", Revision: "r"}
		all, refs = append(all, d), append(refs, Ref(testKey, d))
	}
	x := index(all...)
	one, each := []byte(`["`+strings.Join(refs, " ")+`"]`), []byte(`["`+strings.Join(refs, `","`)+`"]`)
	again := []byte(`["` + strings.Repeat(refs[0]+" ", 50) + strings.Join(refs[1:3], " ") + `"]`)
	for _, raw := range [][]byte{one, each} {
		for _, mode := range []Mode{Alert, Block} {
			if r := x.Look(mode, raw); len(r.Found) != Enough || !slices.Equal(r.Found, all[:Enough]) || r.Blocked != (mode == Block) {
				t.Errorf("%s: %d found, blocked %v", mode, len(r.Found), r.Blocked)
			}
		}
		if r := x.Look(Redact, raw); len(r.Found) != len(all) || r.Blocked || x.Look(Alert, r.Out).Found != nil {
			t.Errorf("redact: %d found, blocked %v", len(r.Found), r.Blocked)
		}
	}
	if r := x.Look(Alert, again); !slices.Equal(r.Found, all[:3]) {
		t.Errorf("repeated ones count once: %v", r.Found)
	}
}
