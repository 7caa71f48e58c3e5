package deliver

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/doorward/doorward/internal/instructions/watermark"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
)

// leak is a tool call with a text in its arguments.
func leak(text string) []byte {
	raw, _ := json.Marshal(m{"name": "add", "arguments": m{"deep": []string{"harmless", text}}})
	return raw
}

// TestARefOnItsWayOutIsNoticed: a ref in an outgoing request is found in each of
// its encodings, recorded once, and passed, redacted or blocked as the mode says.
func TestARefOnItsWayOutIsNoticed(t *testing.T) {
	t.Parallel()
	for _, mode := range []watermark.Mode{watermark.Alert, watermark.Redact, watermark.Block} {
		h := build(t, plan{mode: mode})
		id := h.full()
		got, err := h.s.deliveries.Voice(context.Background(), h.reader(id))
		h.must(err)
		act := gate.Act{Who: program("a"), Session: "mcp", Action: "tools/call", Server: "notes", Name: "add"}
		texts := map[string]string{"as it is": got.Body, "in capitals": strings.ToUpper(got.Ref), "spaced": strings.Join(strings.Split(got.Ref, ""), " "),
			"encoded": base64.StdEncoding.EncodeToString([]byte("the mark is " + got.Ref + "."))}
		for how, text := range texts {
			before := len(h.lines())
			raw := leak(text)
			out, blocked := h.s.Outgoing(act, raw)
			l := h.lines()[before:]
			if len(l) != 1 {
				t.Fatalf("%s, %s: %d records", mode, how, len(l))
			}
			d := l[0].Detail
			if l[0].Kind != audit.Event || l[0].Action != "instructions.canary" || l[0].Resource != "notes/add" || l[0].Result != string(mode) ||
				l[0].Principal != "uid:1000" || l[0].Session != "mcp" || d["session"] != id || d["template"] != "voice" || d["revision"] != got.Revision {
				t.Errorf("%s, %s: %+v", mode, how, l[0])
			}
			switch mode {
			case watermark.Alert:
				if blocked || string(out) != string(raw) {
					t.Errorf("%s, %s: %t %s", mode, how, blocked, out)
				}
			case watermark.Redact:
				if again, _ := h.s.Outgoing(act, out); blocked || !strings.Contains(string(out), "[redacted]") || string(again) != string(out) || !strings.Contains(string(out), "harmless") {
					t.Errorf("%s, %s: %t %s", mode, how, blocked, out)
				}
			case watermark.Block:
				if !blocked || out != nil {
					t.Errorf("%s, %s: %t %s", mode, how, blocked, out)
				}
			}
		}
		before := len(h.lines())
		for _, harmless := range []string{"nothing", "dwi-aaaaaaaaaaaaaaaa", plantedVoice} {
			raw := leak(harmless)
			if out, blocked := h.s.Outgoing(act, raw); blocked || &out[0] != &raw[0] {
				t.Errorf("%s: %s is held back", mode, harmless)
			}
		}
		if n := len(h.lines()) - before; n != 0 {
			t.Errorf("%d records of nothing", n)
		}
		if n := h.s.Measure().Canary[string(mode)]; n != uint64(len(texts)) {
			t.Errorf("%d counted", n)
		}
	}
}

func TestAFindThatCannotBeRecordedHoldsTheRequestBack(t *testing.T) {
	t.Parallel()
	h := build(t, plan{mode: watermark.Alert})
	got, err := h.s.deliveries.Voice(context.Background(), h.reader(h.full()))
	h.must(err)
	h.must(h.log.Close())
	if out, blocked := h.s.Outgoing(gate.Act{Who: program("a"), Server: "notes"}, leak(got.Ref)); !blocked || out != nil {
		t.Errorf("%t %s", blocked, out)
	}
}

// TestOneFindIsOneRecord: a request with refs of two deliveries writes one record
// for each, with the number of occurrences.
func TestOneFindIsOneRecord(t *testing.T) {
	t.Parallel()
	h := build(t, plan{mode: watermark.Alert})
	r := h.reader(h.full())
	one, err := h.s.deliveries.Voice(context.Background(), r)
	h.must(err)
	two, err := h.s.deliveries.Instructions(context.Background(), r, 0)
	h.must(err)
	before := len(h.lines())
	h.s.Outgoing(gate.Act{Who: program("a"), Server: "notes"}, []byte(`["`+one.Ref+`","`+two.Ref+`","`+one.Ref+`"]`))
	count := make(map[string]int64)
	for _, l := range h.lines()[before:] {
		count[l.Detail["template"]] += l.Count
		if l.Resource != "notes" {
			t.Errorf("%+v", l)
		}
	}
	if len(h.lines())-before != 2 || count["voice"] < 1 || count["session"] < 1 {
		t.Errorf("%v", count)
	}
}

// TestARequestFullOfRefsIsAFewRecords: the first mostFinds deliveries have one
// record each; one more record counts all others.
func TestARequestFullOfRefsIsAFewRecords(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, mostFinds, mostFinds + 1, 1000} {
		found := make([]watermark.Delivery, n)
		var sum int64
		out := finds(gate.Act{Who: program("a"), Server: "notes"}, found, "redact")
		for _, r := range out {
			sum += r.Count
		}
		if want := min(n, mostFinds+1); len(out) != want || sum != int64(n) {
			t.Errorf("%d deliveries: %d records of %d", n, len(out), sum)
		}
		if n > mostFinds && (out[mostFinds].Count != int64(n-mostFinds) || len(out[mostFinds].Detail) != 0) {
			t.Errorf("the last: %+v", out[mostFinds])
		}
	}
}

// TestTheOutputOfAStartedAgentIsSearchedForRefs: refs are found in its result and
// anywhere in a long output, also between two pieces that are read apart.
func TestTheOutputOfAStartedAgentIsSearchedForRefs(t *testing.T) {
	t.Parallel()
	type outcome struct {
		out           string
		keep, blocked bool
	}
	for _, mode := range []watermark.Mode{watermark.Alert, watermark.Redact, watermark.Block} {
		h := build(t, plan{mode: mode})
		id := h.full()
		got, err := h.s.deliveries.Voice(context.Background(), h.reader(id))
		h.must(err)
		act := gate.Act{Who: program("kid"), Server: "agent", Name: "result"}
		long := func(at int) string {
			all := bytes.Repeat([]byte("dwi- abcdefg\n"), 3<<20/13)
			return string(all[:at]) + got.Ref + string(all[at:])
		}
		text := "so: " + got.Ref + "."
		for name, c := range map[string]struct {
			text, whole string
			want        map[watermark.Mode]outcome
		}{
			"nothing":        {"harmless", "", map[watermark.Mode]outcome{mode: {"harmless", true, false}}},
			"nothing at all": {"", long(0)[len(got.Ref):], map[watermark.Mode]outcome{mode: {"", true, false}}},
			"the result":     {text, "", map[watermark.Mode]outcome{watermark.Alert: {text, true, false}, watermark.Redact: {"so: [redacted].", true, false}, watermark.Block: {"", false, true}}},
			"the beginning":  {"end", long(0), map[watermark.Mode]outcome{watermark.Alert: {"end", true, false}, watermark.Redact: {"end", false, false}, watermark.Block: {"", false, true}}},
			"between two pieces": {"end", long(pieceBytes - 7), map[watermark.Mode]outcome{watermark.Alert: {"end", true, false}, watermark.Redact: {"end", false, false},
				watermark.Block: {"", false, true}}},
			"both": {text, long(2 << 20), map[watermark.Mode]outcome{watermark.Alert: {text, true, false}, watermark.Redact: {"so: [redacted].", false, false}, watermark.Block: {"", false, true}}},
		} {
			before := len(h.lines())
			var whole io.Reader
			if c.whole != "" {
				whole = strings.NewReader(c.whole)
			}
			out, keep, blocked := h.s.Printed(act, c.text, whole)
			if got, want := (outcome{out, keep, blocked}), c.want[mode]; got != want {
				t.Errorf("%s, %s: %+v, want %+v", mode, name, got, want)
			}
			l := h.lines()[before:]
			if strings.HasPrefix(name, "nothing") {
				if len(l) != 0 {
					t.Errorf("%s, %s: %+v", mode, name, l)
				}
				continue
			}
			if len(l) != 1 || l[0].Action != "instructions.canary" || l[0].Resource != "agent/result" || l[0].Result != string(mode) ||
				l[0].Detail["session"] != id || l[0].Detail["template"] != "voice" || l[0].Detail["revision"] != got.Revision {
				t.Errorf("%s, %s: %+v", mode, name, l)
			}
		}
		// An output that cannot be read to its end is kept in the mode alert alone. A
		// find that cannot be recorded is not given.
		if _, keep, blocked := h.s.Printed(act, "end", iotest.ErrReader(errors.New("gone"))); keep != (mode == watermark.Alert) || blocked {
			t.Errorf("%s: kept %v, blocked %v", mode, keep, blocked)
		}
		h.must(h.log.Close())
		if out, keep, blocked := h.s.Printed(act, text, nil); out != "" || keep || !blocked {
			t.Errorf("%s: %q without a record", mode, out)
		}
	}
}
