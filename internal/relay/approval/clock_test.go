package approval

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/test/policytest"
)

// TestTheClockGoesOnDuringASuspension shows that the clock of approvals has no monotonic
// reading, which stops while the machine is suspended.
func TestTheClockGoesOnDuringASuspension(t *testing.T) {
	t.Parallel()
	if now := New(Options{}, nil).o.Now().String(); strings.Contains(now, "m=") {
		t.Errorf("the clock reads %s", now)
	}
}

// desk is a queue with a clock of its own, and the gate that holds every call.
type desk struct {
	*Queue
	t    *testing.T
	gate *gate.Gate
	now  time.Time
}

func openDesk(t *testing.T) *desk {
	t.Helper()
	log, err := audit.Open(t.TempDir(), audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	d := &desk{t: t, now: time.Now().Round(0)}
	d.Queue = New(Options{Expire: time.Hour, Record: log.Append, Save: func([]Grant) error { return nil }, Now: func() time.Time { return d.now }}, nil)
	t.Cleanup(d.Close)
	d.gate = gate.New(policytest.New(t, 1, map[string]policy.ServerRules{"s": {Tools: policy.List{Allow: []string{"*"}}, Held: []string{"*"}}}), log, gate.Limits{})
	return d
}

// ask makes a call with these arguments, which is held, and asks the operator without waiting.
func (d *desk) ask(args string) (Answer, error) {
	d.t.Helper()
	_, err := d.gate.Enter(gate.Act{Who: principal.New("uid:1"), Action: policy.ActionCall, Server: "s", Name: "held", Args: []byte(args), Holds: true})
	var held *gate.Held
	if !errors.As(err, &held) {
		d.t.Fatal(err)
	}
	return d.Await(context.Background(), Call{Held: held, Act: held.Act, Args: []byte(args)}, 0, func() bool { return false }, func(uint64) {})
}

// TestAQuestionEndsByTheWallClock shows that a question cannot be answered after the time that
// was shown, even if its timer has not run: the timer stops while the machine is suspended.
func TestAQuestionEndsByTheWallClock(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	a, err := d.ask("{}")
	if err != nil || a.Pending == 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	d.now = d.now.Add(time.Hour - time.Second)
	if all := d.Pending(); len(all) != 1 {
		t.Errorf("before its end %d questions are open, want 1", len(all))
	}
	d.now = d.now.Add(time.Second)
	if all := d.Pending(); len(all) != 0 {
		t.Errorf("after its end %d questions are open, want none", len(all))
	}
	if err := d.Settle(principal.New("uid:1"), a.Pending, "", Verdict{Approve: true}); !errors.Is(err, ErrSettled) {
		t.Errorf("after its end it was approved: %v", err)
	}
	again, err := d.ask("{}")
	if err != nil || again.Pending <= a.Pending || !again.Expires.After(d.now) {
		t.Fatalf("the same call afterwards: %+v, %v", again, err)
	}
	if err := d.Settle(principal.New("uid:1"), again.Pending, "", Verdict{Approve: true}); err != nil {
		t.Errorf("the new question cannot be approved: %v", err)
	}
}

// TestQuestionsThatAreOverMakeRoom shows that questions whose time is over do not count towards
// the bound of open questions, also before their timers have run.
func TestQuestionsThatAreOverMakeRoom(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	var err error
	n := 0
	for ; err == nil; n++ {
		if _, err = d.ask(fmt.Sprintf(`{"i":%d}`, n)); n > 10*mostOfOne {
			t.Fatal("there is no bound")
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	d.now = d.now.Add(2 * time.Hour)
	if _, err := d.ask(fmt.Sprintf(`{"i":%d}`, n)); err != nil {
		t.Errorf("after the end of all %d questions: %v", n, err)
	}
}
