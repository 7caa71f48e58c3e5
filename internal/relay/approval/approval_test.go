package approval_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/test/doortest"
	"github.com/doorward/doorward/test/policytest"
)

// office is a queue with the gate that its approvals are for.
type office struct {
	t     *testing.T
	gate  *gate.Gate
	queue *approval.Queue
	log   *audit.Log
	saved atomic.Pointer[[]approval.Grant]
	ran   atomic.Int32
	cut   atomic.Bool // the connections of the callers are gone
}

const operator = "uid:1"

func held(t testing.TB, names ...string) *policy.Set {
	return policytest.New(t, 1, map[string]policy.ServerRules{"s": {Tools: policy.List{Allow: []string{"*"}}, Held: names}})
}

func open(t *testing.T, expire time.Duration) *office {
	t.Helper()
	log, err := audit.Open(t.TempDir(), audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := &office{t: t, log: log, gate: gate.New(held(t, "held"), log, gate.Limits{})}
	o.queue = approval.New(approval.Options{Expire: expire, Record: log.Append, Save: func(all []approval.Grant) error { o.saved.Store(&all); return nil }}, nil)
	t.Cleanup(func() {
		o.queue.Close()
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

func act(args string) gate.Act {
	return gate.Act{Who: principal.New(operator), Session: "x", Action: "tools/call", Server: "s", Name: "held", Args: []byte(args), Holds: true}
}

// call does what the relay does with an act: it runs it only with a pass.
func (o *office) call(ctx context.Context, a gate.Act, wait time.Duration) (approval.Answer, error) {
	for {
		pass, err := o.gate.Enter(a)
		var held *gate.Held
		if err == nil {
			o.ran.Add(1)
			pass.Leave("ok", 0)
			return approval.Answer{}, nil
		}
		if !errors.As(err, &held) {
			return approval.Answer{}, err
		}
		answer, err := o.queue.Await(ctx, approval.Call{Held: held, Act: a, Args: a.Args, Session: a.Session, Stale: func() bool { return !o.gate.InForce(held.Binding) }}, wait, o.cut.Load, func(uint64) {})
		if err != nil || answer.Approval == nil && !answer.Stale {
			return answer, err
		}
		a.Approval = answer.Approval
	}
}

func (o *office) approve(n uint64, life string) error {
	return o.queue.Settle(principal.New(operator), n, "", approval.Verdict{Approve: true, For: life})
}

// waitFor waits until a number of callers wait for one open question.
func (o *office) waitFor(callers int) approval.Question {
	o.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if all := o.queue.Pending(); len(all) == 1 && all[0].Waiting == callers {
			return all[0]
		}
	}
	o.t.Fatalf("%d callers do not wait: %+v", callers, o.queue.Pending())
	return approval.Question{}
}

// Equal calls that wait are one question, and one approval runs one of them.
func TestOneYesRunsOneCall(t *testing.T) {
	t.Parallel()
	o := open(t, time.Hour)
	const callers = 100
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range callers {
		all.Go(func() { _, _ = o.call(ctx, act(`{"a":1}`), time.Hour) })
	}
	for n := range 3 {
		q := o.waitFor(callers - n)
		var settled atomic.Int32
		var approvers sync.WaitGroup
		for range 2 { // two approvers at once
			approvers.Go(func() {
				if o.approve(q.N, "once") == nil {
					settled.Add(1)
				}
			})
		}
		approvers.Wait()
		if settled.Load() != 1 {
			t.Fatalf("%d approvers settled it", settled.Load())
		}
		left := o.waitFor(callers - n - 1)
		doortest.Until(t, 20*time.Second, "the approved call runs", func() bool { return o.ran.Load() > int32(n) })
		if left.N == q.N || o.ran.Load() != int32(n+1) {
			t.Fatalf("question %d, %d ran", left.N, o.ran.Load())
		}
	}
	cancel()
	all.Wait()
	if o.ran.Load() != 3 {
		t.Errorf("%d calls ran", o.ran.Load())
	}
}

// An approval runs nothing for a caller that has left. It waits for one that comes
// back.
func TestACallerThatLeftGetsNothingRun(t *testing.T) {
	t.Parallel()
	o := open(t, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := o.call(ctx, act(`{}`), time.Hour); done <- err }()
	q := o.waitFor(1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := o.approve(q.N, "once"); err != nil || o.ran.Load() != 0 {
		t.Fatalf("%v, %d ran", err, o.ran.Load())
	}
	for want := range 2 { // the second time it is asked about again
		if a, err := o.call(t.Context(), act(`{}`), time.Millisecond); err != nil || a.Pending != uint64(want*2) || o.ran.Load() != 1 {
			t.Fatalf("%+v, %v, %d ran", a, err, o.ran.Load())
		}
	}
}

// An approval runs nothing for a caller that still waits but whose connection is
// gone. It waits for one that comes back.
func TestACallerThatIsCutOffGetsNothingRun(t *testing.T) {
	t.Parallel()
	o := open(t, time.Hour)
	done := make(chan approval.Answer, 1)
	go func() { a, _ := o.call(t.Context(), act(`{}`), time.Hour); done <- a }()
	q := o.waitFor(1)
	o.cut.Store(true)
	if err := o.approve(q.N, "once"); err != nil {
		t.Fatal(err)
	}
	if a := <-done; a.Pending != q.N || o.ran.Load() != 0 {
		t.Fatalf("%+v, %d ran", a, o.ran.Load())
	}
	o.cut.Store(false)
	if _, err := o.call(t.Context(), act(`{}`), time.Hour); err != nil || o.ran.Load() != 1 {
		t.Errorf("%v, %d ran", err, o.ran.Load())
	}
}

// A grant that cannot be saved does not hold, and is recorded as revoked.
func TestAGrantThatIsNotSavedIsRecordedAsRevoked(t *testing.T) {
	t.Parallel()
	fails := errors.New("no space")
	var mu sync.Mutex
	var acts []string
	o := open(t, time.Hour)
	o.queue = approval.New(approval.Options{Expire: time.Hour, Save: func([]approval.Grant) error { return fails }, Record: func(r *audit.Record) (uint64, error) {
		mu.Lock()
		defer mu.Unlock()
		acts = append(acts, r.Action)
		return 1, nil
	}}, nil)
	if a, err := o.call(t.Context(), act(`{}`), 0); err != nil || a.Pending != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	if err := o.approve(1, "always"); !errors.Is(err, fails) || len(o.queue.Grants()) != 0 {
		t.Errorf("approved: %v, %v", err, o.queue.Grants())
	}
	if want := []string{"approval.asked", "approval.granted", "approval.revoked"}; !slices.Equal(acts, want) {
		t.Errorf("recorded %v, want %v", acts, want)
	}
	if a, err := o.call(t.Context(), act(`{}`), 0); err != nil || a.Pending != 1 || o.ran.Load() != 0 {
		t.Errorf("%+v, %v, %d ran", a, err, o.ran.Load())
	}
}

// An approval is for the very call. A call with other arguments, another definition,
// session, principal or tool, or under another policy, is asked about again.
func TestAnApprovalIsBoundToTheCall(t *testing.T) {
	t.Parallel()
	changes := map[string]func(*office, *gate.Act){
		"arguments":  func(_ *office, a *gate.Act) { a.Args = []byte(`{"a":2}`) },
		"definition": func(_ *office, a *gate.Act) { a.Definition = "other" },
		"session":    func(_ *office, a *gate.Act) { a.Session = "y" },
		"principal": func(_ *office, a *gate.Act) {
			a.Who = principal.New("uid:1", principal.Fact{Name: principal.FactInstance, Value: "2", Grade: principal.Attested})
		},
		"tool":   func(o *office, a *gate.Act) { a.Name = "held2" },
		"policy": func(o *office, _ *gate.Act) { o.gate.SetPolicy(held(o.t, "held", "held2")) },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := open(t, time.Hour)
			o.gate.SetPolicy(held(t, "held*"))
			a := act(`{"a":1}`)
			if got, err := o.call(t.Context(), a, time.Millisecond); err != nil || got.Pending != 1 {
				t.Fatalf("%+v, %v", got, err)
			}
			if err := o.approve(1, "once"); err != nil {
				t.Fatal(err)
			}
			change(o, &a)
			if got, err := o.call(t.Context(), a, time.Millisecond); err != nil || got.Pending != 2 || o.ran.Load() != 0 {
				t.Errorf("%+v, %v, %d ran", got, err, o.ran.Load())
			}
		})
	}
}

// A call that is not decided in time is denied, and cannot be approved afterwards.
func TestSilenceIsADenial(t *testing.T) {
	t.Parallel()
	o := open(t, 200*time.Millisecond)
	got, err := o.call(t.Context(), act(`{}`), time.Hour)
	if err != nil || !got.Denied || got.Why == "" || o.ran.Load() != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := o.approve(1, "once"); !errors.Is(err, approval.ErrSettled) {
		t.Errorf("approved after its end: %v", err)
	}
}

// Ten thousand different calls do not fill memory: those above the bound are refused.
func TestTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	o := open(t, time.Hour)
	full := 0
	for i := range 10_000 {
		a, err := o.call(t.Context(), act(fmt.Sprintf(`{"i":%d}`, i)), 0)
		switch {
		case errors.Is(err, approval.ErrFull):
			full++
		case err != nil || a.Pending == 0:
			t.Fatalf("%+v, %v", a, err)
		}
	}
	if open := len(o.queue.Pending()); open != 100 || full != 9_900 {
		t.Errorf("%d open, %d refused", open, full)
	}
}

// A grant lets calls of the tool through until the definition changes. A grant for a
// session does not hold in another session, and is not saved.
func TestGrants(t *testing.T) {
	t.Parallel()
	for _, life := range []string{approval.Session, approval.Hour, approval.Always} {
		t.Run(life, func(t *testing.T) {
			t.Parallel()
			o := open(t, time.Hour)
			ask := func(a gate.Act) uint64 {
				t.Helper()
				got, err := o.call(t.Context(), a, time.Millisecond)
				if err != nil {
					t.Fatal(err)
				}
				return got.Pending
			}
			ask(act(`{}`))
			if err := o.approve(1, life); err != nil {
				t.Fatal(err)
			}
			for i := range 5 {
				if n := ask(act(fmt.Sprintf(`{"i":%d}`, i))); n != 0 {
					t.Fatalf("it is asked about as %d", n)
				}
			}
			elsewhere := act(`{}`)
			elsewhere.Session = "y"
			if asked := ask(elsewhere) != 0; asked != (life == approval.Session) {
				t.Errorf("in another session it is asked about: %v", asked)
			}
			if kept := len(*o.saved.Load()); (kept == 1) != (life != approval.Session) {
				t.Errorf("%d are kept", kept)
			}
			changed := act(`{"i":1}`)
			changed.Definition = "another"
			if ask(changed) == 0 || len(o.queue.Grants()) != 0 {
				t.Errorf("with another definition it goes on: %+v", o.queue.Grants())
			}
		})
	}
}

// Without the record nothing is asked, and nothing is approved.
func TestWithoutARecordNothingHappens(t *testing.T) {
	t.Parallel()
	o := open(t, time.Hour)
	fails := errors.New("no record")
	broken := false
	o.queue = approval.New(approval.Options{Expire: time.Hour, Save: func([]approval.Grant) error { return nil }, Record: func(*audit.Record) (uint64, error) {
		if broken {
			return 0, fails
		}
		return 1, nil
	}}, nil)
	broken = true
	if _, err := o.call(t.Context(), act(`{}`), 0); !errors.Is(err, fails) || len(o.queue.Pending()) != 0 {
		t.Errorf("asked: %v", err)
	}
	broken = false
	if _, err := o.call(t.Context(), act(`{}`), 0); err != nil {
		t.Fatal(err)
	}
	broken = true
	if err := o.approve(1, "once"); !errors.Is(err, fails) {
		t.Errorf("approved: %v", err)
	}
	broken = false
	if a, err := o.call(t.Context(), act(`{}`), 0); err != nil || a.Pending != 1 || o.ran.Load() != 0 {
		t.Errorf("%+v, %v, %d ran", a, err, o.ran.Load())
	}
}
