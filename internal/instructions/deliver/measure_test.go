package deliver

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/instructions/watermark"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/test/doortest"
)

// TestDeliveriesAreCountedByKind: deliveries are counted by kind, generic texts by reason, and
// durations in buckets.
func TestDeliveriesAreCountedByKind(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	r, ctx := h.reader(h.full()), context.Background()
	for range 3 {
		_, err := h.s.deliveries.Instructions(ctx, r, 0)
		h.must(err)
	}
	_, err := h.s.deliveries.Voice(ctx, r)
	h.must(err)
	_, err = h.s.deliveries.Render(ctx, r, "minutes", []byte(`{"rows":2}`))
	h.must(err)
	_, err = h.s.deliveries.Template(ctx, r, "nothing", "", "")
	if err == nil {
		t.Error("there is nothing")
	}
	h.modern("a", "").greeting("initialize")
	h.modern("a", "").tool("read", m{})
	h.modern("a", "gone").greeting("initialize")
	got := h.s.Measure()
	if !maps.Equal(got.Delivered, map[string]uint64{"session": 3, "template": 1, "render": 1}) || !maps.Equal(got.Degraded, map[string]uint64{NoToken: 2, Expired: 1}) || len(got.Canary) != 0 {
		t.Errorf("%+v", got)
	}
	if got.Count != 5 || got.Sum <= 0 || len(got.Within) != len(got.Buckets) || got.Within[len(got.Within)-1] != 5 {
		t.Errorf("%+v", got)
	}
	for i := range got.Within[1:] {
		if got.Within[i] > got.Within[i+1] || got.Buckets[i] >= got.Buckets[i+1] {
			t.Errorf("%v %v", got.Buckets, got.Within)
		}
	}
}

// full is a library that can count no further delivery.
type full struct{ Library }

func (full) Deliver(context.Context, library.Delivery) error { return errors.New("it is full") }

// TestADeliveryThatCannotBeCountedIsGiven: the text is given, its ref is known, and
// the program's log says once that it was not counted.
func TestADeliveryThatCannotBeCountedIsGiven(t *testing.T) {
	t.Parallel()
	h := build(t, plan{library: func(l Library) Library { return full{l} }})
	r := h.reader(h.full())
	for range 3 {
		got, err := h.s.deliveries.Voice(context.Background(), r)
		h.must(err)
		if _, known := h.refs.Find(got.Ref); !known {
			t.Error("its mark is not known")
		}
	}
	if n := strings.Count(h.logs.String(), "was not counted"); n != 1 {
		t.Errorf("the operator hears of it %d times", n)
	}
}

func TestADeliveryIsStoredForTheOperator(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	id := h.full()
	got, err := h.s.deliveries.Voice(context.Background(), h.reader(id))
	h.must(err)
	doortest.Until(t, 20*time.Second, "the row", func() bool {
		all, err := h.lib.Deliveries(context.Background())
		h.must(err)
		return len(all) == 1 && all[0].Ref == got.Ref && all[0].Session == id && all[0].Principal == "uid:1000" && all[0].Template == "voice" &&
			all[0].Revision == got.Revision && all[0].Bytes == len(got.Body)
	})
}

// TestOldRefsAreForgotten: refs are forgotten after refsKept, when their session is
// forgotten too.
func TestOldRefsAreForgotten(t *testing.T) {
	t.Parallel()
	h := build(t, plan{still: true})
	h.refs.Add(watermark.Ref([]byte("k"), watermark.Delivery{}), watermark.Delivery{}, time.Now().Add(-refsKept-time.Minute))
	if h.refs.Empty() {
		t.Fatal("it was never there")
	}
	h.s.sweep()
	if !h.refs.Empty() {
		t.Error("it is still looked for")
	}
}

// BenchmarkGreeting measures a delivery with its record.
func BenchmarkGreeting(b *testing.B) {
	h := build(b, plan{})
	c := h.modern("a", h.full())
	b.ReportAllocs()
	for b.Loop() {
		if _, less := c.greeting("initialize"); less != "" {
			b.Fatal(less)
		}
	}
}

// BenchmarkOutgoing measures the checks of a session's call that carries no ref.
func BenchmarkOutgoing(b *testing.B) {
	h := build(b, plan{})
	c := h.modern("a", h.full())
	c.greeting("initialize")
	raw, _ := json.Marshal(m{"name": "add", "arguments": m{"text": plantedJudge + plantedVoice, "n": 7}})
	act := gate.Act{Who: c.who, Action: "tools/call", Server: "notes", Name: "add", Delivery: c.delivery}
	b.ReportAllocs()
	for b.Loop() {
		if h.s.Refuses(act) != "" {
			b.Fatal("refused")
		}
		if _, blocked := h.s.Outgoing(act, raw); blocked {
			b.Fatal("blocked")
		}
	}
}
