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
)

// TestTheClockGoesOnDuringASuspension shows that the clock of approvals has no monotonic
// reading, which stops while the machine is suspended.
func TestTheClockGoesOnDuringASuspension(t *testing.T) {
	t.Parallel()
	if now := New(Options{}, nil).o.Now().String(); strings.Contains(now, "m=") {
		t.Errorf("the clock reads %s", now)
	}
}

// TestAQuestionEndsByTheWallClock shows that a question cannot be answered after the time that
// was shown, even if its timer has not run: the timer stops while the machine is suspended.
func TestAQuestionEndsByTheWallClock(t *testing.T) {
	t.Parallel()
	log, err := audit.Open(t.TempDir(), audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	now := time.Now().Round(0)
	q := New(Options{Expire: time.Hour, Record: log.Append, Save: func([]Grant) error { return nil }, Now: func() time.Time { return now }}, nil)
	t.Cleanup(q.Close)
	g := gate.New(policy.New(1, map[string]policy.ServerRules{"s": {Tools: policy.List{Allow: []string{"*"}}, Held: []string{"*"}}}), log, gate.Limits{})
	_, err = g.Enter(gate.Act{Who: principal.New("uid:1"), Action: policy.ActionCall, Server: "s", Name: "held", Args: []byte("{}"), Holds: true})
	var held *gate.Held
	if !errors.As(err, &held) {
		t.Fatal(err)
	}
	a, err := q.Await(context.Background(), Call{Held: held, Act: held.Act, Args: []byte("{}")}, 0, func() bool { return false }, func(uint64) {})
	if err != nil || a.Pending == 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	now = now.Add(time.Hour - time.Second)
	if all := q.Pending(); len(all) != 1 {
		t.Errorf("before its end %d questions are open, want 1", len(all))
	}
	now = now.Add(time.Second)
	if all := q.Pending(); len(all) != 0 {
		t.Errorf("after its end %d questions are open, want none", len(all))
	}
	if err := q.Settle(principal.New("uid:1"), a.Pending, "", Verdict{Approve: true}); !errors.Is(err, ErrSettled) {
		t.Errorf("after its end it was approved: %v", err)
	}
	again, err := q.Await(context.Background(), Call{Held: held, Act: held.Act, Args: []byte("{}")}, 0, func() bool { return false }, func(uint64) {})
	if err != nil || again.Pending <= a.Pending || !again.Expires.After(now) {
		t.Fatalf("the same call afterwards: %+v, %v", again, err)
	}
	if err := q.Settle(principal.New("uid:1"), again.Pending, "", Verdict{Approve: true}); err != nil {
		t.Errorf("the new question cannot be approved: %v", err)
	}
}

// TestQuestionsThatAreOverMakeRoom shows that questions whose time is over do not count towards
// the bound of open questions, also before their timers have run.
func TestQuestionsThatAreOverMakeRoom(t *testing.T) {
	t.Parallel()
	log, err := audit.Open(t.TempDir(), audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	now := time.Now().Round(0)
	q := New(Options{Expire: time.Hour, Record: log.Append, Save: func([]Grant) error { return nil }, Now: func() time.Time { return now }}, nil)
	t.Cleanup(q.Close)
	g := gate.New(policy.New(1, map[string]policy.ServerRules{"s": {Tools: policy.List{Allow: []string{"*"}}, Held: []string{"*"}}}), log, gate.Limits{})
	ask := func(i int) error {
		args := fmt.Appendf(nil, `{"i":%d}`, i)
		_, err := g.Enter(gate.Act{Who: principal.New("uid:1"), Action: policy.ActionCall, Server: "s", Name: "held", Args: args, Holds: true})
		var held *gate.Held
		if !errors.As(err, &held) {
			t.Fatal(err)
		}
		_, err = q.Await(context.Background(), Call{Held: held, Act: held.Act, Args: args}, 0, func() bool { return false }, func(uint64) {})
		return err
	}
	n := 0
	for ; err == nil; n++ {
		if err = ask(n); n > 10*mostOfOne {
			t.Fatal("there is no bound")
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Hour)
	if err := ask(n); err != nil {
		t.Errorf("after the end of all %d questions: %v", n, err)
	}
}
