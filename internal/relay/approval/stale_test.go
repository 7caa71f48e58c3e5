package approval_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// program is a witness that a test ends, and that counts who keeps it.
type program struct {
	ended atomic.Bool
	kept  atomic.Int32
}

func (p *program) Holds() bool { return !p.ended.Load() && p.kept.Load() > 0 }
func (p *program) Retain()     { p.kept.Add(1) }
func (p *program) Release()    { p.kept.Add(-1) }

// TestAQuestionThatCannotRunEnds: a question whose act no approval lets through any more, or whose
// caller cannot come back, is not among those that wait, is not approved, is on record as expired,
// and gives its place and its witness back. That holds for open questions and for decided ones whose
// caller has not come back.
func TestAQuestionThatCannotRunEnds(t *testing.T) {
	t.Parallel()
	for _, decided := range []string{"open", "approved", "denied"} {
		for _, why := range []string{"policy", "stale", "gone", "program"} {
			t.Run(decided+" "+why, func(t *testing.T) {
				t.Parallel()
				o, who := open(t, time.Hour), &program{}
				var stale, gone atomic.Bool
				a := act(`{}`)
				a.Who = principal.New(operator).WithWitness(who)
				ask := func(args string) (uint64, error) {
					a.Args = []byte(args)
					_, err := o.gate.Enter(a)
					held, is := errors.AsType[*gate.Held](err)
					if !is {
						t.Fatal(err)
					}
					call := approval.Call{Held: held, Act: a, Args: a.Args, Gone: gone.Load, Stale: func() bool { return stale.Load() || !o.gate.InForce(held.Binding) }}
					answer, err := o.queue.Await(t.Context(), call, 0, o.cut.Load, func(uint64) {})
					return answer.Pending, err
				}
				for n := range 100 {
					if _, err := ask(fmt.Sprint(n)); err != nil {
						t.Fatal(err)
					}
				}
				for _, q := range o.queue.Pending() {
					var err error
					switch decided {
					case "approved":
						err = o.approve(q.N, approval.Once)
					case "denied":
						err = o.queue.Settle(principal.New(operator), q.N, "", approval.Verdict{})
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				switch why {
				case "policy":
					o.gate.SetPolicy(held(t, "held"))
				case "stale":
					stale.Store(true)
				case "gone":
					gone.Store(true)
				case "program":
					who.ended.Store(true)
				}
				if err := o.approve(1, approval.Once); !errors.Is(err, approval.ErrSettled) {
					t.Errorf("it was approved: %v", err)
				}
				if all := o.queue.Pending(); len(all) > 0 || who.kept.Load() != 0 {
					t.Errorf("%d wait, %d keep the program", len(all), who.kept.Load())
				}
				stale.Store(false)
				if n, err := ask("another"); err != nil || n != 101 {
					t.Errorf("the next one is %d: %v", n, err)
				}
				expired := 0
				for line, err := range auditlog.Backwards(t.Context(), o.log.Dir()) {
					if err != nil {
						t.Fatal(err)
					}
					if strings.Contains(string(line), `"approval.expired"`) {
						expired++
					}
				}
				if want := map[string]int{"open": 100}[decided]; expired != want {
					t.Errorf("%d were recorded as expired, want %d", expired, want)
				}
			})
		}
	}
}

// TestCallsThatWaitAreDecidedAgain: when the policy changes, each call that waits is decided under
// the new one: it is asked about again under another number, runs, or is denied.
func TestCallsThatWaitAreDecidedAgain(t *testing.T) {
	t.Parallel()
	o := open(t, time.Hour)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() { _, _ = o.call(t.Context(), act(`{}`), time.Hour) })
	}
	first := o.waitFor(3)
	o.gate.SetPolicy(held(t, "held"))
	o.queue.Review()
	if next := o.waitFor(3); next.N <= first.N {
		t.Errorf("the number of %d was given again: %d", first.N, next.N)
	}
	o.gate.SetPolicy(held(t, "other"))
	o.queue.Review()
	all.Wait()
	if n := o.ran.Load(); n != 3 || len(o.queue.Pending()) != 0 {
		t.Errorf("%d ran, %d wait", n, len(o.queue.Pending()))
	}
}

// TestALongQuestionLeavesRoomForOthers: whatever a caller's only question holds, another caller can
// still be asked about with as much as a caller may have.
func TestALongQuestionLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	for _, size := range []int{4 << 20, 5 << 20, 15 << 20, 20 << 20, 31 << 20} {
		o := open(t, time.Hour)
		_, err := o.call(t.Context(), act(`{"x":"`+strings.Repeat("x", size)+`"}`), 0)
		if refused := size > 16<<20; refused != errors.Is(err, approval.ErrFull) {
			t.Errorf("%d: %v", size, err)
		}
		if a, err := o.call(t.Context(), byOther(`{"x":"`+strings.Repeat("y", 4<<20-20)+`"}`), 0); err != nil || a.Pending == 0 {
			t.Errorf("beside %d: %+v, %v", size, a, err)
		}
	}
}
