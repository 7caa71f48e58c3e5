package approval_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

func byOther(args string) gate.Act {
	a := act(args)
	a.Who = principal.New("token:other", principal.Fact{Name: "token", Value: "other", Grade: principal.Verified})
	return a
}

// TestOneCallerLeavesRoomForOthers: however long the calls of one caller are, a long call of another
// caller is asked about after the first has no room left.
func TestOneCallerLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 40 << 10, 1 << 20, 3 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			o, long := open(t, time.Hour), strings.Repeat("x", size)
			var err error
			for n := 0; n < 200 && err == nil; n++ {
				_, err = o.call(t.Context(), act(fmt.Sprintf(`{"n":%d,"x":"%s"}`, n, long)), 0)
			}
			if !errors.Is(err, approval.ErrFull) {
				t.Errorf("one caller is not bounded: %v", err)
			}
			if a, err := o.call(t.Context(), byOther(`{"x":"`+long+`"}`), 0); err != nil || a.Pending == 0 {
				t.Errorf("the other caller: %+v, %v", a, err)
			}
		})
	}
}

// TestEqualCallsOfOneCallerAreBounded: calls that wait for one question count as calls, and give
// their places back when they end.
func TestEqualCallsOfOneCallerAreBounded(t *testing.T) {
	t.Parallel()
	o := open(t, time.Hour)
	var all sync.WaitGroup
	answers := make(chan error, 150)
	for range cap(answers) {
		all.Go(func() {
			_, err := o.call(t.Context(), act(`{"equal":1}`), time.Hour)
			answers <- err
		})
	}
	for range cap(answers) - 100 {
		if err := <-answers; !errors.Is(err, approval.ErrFull) {
			t.Fatal(err)
		}
	}
	for o.queue.Pending()[0].Waiting != 100 {
		time.Sleep(time.Millisecond)
	}
	if a, err := o.call(t.Context(), byOther(`{"equal":1}`), 0); err != nil || a.Pending != 2 {
		t.Errorf("another caller: %+v, %v", a, err)
	}
	if err := o.queue.Settle(principal.New(operator), 1, "", approval.Verdict{Why: "no"}); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	for range 100 {
		if _, err := o.call(t.Context(), act(`{"later":1}`), 0); err != nil {
			t.Fatalf("a place was not given back: %v", err)
		}
	}
}

// TestAnItemWithoutANumberHidesNoOther: items that have a number keep it while no further number can
// be stored.
func TestAnItemWithoutANumberHidesNoOther(t *testing.T) {
	t.Parallel()
	full, broken := errors.New("no space"), false
	q := approval.New(approval.Options{Give: func(uint64) error {
		if broken {
			return full
		}
		return nil
	}}, nil)
	if _, err := q.Number([]string{"a", "b"}); err != nil {
		t.Fatal(err)
	}
	broken = true
	got, err := q.Number([]string{"a", "c", "b", "d"})
	if fmt.Sprint(got) != "[1 0 2 0]" || !errors.Is(err, full) {
		t.Errorf("%v, %v", got, err)
	}
	broken = false
	if got, err = q.Number([]string{"a", "c", "b", "d"}); fmt.Sprint(got) != "[1 3 2 4]" || err != nil {
		t.Errorf("later: %v, %v", got, err)
	}
}
