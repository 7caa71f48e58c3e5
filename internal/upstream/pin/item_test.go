package pin

import (
	"bytes"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

func TestTheOrderOfKeysIsNoChangeAndAnythingElseIs(t *testing.T) {
	t.Parallel()
	const tool = `{"name":"a","title":"A","description":"d","inputSchema":{"type":"object","properties":{"n":{"type":"number","maximum":1.0}}},"annotations":{"readOnlyHint":true},"icons":[{"src":"x"},{"src":"y"}],"_meta":{"v":1}}`
	of := func(raw string) digest { return look(Tools, []byte(raw)).digest }
	for what, same := range map[string]string{
		"order":   `{"_meta":{"v":1},"icons":[{"src":"x"},{"src":"y"}],"annotations":{"readOnlyHint":true},"inputSchema":{"properties":{"n":{"maximum":1.0,"type":"number"}},"type":"object"},"description":"d","title":"A","name":"a"}`,
		"space":   strings.ReplaceAll(tool, ":", " : "),
		"escapes": strings.Replace(tool, `"d"`, `"\u0064"`, 1),
	} {
		if of(same) != of(tool) {
			t.Errorf("%s is taken for a change", what)
		}
	}
	for what, pair := range map[string][2]string{
		"title": {`"A"`, `"B"`}, "description": {`"d"`, `"d "`}, "schema": {`"number"`, `"string"`}, "number as text": {"1.0", "1"},
		"annotation": {"true", "false"}, "order of icons": {`{"src":"x"},{"src":"y"}`, `{"src":"y"},{"src":"x"}`}, "unknown member": {`"v":1`, `"v":2`},
		"a member more": {`"name":"a"`, `"name":"a","x":null`}, "a hidden character": {`"d"`, `"d\u200b"`}, "case of a key": {`"readOnlyHint"`, `"readonlyHint"`},
	} {
		if of(strings.Replace(tool, pair[0], pair[1], 1)) == of(tool) {
			t.Errorf("%s is no change", what)
		}
	}
}

// The size and lastModified of a resource are not pinned, because they describe
// its present content.
func TestTheContentOfAResourceMayChange(t *testing.T) {
	t.Parallel()
	of := func(raw string) digest { return look(Resources, []byte(raw)).digest }
	const r = `{"uri":"file:///a","name":"a","size":1,"annotations":{"lastModified":"2026-01-01","priority":1}}`
	if of(r) != of(`{"uri":"file:///a","name":"a","size":2,"annotations":{"priority":1,"lastModified":"2026-01-02"}}`) {
		t.Error("size and time of a change count as a change of the offer")
	}
	if of(r) == of(strings.Replace(r, `"name":"a"`, `"name":"b"`, 1)) || of(r) == of(strings.Replace(r, `"priority":1`, `"priority":2`, 1)) {
		t.Error("anything else does not count")
	}
}

// shuffled writes a value with its members in another order.
func shuffled(dst, v []byte, random *rand.Rand) []byte {
	v = bytes.Trim(v, " \n\r\t")
	switch v[0] {
	case '[':
		dst = append(dst, '[')
		for e := range rawjson.Elements(v) {
			dst = append(shuffled(dst, e, random), ',')
		}
		return append(bytes.TrimSuffix(dst, []byte(",")), ']')
	case '{':
		type member struct {
			key   string
			value []byte
		}
		var all []member
		for k, m := range rawjson.Members(v) {
			all = append(all, member{k, m})
		}
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		dst = append(dst, '{')
		for i, m := range all {
			if i > 0 {
				dst = append(dst, " , "...)
			}
			dst = append(rawjson.AppendQuote(dst, m.key), ':')
			dst = shuffled(dst, m.value, random)
		}
		return append(dst, '}')
	}
	return append(dst, v...)
}

// The digest does not depend on the order of keys. A change of any one string
// changes it.
func FuzzDigest(f *testing.F) {
	f.Add([]byte(`{"name":"a","inputSchema":{"b":[1,2,{"c":"d"}],"e":null},"x":1.50}`), int64(1))
	f.Add([]byte(`[{"":""},{"a":[[]],"b":{}}]`), int64(2))
	f.Fuzz(func(t *testing.T, raw []byte, seed int64) {
		if wire.ValidateValue(raw) != nil {
			return
		}
		random := rand.New(rand.NewSource(seed))
		other := shuffled(nil, raw, random)
		if digestOf(canonical(Tools, raw)) != digestOf(canonical(Tools, other)) {
			t.Fatalf("%s and %s have different digests", raw, other)
		}
		leaves := 0
		count := func(rawjson.String) ([]byte, bool) { leaves++; return nil, false }
		rawjson.MapStrings(raw, count)
		if leaves == 0 {
			return
		}
		n, at := random.Intn(leaves), 0
		changed := rawjson.MapStrings(raw, func(s rawjson.String) ([]byte, bool) {
			at++
			return append(slices.Clone(s.Text), 0x01), at == n+1
		})
		if digestOf(canonical(Tools, raw)) == digestOf(canonical(Tools, changed)) {
			t.Fatalf("%s and %s have one digest", raw, changed)
		}
	})
}

func TestCleanedNamesHaveOneSpelling(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	g := s.auto("a")
	list := []byte(`[{"name":"ev\u200bil","description":"does\u202e things","inputSchema":{"enum":["x\u0007"]}},{"name":"fine"}]`)
	v := g.Judge(Asker{Era: "legacy"}, Tools, list)
	if own, why := v.Name("evil"); own != "ev\u200bil" || why != "" {
		t.Errorf("%q %q", own, why)
	}
	if _, why := v.Name("ev\u200bil"); why != Refused {
		t.Errorf("the other spelling: %q", why)
	}
	out, _ := v.Show(list, true)
	want(t, "shown", string(out), `[{"name":"evil","description":"does things","inputSchema":{"enum":["x"]}},{"name":"fine"}]`)
	if s.noted("pin.cleaned", "tools") != 1 {
		t.Errorf("%+v", s.said())
	}
	for _, n := range s.said() {
		if n.What == "pin.cleaned" && n.Count != 3 {
			t.Errorf("%d", n.Count)
		}
	}
}

func TestWhatCannotBeOfferedAtAll(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	s.SetServers([]string{"a", "notes"})
	g := s.auto("a")
	g.Judge(Asker{Era: "legacy"}, Tools, tools("read=1"))
	for what, c := range map[string]struct{ list, open, refused string }{
		"no name":                    {`[{"title":"x"}]`, "", "tool:"},
		"name that is no text":       {`[{"name":7}]`, "", "tool:"},
		"hidden alone":               {`[{"name":"\u200b"}]`, "", "tool:\u200b"},
		"hidden key":                 {`[{"name":"h","inputSchema":{"properties":{"a\u200b":{}}}}]`, "", "tool:h"},
		"long name":                  {`[{"name":"` + strings.Repeat("n", 300) + `"}]`, "", "tool:" + strings.Repeat("n", 300)},
		"large":                      {`[{"name":"l","x":"` + strings.Repeat("n", maxItem) + `"}]`, "", "tool:l"},
		"another's prefix":           {`[{"name":"notes__add"}]`, "", "tool:notes__add"},
		"looks like an approved one": {`[` + strings.Trim(string(tools("read=1")), "[]") + `,{"name":"Read"},{"name":"rеad"}]`, "read", "tool:Read tool:rеad"},
		"cleaned into another":       {`[` + strings.Trim(string(tools("read=1")), "[]") + `,{"name":"re\u200bad"}]`, "read", "tool:re\u200bad"},
	} {
		v := g.Judge(Asker{Era: "legacy"}, Tools, []byte(c.list))
		want(t, what+": open", judged(v), c.open)
		var refused []string
		for _, w := range s.Withheld("a") {
			if w.Reason != Refused || w.Detail == "" {
				t.Errorf("%s: %s is %s, %q", what, w.Item, w.Reason, w.Detail)
			}
			if s.Approve("a", []Approval{{w.Item, w.Digest}}) == nil {
				t.Errorf("%s: %s was approved", what, w.Item)
			}
			refused = append(refused, w.Item)
		}
		want(t, what+": refused", strings.Join(refused, " "), c.refused)
	}
}

// None of several names that look alike from the start is offered, since it is
// not clear which one is meant. The same definition twice counts as one.
func TestNamesThatCollideAtFirstUse(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	v := s.auto("a").Judge(Asker{Era: "legacy"}, Tools, tools("pay=1", "Pay=1", "other=1"))
	want(t, "alike", judged(v), "other")
	v = s.auto("b").Judge(Asker{Era: "legacy"}, Tools, tools("twice=1", "twice=2", "other=1"))
	want(t, "two definitions", judged(v), "other")
	list := tools("twice=1", "twice=1", "other=1")
	v = s.auto("c").Judge(Asker{Era: "legacy"}, Tools, list)
	want(t, "one definition twice", judged(v), "other twice")
	out, _ := v.Show(list, true)
	want(t, "shown once", string(out), strings.ReplaceAll(string(tools("twice=1", "other=1")), "}, {", "},{"))
	v = s.auto("d").Judge(Asker{Era: "legacy"}, Resources, []byte(`[{"uri":"file:///A"},{"uri":"file:///a"}]`))
	want(t, "addresses differ in case", judged(v), "file:///A file:///a")
	if v := s.auto("e").Judge(Asker{Era: "legacy"}, Resources, []byte(`[{"uri":"file:///\u202ea"}]`)); judged(v) != "" {
		t.Error("an address with hidden characters is offered")
	}
}

func TestLongTextsAreCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", maxDescription)
	s := look(Tools, []byte(`{"name":"a","description":"`+long+`","default":"`+long+`"}`))
	desc, _ := rawjson.GetString(s.clean, "description")
	if len(desc) > maxDescription || !strings.HasSuffix(desc, "é"+cutMark) || s.cleaned != 1 {
		t.Errorf("%d bytes, cleaned %d", len(desc), s.cleaned)
	}
	if other, _ := rawjson.GetString(s.clean, "default"); other != long {
		t.Error("something else was cut")
	}
}

// A page of a paged list is shown as the whole list was judged, and what
// changed since is left out.
func TestPagesFollowTheWholeList(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	g := s.auto("a")
	v := g.Judge(Asker{Era: "legacy"}, Tools, tools("a=1", "b=1", "c=1"))
	page := tools("b=1")
	if out, changed := v.Show(page, false); changed || &out[0] != &page[0] {
		t.Errorf("%s", out)
	}
	out, _ := v.Show(tools("b=2", "c=1", "d=1"), false)
	want(t, "a page that changed", string(out), string(tools("c=1")))
}

func BenchmarkName(b *testing.B) {
	book, err := Open(Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	g := book.Guard("a", false, nil)
	var list []string
	for i := range 50 {
		list = append(list, fmt.Sprintf("tool_number_%d=does something", i))
	}
	v := g.Judge(Asker{Era: "legacy"}, Tools, tools(list...))
	for b.Loop() {
		if _, why := v.Name("tool_number_25"); why != "" || !v.Current() {
			b.Fatal(why)
		}
	}
}

func BenchmarkJudge(b *testing.B) {
	book, err := Open(Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	g := book.Guard("a", false, nil)
	var list []string
	for i := range 50 {
		list = append(list, fmt.Sprintf("tool_number_%d=%s", i, strings.Repeat("does something ", 30)))
	}
	entries := tools(list...)
	g.Judge(Asker{Era: "legacy"}, Tools, entries)
	b.SetBytes(int64(len(entries)))
	b.Run("seen", func(b *testing.B) {
		for b.Loop() {
			g.Judge(Asker{Era: "legacy"}, Tools, entries)
		}
	})
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			clear(g.record.last)
			g.Judge(Asker{Era: "legacy"}, Tools, entries)
		}
	})
}
