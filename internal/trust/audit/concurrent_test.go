package audit_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/test/doortest"
)

func TestConcurrentAppends(t *testing.T) {
	t.Parallel()
	for _, always := range []bool{false, true} {
		t.Run(fmt.Sprintf("always=%v", always), func(t *testing.T) {
			t.Parallel()
			dir, key := t.TempDir(), newKey(t)
			l := open(t, dir, audit.Options{Always: always, SegmentBytes: 64 << 10, Key: key})
			const workers, each = 16, 100
			var mu sync.Mutex
			got := map[uint64]string{}
			var wg sync.WaitGroup
			for w := range workers {
				wg.Go(func() {
					last := uint64(0)
					for i := range each {
						what := fmt.Sprintf("%d/%d", w, i)
						seq, err := l.Append(decision(what))
						if err != nil || seq <= last {
							t.Errorf("append: %d after %d, %v", seq, last, err)
							return
						}
						last = seq
						l.Later(&audit.Record{Kind: audit.Outcome, Source: "gate", Resource: what, Ref: seq, Result: "ok"})
						_ = l.State()
						mu.Lock()
						got[seq] = what
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			mustClose(t, l)
			mustVerify(t, dir, key, 2*workers*each+2)
			es := entries(t, dir)
			outcomes := 0
			for _, e := range es {
				if e.Kind == audit.Outcome {
					outcomes++
					if e.Ref >= e.Seq || es[e.Ref-1].Resource != e.Resource {
						t.Fatalf("outcome %+v does not belong to record %+v", e, es[e.Ref-1])
					}
				}
			}
			for seq, what := range got {
				if es[seq-1].Resource != what {
					t.Fatalf("record %d is about %q, want %q", seq, es[seq-1].Resource, what)
				}
			}
			if len(got) != workers*each || outcomes != workers*each {
				t.Errorf("%d decisions and %d outcomes", len(got), outcomes)
			}
		})
	}
}

func TestCloseEndsAppendsThatWait(t *testing.T) {
	t.Parallel()
	for range 20 {
		dir, key := t.TempDir(), newKey(t)
		l := open(t, dir, audit.Options{Key: key})
		var wg sync.WaitGroup
		var mu sync.Mutex
		done := 0
		for range 8 {
			wg.Go(func() {
				for {
					l.Later(decision("later"))
					if _, err := l.Append(decision("a/b")); err != nil {
						return
					}
					mu.Lock()
					done++
					mu.Unlock()
				}
			})
		}
		doortest.Until(t, 30*time.Second, "some records", func() bool { mu.Lock(); defer mu.Unlock(); return done > 50 })
		mustClose(t, l)
		wg.Wait()
		es := entries(t, dir)
		if es[len(es)-1].Action != "audit.stop" {
			t.Fatalf("the last record is %+v", es[len(es)-1])
		}
		mustVerify(t, dir, key, uint64(len(es)))
	}
}
