package library_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/test/overload"
)

func delivery(session, template string) library.Delivery {
	return library.Delivery{Ref: "dwi-" + session + template, Session: session, Principal: "uid:1000", Template: template, Revision: "r1", Bytes: 10}
}

func (b *bed) deliver(d library.Delivery) {
	b.t.Helper()
	must(b.t, b.Deliver(b.t.Context(), d))
}

// delivered are the deliveries as text, the latest first.
func (b *bed) delivered() (out []string) {
	b.t.Helper()
	all, err := b.Deliveries(b.t.Context())
	must(b.t, err)
	for _, d := range all {
		out = append(out, fmt.Sprintf("%s %s %s %s %d×%d", d.Session, d.Template, d.Ref, d.Principal, d.Count, d.Bytes))
	}
	return out
}

func TestDeliveriesAreCountedOverRestarts(t *testing.T) {
	onBoth(t, library.Options{}, func(t *testing.T, b *bed) {
		b.deliver(delivery("s1", "voice"))
		b.clock.Add(int64(time.Second))
		b.deliver(delivery("s2", "voice"))
		b.clock.Add(int64(time.Second))
		b.deliver(delivery("s1", "voice"))
		want := []string{"s1 voice dwi-s1voice uid:1000 2×20", "s2 voice dwi-s2voice uid:1000 1×10"}
		equal(t, "deliveries", b.delivered(), want...)
		b.restart()
		equal(t, "deliveries", b.delivered(), want...)
		b.clock.Add(int64(time.Second))
		b.deliver(delivery("s2", "voice"))
		b.restart()
		equal(t, "deliveries", b.delivered(), "s2 voice dwi-s2voice uid:1000 2×20", want[0])
		all, err := b.Deliveries(t.Context())
		must(t, err)
		if took := all[0].Last.Sub(all[0].First); took < 2*time.Second || took > time.Minute {
			t.Errorf("from %s to %s", all[0].First, all[0].Last)
		}
	})
}

// A new delivery is in the database within a second or so, its repetitions within a
// minute, so a crash loses little and a repetition costs no write.
func TestANewDeliveryIsWrittenSoonAndItsRepetitionsLater(t *testing.T) {
	b := on(t, library.Options{})
	b.deliver(delivery("s1", "voice"))
	await(t, "the first is written", func() bool { return b.count(`SELECT count(*) FROM instruct_deliveries`) == 1 })
	for range 100 {
		b.deliver(delivery("s1", "voice"))
	}
	times := func() int64 { return b.count(`SELECT sum(times) FROM instruct_deliveries`) }
	then := b.told.Load()
	await(t, "the library looks again for what is due", func() bool { return b.told.Load() >= then+2 })
	if n := times(); n != 1 {
		t.Fatalf("after moments %d are written: a repetition costs a write", n)
	}
	b.clock.Add(int64(time.Minute))
	await(t, "the repetitions are written", func() bool { return times() == 101 })
}

func TestDeliveriesOlderThan30DaysAreForgotten(t *testing.T) {
	b := on(t, library.Options{})
	b.deliver(delivery("s1", "voice"))
	b.delivered()
	b.clock.Add(int64(29 * 24 * time.Hour))
	b.deliver(delivery("s2", "voice"))
	if n := len(b.delivered()); n != 2 {
		t.Errorf("%d deliveries", n)
	}
	b.clock.Add(int64(2 * 24 * time.Hour))
	if n := len(b.delivered()); n != 1 {
		t.Errorf("%d deliveries", n)
	}
	await(t, "its row is gone", func() bool { return b.count(`SELECT count(*) FROM instruct_deliveries`) == 1 })
}

// A delivery does not wait for a database that does not answer. The number of
// deliveries that wait to be written is bounded, and none of them is lost when the
// database answers again.
func TestADeliveryDoesNotWaitForTheDatabase(t *testing.T) {
	b := on(t, library.Options{}, func(l *library.Library) { l.Hold(500, 10*time.Millisecond) })
	b.deliver(delivery("s0", "voice"))
	b.delivered()
	await(t, "the old ones are forgotten", b.Pruned)
	in, release := make(chan struct{}), make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	defer free() // the database is closed only then
	stuck := make(chan error, 1)
	go func() {
		stuck <- b.db.Write(context.Background(), func(*store.Tx) error {
			close(in)
			<-release
			return nil
		})
	}()
	<-in
	// One batch goes to the writer and waits there; the others wait here.
	b.deliver(delivery("s0", "other"))
	await(t, "it went to the writer", func() bool { return b.Waiting() == 0 })
	began := time.Now()
	full := 0
	for i := range 1000 {
		err := b.Deliver(t.Context(), delivery(fmt.Sprint("s", i), "voice"))
		expect(t, err, library.ErrFull)
		if err != nil {
			full++
		}
	}
	b.deliver(delivery("s1", "voice")) // a repetition of one that waits is counted
	if took := time.Since(began); took > time.Second+overload.Late() {
		t.Errorf("1000 deliveries took %s", took)
	}
	if full != 500 {
		t.Errorf("%d were refused", full)
	}
	free()
	must(t, <-stuck)
	await(t, "all is written", func() bool { return b.count(`SELECT sum(times) FROM instruct_deliveries`) == 1+1+500+1 })
}

func TestOfTooManyDeliveriesTheOldestGo(t *testing.T) {
	few := func(l *library.Library) {
		l.Keep(100)
		l.Hold(1000, 10*time.Millisecond)
	}
	onBoth(t, library.Options{}, func(t *testing.T, b *bed) {
		rows := func() int64 { return b.count(`SELECT count(*) FROM instruct_deliveries WHERE installation = 'here'`) }
		b.exec(`INSERT INTO instruct_deliveries (installation, session, template, revision, ref, principal, bytes, times, first_at, last_at)
			VALUES ('there', 's', 't', 'r', 'dwi-there', 'p', 1, 1, 1, ?1)`, b.now().UnixMilli())
		b.deliver(delivery("old", "voice"))
		await(t, "the first is written", func() bool { return rows() == 1 })
		b.clock.Add(int64(time.Second))
		for i := range 150 {
			b.deliver(delivery(fmt.Sprint("s", i), "voice"))
		}
		if _, found, err := b.Delivered(t.Context(), "dwi-s149voice"); !found || err != nil {
			t.Errorf("the latest: %v, %v", found, err)
		}
		await(t, "the oldest went", func() bool { return rows() <= 100 })
		if n := rows(); n < 99 {
			t.Errorf("%d are left, want all that may be but a hundredth", n)
		}
		_, found, err := b.Delivered(t.Context(), "dwi-oldvoice")
		must(t, err)
		if found {
			t.Error("the oldest is there")
		}
		if n := b.count(`SELECT count(*) FROM instruct_deliveries WHERE installation = 'there'`); n != 1 {
			t.Error("the row of another installation went")
		}
	}, few)
}

func TestARefLeadsToItsDelivery(t *testing.T) {
	onBoth(t, library.Options{}, func(t *testing.T, b *bed) {
		b.deliver(delivery("s1", "voice"))
		b.deliver(delivery("s2", "voice"))
		b.deliver(delivery("s2", "voice"))
		d, found, err := b.Delivered(t.Context(), "dwi-s2voice")
		must(t, err)
		if !found || d.Session != "s2" || d.Count != 2 || d.Bytes != 20 {
			t.Errorf("%v: %+v", found, d)
		}
		if _, found, err := b.Delivered(t.Context(), "dwi-s3voice"); found || err != nil {
			t.Errorf("a ref that was never delivered: %v, %v", found, err)
		}
		b.clock.Add(int64(31 * 24 * time.Hour))
		if _, found, err := b.Delivered(t.Context(), "dwi-s2voice"); found || err != nil {
			t.Errorf("after 31 days: %v, %v", found, err)
		}
	})
}

func TestRecentDeliveriesAreTheLatest10000(t *testing.T) {
	b := on(t, library.Options{})
	b.exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10050)
		INSERT INTO instruct_deliveries (installation, session, template, revision, ref, principal, bytes, times, first_at, last_at)
		SELECT 'here', 's' || i, 't', 'r', 'dwi-' || i, 'p', 1, 1, ?1 + i, ?1 + i FROM n`, b.now().UnixMilli())
	recent, err := b.Recent(t.Context())
	must(t, err)
	all, err := b.Deliveries(t.Context())
	must(t, err)
	if len(recent) != 10_000 || len(all) != 10_050 || recent[0].Ref != "dwi-10050" {
		t.Errorf("%d of %d, the first %+v", len(recent), len(all), recent[0])
	}
}

func BenchmarkDeliver(b *testing.B) {
	db, err := store.Open(b.Context(), store.Options{Dir: b.TempDir(), Migrations: library.Migrations()})
	must(b, err)
	defer db.Close()
	l, err := library.Open(b.Context(), library.Options{DB: db, Key: make([]byte, 32), Entered: note})
	must(b, err)
	d := delivery("s1", "voice")
	b.ReportAllocs()
	for b.Loop() {
		must(b, l.Deliver(b.Context(), d))
	}
}
