package deliver

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/watermark"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream"
)

// anew is the server after a restart. It knows refs only from the database and the
// records.
func (h *house) anew(records func(context.Context) iter.Seq2[[]byte, error]) *Server {
	o := h.s.o
	o.Refs, o.Records = watermark.NewIndex(1000), records
	s := New(o)
	h.t.Cleanup(s.Close)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s.leaks.recalled(ctx, time.Now().Add(time.Minute))
	return s
}

func (h *house) past(ctx context.Context) iter.Seq2[[]byte, error] {
	return auditlog.Backwards(ctx, h.dir)
}

// forget deletes the deliveries in the database, as if they had never been written.
func (h *house) forget() {
	h.t.Helper()
	_, err := h.lib.Deliveries(context.Background())
	h.must(err)
	h.must(h.db.Write(context.Background(), func(tx *store.Tx) error {
		_, err := tx.Exec(`DELETE FROM instruct_deliveries`)
		return err
	}))
}

// TestTheRecordBringsBackEveryMark: after a restart the refs of all deliveries are
// known from the records alone. Rows that the database lost are written again.
func TestTheRecordBringsBackEveryMark(t *testing.T) {
	t.Parallel()
	h := build(t, plan{mode: watermark.Block, change: func(o *Options) { o.Holds = func(*principal.Principal) bool { return true } }})
	ctx := context.Background()
	id := h.full()
	r := h.reader(id)
	bearer := h.s.readers.bearerReader(principal.New("token:ci", principal.Fact{Name: "token", Value: "ci", Grade: principal.Verified}))
	var refs []string
	add := func(x *Text, err error) {
		h.t.Helper()
		h.must(err)
		if x.Ref == "" {
			h.t.Fatal("a text without a mark")
		}
		refs = append(refs, x.Ref)
	}
	add(h.s.deliveries.Voice(ctx, r))
	add(h.s.deliveries.Voice(ctx, r))
	add(h.s.deliveries.Instructions(ctx, r, 0))
	add(h.s.deliveries.Render(ctx, r, "verdict", []byte(`{"case":"x"}`)))
	add(h.s.deliveries.Template(ctx, r, "plan", "", ""))
	set, _ := h.lib.Set()
	plan := set.Documents()[slices.IndexFunc(set.Documents(), func(d *document.Document) bool { return d.Name == "plan" })]
	add(h.s.deliveries.Template(ctx, r, "plan", plan.Version, ""))
	add(h.s.deliveries.Template(ctx, bearer, "plan", "", ""))
	client := h.modern("a", id)
	if text, _ := client.tool("read", m{"name": "judge"}); !slices.ContainsFunc(h.refsIn(text), func(ref string) bool { refs = append(refs, ref); return true }) {
		t.Fatal(text)
	}
	// Then the documents change, and the session ends.
	h.file("voice", "class: voice", "Another voice.")
	h.look()
	h.end(id)
	h.forget()

	s := h.anew(h.past)
	act := gate.Act{Who: program("b"), Server: "notes"}
	for i, ref := range refs {
		if d, ok := s.o.Refs.Find(ref); !ok {
			t.Errorf("ref %d of %d is not known", i, len(refs))
		} else if again := watermark.Ref(s.o.CanaryKey, d); again != ref {
			t.Errorf("%+v has the ref %s", d, again)
		}
		if _, blocked := s.Outgoing(act, leak(ref)); !blocked {
			t.Errorf("ref %d is let through", i)
		}
		if found, err := s.Operator().trace(ctx, ref); err != nil || found.Session == "" || found.Template == "" {
			t.Errorf("%+v %v", found, err)
		}
	}
	h.must(s.Reckon(ctx, h.lib))
	rows, err := h.lib.Deliveries(ctx)
	h.must(err)
	of := make(map[string]string)
	for _, d := range rows {
		of[d.Ref] = fmt.Sprintf("%s %s %d", d.Principal, d.Template, d.Count)
	}
	if want := "uid:1000 voice 2"; of[refs[0]] != want || len(rows) != len(refs)-1 {
		t.Errorf("%d rows, %q", len(rows), of[refs[0]])
	}
	if of[refs[6]] != "token:ci plan 1" {
		t.Errorf("of a bearer: %q", of[refs[6]])
	}
	// A delivery that has a row is not counted twice.
	h.must(h.anew(h.past).Reckon(ctx, h.lib))
	again, err := h.lib.Deliveries(ctx)
	h.must(err)
	if !slices.Equal(again, rows) {
		t.Errorf("%v, then %v", rows, again)
	}
}

// refsIn are the refs in a text.
func (h *house) refsIn(text string) (out []string) {
	_, found := h.refs.Text(watermark.Alert, text)
	for _, d := range found {
		out = append(out, watermark.Ref(h.s.o.CanaryKey, d))
	}
	return out
}

// TestARecordThatIsNoDeliveryMakesNoMark: no other record is read as a delivery.
// Other parts write to the same log, with names that callers choose.
func TestARecordThatIsNoDeliveryMakesNoMark(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	id := h.full()
	got, err := h.s.deliveries.Voice(context.Background(), h.reader(id))
	h.must(err)
	var one []byte
	for line, err := range auditlog.Backwards(t.Context(), h.dir) {
		h.must(err)
		if d, ok := deliveredBy(line); ok {
			if d.Session != id || d.Template != "voice" || d.Revision != got.Revision || d.Bytes != len(got.Body) || d.Principal != "uid:1000" {
				t.Errorf("%+v", d)
			}
			one = slices.Clone(line)
		}
	}
	if one == nil {
		t.Fatal("the delivery has no record")
	}
	real := string(one)
	for _, change := range [][2]string{{`"source":"instruct"`, `"source":"gate"`}, {`"kind":"decision"`, `"kind":"event"`}, {`"decision":"allow"`, `"decision":"deny"`},
		{`"action":"instructions.read"`, `"action":"tools/call"`}, {`instructions/voice`, `notes/voice`}, {`instructions/voice`, `instructions`}, {`instructions/voice`, `instructions/../x`},
		{got.Revision, got.Revision[1:]}, {got.Revision, "g" + got.Revision[1:]}, {`"bytes":"`, `"size":"`}, {`"detail":{`, `"detail":[{`}, {`{"seq"`, `{"x":`}} {
		fake := strings.Replace(real, change[0], change[1], 1)
		if d, ok := deliveredBy([]byte(fake)); ok && fake != real {
			t.Errorf("%s for %s: %+v", change[1], change[0], d)
		} else if fake == real {
			t.Errorf("%s is not in the record", change[0])
		}
	}
}

// TestAnUnreadableRecordDelaysRequestsBriefly: requests go on without the refs of
// records that cannot be read, and wait a bounded time for slow ones.
func TestAnUnreadableRecordDelaysRequestsBriefly(t *testing.T) {
	t.Parallel()
	h := build(t, plan{mode: watermark.Block})
	got, err := h.s.deliveries.Voice(context.Background(), h.reader(h.full()))
	h.must(err)
	s := h.anew(func(ctx context.Context) iter.Seq2[[]byte, error] { return auditlog.Backwards(ctx, h.dir+"/nowhere") })
	if _, blocked := s.Outgoing(gate.Act{Who: program("b"), Server: "notes"}, leak(got.Ref)); blocked {
		t.Error("the ref is known without the record: the test shows nothing")
	}
	o := h.s.o
	release := make(chan struct{})
	o.Refs, o.Records = watermark.NewIndex(10), func(context.Context) iter.Seq2[[]byte, error] {
		return func(func([]byte, error) bool) { <-release }
	}
	slow := New(o)
	defer slow.Close()
	defer close(release)
	began := time.Now()
	for range 3 {
		slow.Outgoing(gate.Act{Who: program("b"), Server: "notes"}, leak("x"))
	}
	if took := time.Since(began); took < patience/2 || took > 20*time.Second {
		t.Errorf("three requests took %s", took)
	}
}

// TestAListIsRecordedWithItsSession: a list of prompts or resources writes a record
// with its session, because it contains descriptions of behavioural documents.
func TestAListIsRecordedWithItsSession(t *testing.T) {
	t.Parallel()
	h := build(t, plan{})
	id := h.full()
	for _, c := range []*client{h.legacy("a", id), h.modern("b", id)} {
		for _, method := range []string{"prompts/list", "resources/list"} {
			before := len(h.lines())
			c.ask(method, m{})
			l := h.lines()[before:]
			if len(l) != 1 || l[0].Action != "instructions.read" || l[0].Resource != "instructions" || l[0].Detail["session"] != id || len(l[0].Detail["revision"]) != 64 || l[0].Principal != "uid:1000" {
				t.Errorf("%s: %+v", method, l)
			}
		}
	}
	// A list without anything of a session has the relay's record alone.
	before := len(h.lines())
	h.modern("c", "").ask("prompts/list", m{})
	if n := len(h.lines()) - before; n != 0 {
		t.Errorf("%d records", n)
	}
	// Without a record the list fails.
	c := h.modern("d", id)
	pass, err := h.gate.Enter(c.act("prompts/list", ""))
	h.must(err)
	h.must(h.log.Close())
	if r, err := c.conn.Call(gate.WithPass(context.Background(), pass), &upstream.Request{Method: "prompts/list"}, nil); err == nil || r.Result != nil {
		t.Errorf("%s %v", r.Result, err)
	}
}
