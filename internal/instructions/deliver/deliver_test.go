package deliver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/watermark"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
)

func TestTheGreetingIsTheSameBytesInBothErasAndFits(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	h.file("long", "class: instructions\ntier: structural", strings.Repeat("A long word of advice, és. ", 400))
	h.look()
	id := h.full()
	legacy, less := h.legacy("a", id).greeting("initialize")
	modern, _ := h.modern("b", id).greeting("server/discover")
	if legacy != modern || less != "" {
		t.Errorf("%q\n%q\n%s", legacy, modern, less)
	}
	if len(legacy) > GreetingBytes || !strings.HasPrefix(legacy, document.DefaultPreamble) || !strings.Contains(legacy, plantedJudge) {
		t.Errorf("%d bytes: %s", len(legacy), legacy)
	}
	lines := strings.Split(legacy, "\n")
	ref, ok := strings.CutPrefix(lines[len(lines)-1], "ref: ")
	if !ok || !watermark.IsRef(ref) {
		t.Errorf("it does not end in a ref: %s", legacy)
	}
	if d, known := h.refs.Find(ref); !known || d.Session != id || d.Template != nameSession || len(d.Revision) != 64 {
		t.Errorf("%+v %t", d, known)
	}
	other, _ := h.legacy("a", h.full()).greeting("initialize")
	if other == legacy || len(other) != len(legacy) {
		t.Error("two sessions have one ref")
	}
}

func TestWithoutATokenTheGreetingIsGenericAndSaysWhy(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	over := h.full()
	h.end(over)
	_, others := h.issue("uid:1001", document.Behavioural)
	for delivery, reason := range map[string]string{"": NoToken, over: Expired, others: Expired, "no-such-session": Expired, "bearer:0011": Expired} {
		text, less := h.legacy("a", delivery).greeting("initialize")
		if less != reason || text != Generic(reason) || !strings.HasSuffix(text, "\nrestricted guidance unavailable: "+reason) || len(text) > 512 {
			t.Errorf("%q: %s\n%s", delivery, less, text)
		}
	}
	h.gate.SetPolicy(h.rules(`@id("none") forbid (principal, action == Action::"instructions.read", resource);`))
	h.s.Policy()
	if text, less := h.legacy("a", h.full()).greeting("initialize"); less != NotPermitted || text != Generic(NotPermitted) {
		t.Errorf("%s: %s", less, text)
	}
}

func TestWithoutAStoreThereIsNoGreeting(t *testing.T) {
	t.Parallel()
	h := build(t, plan{nowhere: true, failClosed: true})
	c := h.legacy("a", h.full())
	if text, less := c.greeting("initialize"); text != "" || less != "" || h.s.storage.Used() {
		t.Errorf("%q %s", text, less)
	}
	if why := h.s.Refuses(c.act("tools/call", "x")); why != "" {
		t.Errorf("calls are refused because of an unused store: %s", why)
	}
}

// TestEachDeliveryHasOneRecord: each way to get a text writes one record with the
// names, the revision and the number of bytes.
func TestEachDeliveryHasOneRecord(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	id := h.full()
	r, c := h.reader(id), h.modern("a", id)
	ctx := context.Background()
	give := func(what, resource, action string, names string, do func() (string, string)) {
		t.Helper()
		before := len(h.lines())
		body, revision := do()
		lines := h.lines()[before:]
		if len(lines) != 1 {
			t.Fatalf("%s: %d records: %+v", what, len(lines), lines)
		}
		l := lines[0]
		if l.Kind != audit.Decision || l.Decision != audit.Allow || l.Action != action || l.Resource != "instructions/"+resource || l.Rule == "" || l.Principal != "uid:1000" {
			t.Errorf("%s: %+v", what, l)
		}
		d := l.Detail
		if d["session"] != id || d["templates"] != names || d["bytes"] != strconv.Itoa(len(body)) || d["scope"] != "behavioural,structural" || len(d["revision"]) != 64 || revision != "" && d["revision"] != revision {
			t.Errorf("%s: %v of %d bytes", what, d, len(body))
		}
	}
	text := func(got *Text, err error) (string, string) { h.must(err); return got.Body, got.Revision }
	give("greeting", "session", actionRead, "judge,plan", func() (string, string) { s, _ := c.greeting("initialize"); return s, "" })
	give("instructions", "session", actionRead, "judge,plan", func() (string, string) { return text(h.s.deliveries.Instructions(ctx, r, 0)) })
	give("template", "plan", actionRead, "plan", func() (string, string) { return text(h.s.deliveries.Template(ctx, r, "plan", "", "")) })
	give("label", "plan", actionRead, "plan", func() (string, string) { return text(h.s.deliveries.Template(ctx, r, "plan", "", "production")) })
	give("voice", "voice", actionRead, "voice", func() (string, string) { return text(h.s.deliveries.Voice(ctx, r)) })
	give("render", "verdict", actionRender, "verdict", func() (string, string) {
		return text(h.s.deliveries.Render(ctx, r, "verdict", []byte(`{"case":"secretvalue"}`)))
	})
	give("tool", "session", actionRead, "judge,plan", func() (string, string) { s, _ := c.tool("read", m{}); return s, "" })
	give("tool, by name", "voice", actionRead, "voice", func() (string, string) { s, _ := c.tool("read", m{"name": "voice"}); return s, "" })
	give("prompt", "verdict", actionRender, "verdict", func() (string, string) {
		return textIn(c.ask("prompts/get", m{"name": "verdict", "arguments": m{"case": "secretvalue"}}), "messages"), ""
	})
	give("resource", "plan", actionRead, "plan", func() (string, string) {
		return textIn(c.ask("resources/read", m{"uri": "instr://templates/plan"}), "contents"), ""
	})
	before := len(h.lines())
	_, revision, err := h.s.deliveries.Templates(ctx, r)
	h.must(err)
	if l := h.lines()[before:]; len(l) != 1 || l[0].Resource != ServerName || l[0].Detail["revision"] != revision || l[0].Detail["bytes"] != "" {
		t.Errorf("the list: %+v", l)
	}
	before = len(h.lines())
	c.tool("status", m{})
	if l := h.lines()[before:]; len(l) != 1 || l[0].Action != "tools/call" || l[0].Detail["state"] != "full" {
		t.Errorf("the status: %+v", l)
	}
}

// TestNothingDeliveredIsOnTheDisk: no text, value, ref or token is in the records
// or the program's log.
func TestNothingDeliveredIsOnTheDisk(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	token, id := h.issue("uid:1000", document.Behavioural, document.Structural)
	r, c := h.reader(id), h.modern("a", id)
	text, err := h.s.deliveries.Render(context.Background(), r, "verdict", []byte(`{"case":"plantedvalue"}`))
	h.must(err)
	c.everything(h)
	h.s.Outgoing(gate.Act{Who: c.who, Action: "tools/call", Server: "notes", Name: "add"}, []byte(`{"x":"`+text.Ref+`"}`))
	h.end(id)
	h.must(h.log.Close())
	wanted := []string{plantedJudge, plantedVoice, plantedPlan, "plantedvalue", text.Ref, strings.TrimPrefix(text.Ref, "dwi-"), token, "umber heron"}
	found := h.logs.String()
	err = filepath.WalkDir(h.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		found += string(raw)
		return err
	})
	h.must(err)
	if !strings.Contains(found, id) || !strings.Contains(found, text.Revision) {
		t.Error("the records say nothing at all")
	}
	for _, w := range wanted {
		if strings.Contains(strings.ToLower(found), strings.ToLower(w)) {
			t.Errorf("%q is in a record or the log", w)
		}
	}
}

func TestAStructuralSessionGetsNothingBehavioural(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	ctx := context.Background()
	full := h.reader(h.full())
	versions := make(map[string]string)
	docs, revision, err := h.s.deliveries.Templates(ctx, full)
	h.must(err)
	for _, d := range docs {
		versions[d.Name] = d.Version
	}
	if len(versions) != 6 { // all but that for another one
		t.Fatalf("%v", versions)
	}
	r := h.reader(h.partly())
	docs, less, err := h.s.deliveries.Templates(ctx, r)
	h.must(err)
	var names []string
	for _, d := range docs {
		names = append(names, d.Name+" "+d.Tier)
	}
	if !slices.Equal(names, []string{"minutes structural", "plan structural"}) || less == revision {
		t.Errorf("%v", names)
	}
	for _, name := range append(behavioural, "foreign", "nothing", "session", "../plan", "Plan") {
		_, byName := h.s.deliveries.Template(ctx, r, name, "", "")
		_, byVersion := h.s.deliveries.Template(ctx, r, name, versions[name], "")
		_, byLabel := h.s.deliveries.Template(ctx, r, name, "", "production")
		_, rendered := h.s.deliveries.Render(ctx, r, name, []byte(`{"case":"x"}`))
		for how, err := range map[string]error{"name": byName, "version": byVersion, "label": byLabel, "render": rendered} {
			if !errors.Is(err, ErrNotFound) || err.Error() != ErrNotFound.Error() {
				t.Errorf("%s by %s: %v", name, how, err)
			}
		}
	}
	if _, err := h.s.deliveries.Voice(ctx, r); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	_, err = h.lib.Promote(ctx, "judge", versions["judge"], "staging", said)
	h.must(err)
	if _, err := h.s.deliveries.Template(ctx, r, "judge", "", "staging"); !errors.Is(err, ErrNotFound) {
		t.Errorf("by another label: %v", err)
	}
	if got, err := h.s.deliveries.Template(ctx, full, "judge", "", "staging"); err != nil || got.Bare != plantedJudge {
		t.Errorf("%+v %v", got, err)
	}
	all, err := h.s.deliveries.Instructions(ctx, r, MaxComposed)
	h.must(err)
	if !strings.Contains(all.Body, plantedPlan) || !slices.Equal(all.Names, []string{"plan"}) {
		t.Errorf("%+v", all)
	}
	for _, c := range []*client{h.legacy("a", r.Session.ID), h.modern("b", r.Session.ID)} {
		seen := c.everything(h)
		for _, w := range []string{"heron", "lighthouse", "verdict", "judge", "voice to write", "Decide", "For another"} {
			if strings.Contains(seen, w) {
				t.Errorf("%q reaches a structural session", w)
			}
		}
		if !strings.Contains(seen, plantedPlan) {
			t.Error("a structural text does not reach a structural session")
		}
	}
}

// TestVersionsOfADocumentThatBecameBehaviouralAreBehavioural: a structural session
// no longer gets the structural versions either.
func TestVersionsOfADocumentThatBecameBehaviouralAreBehavioural(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	ctx := context.Background()
	r := h.reader(h.partly())
	before, err := h.s.deliveries.Template(ctx, r, "plan", "", "")
	h.must(err)
	h.file("plan", "class: instructions\ntier: structural", "Another plan.")
	h.look()
	old, err := h.s.deliveries.Template(ctx, r, "plan", before.Version, "")
	h.must(err)
	if old.Bare != plantedPlan || old.Version != before.Version || old.Revision != before.Version || old.Ref == before.Ref {
		t.Errorf("%+v", old)
	}
	if d, ok := h.refs.Find(old.Ref); !ok || d.Revision != before.Version || d.Template != "plan" {
		t.Errorf("%+v %t", d, ok)
	}
	if _, err := h.s.deliveries.Template(ctx, r, "minutes", before.Version, ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("the version of another document: %v", err)
	}
	h.file("plan", "class: instructions", "A plan that judges.")
	h.look()
	for _, version := range []string{before.Version, before.Version[:12]} {
		if _, err := h.s.deliveries.Template(ctx, r, "plan", version, ""); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v", err)
		}
		if _, err := h.s.deliveries.Template(ctx, h.reader(h.full()), "plan", version, ""); err != nil {
			t.Error(err)
		}
	}
}

func TestWithoutALogThereIsNoDelivery(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	id := h.full()
	r, c := h.reader(id), h.modern("a", id)
	h.must(h.log.Close())
	var refusal *gate.Refusal
	if got, err := h.s.deliveries.Instructions(context.Background(), r, 0); got != nil || !errors.As(err, &refusal) || refusal.Err == nil || refusal.Code != gate.CodeUnavailable {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := h.s.deliveries.Template(context.Background(), r, "plan", "", ""); got != nil || !errors.As(err, &refusal) {
		t.Errorf("%+v %v", got, err)
	}
	if text, less := c.greeting("initialize"); less != Unreachable || text != Generic(Unreachable) {
		t.Errorf("%s %s", less, text)
	}
	if !h.refs.Empty() {
		t.Error("a text that was not delivered has a ref")
	}
}

func TestTheComposedTextHasTheAskedSize(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	h.file("long", "class: instructions\ntier: structural", strings.Repeat("advice ", 12000))
	h.look()
	r := h.reader(h.full())
	for ask, most := range map[int]int{0: GreetingBytes, -1: GreetingBytes, 1: document.MinBytes, 5000: 5000, 10 * MaxComposed: MaxComposed} {
		got, err := h.s.deliveries.Instructions(context.Background(), r, ask)
		h.must(err)
		if len(got.Body) > most || len(got.Body) < most/2 || !got.Cut {
			t.Errorf("asked for %d: %d bytes", ask, len(got.Body))
		}
	}
}

func TestARefusalIsRecordedOnce(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	id := h.full()
	r := h.reader(id)
	ctx := context.Background()
	var variable *document.VarError
	ask := func(rule string, do func() error) {
		t.Helper()
		before := len(h.lines())
		if err := do(); err == nil {
			t.Error("it is delivered")
		}
		if l := h.lines()[before:]; len(l) != 1 || l[0].Decision != audit.Deny || l[0].Rule != rulePrefix+rule || l[0].Detail["session"] != id || l[0].Detail["bytes"] != "" {
			t.Errorf("%s: %+v", rule, l)
		}
	}
	ask("not_found", func() error { _, err := h.s.deliveries.Template(ctx, r, "nothing", "", ""); return err })
	ask("not_found", func() error { _, err := h.s.deliveries.Template(ctx, r, "plan", "", "nolabel"); return err })
	ask("not_found", func() error {
		_, err := h.s.deliveries.Template(ctx, r, "plan", "0123456789abcdef", "production")
		return err
	})
	ask("invalid_variables", func() error {
		_, err := h.s.deliveries.Render(ctx, r, "verdict", []byte(`{"case":7}`))
		if !errors.As(err, &variable) || variable.Name != "case" {
			t.Errorf("%v", err)
		}
		return err
	})
	h.take(true)
	id = h.full()
	r = h.reader(id)
	ask("store_unreachable", func() error { _, err := h.s.deliveries.Voice(ctx, r); return err })
	h.end(id)
	ask("expired", func() error { _, err := h.s.deliveries.Voice(ctx, r); return err })
}
