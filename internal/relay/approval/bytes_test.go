package approval_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/principal"
)

// TestLongNamesFillTheQueueLikeLongArguments: callers choose names, such as the address of a
// resource, as well as arguments, and both count against the memory of the queue.
func TestLongNamesFillTheQueueLikeLongArguments(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3<<20)
	named := func(name string) gate.Act {
		a := act("{}")
		a.Name = name
		return a
	}
	for what, call := range map[string]func(n int) gate.Act{
		"arguments": func(n int) gate.Act { return act(fmt.Sprintf(`{"n":%d,"x":%q}`, n, long)) },
		"names":     func(n int) gate.Act { return named(fmt.Sprint("held", n, long)) },
	} {
		o := open(t, time.Hour)
		o.gate = gate.New(held(t, "held*"), o.log, gate.Limits{})
		n, err := 0, error(nil)
		for ; n < 20 && err == nil; n++ {
			one := call(n)
			one.Who = principal.New(fmt.Sprint("token:t", n), principal.Fact{Name: "token", Value: fmt.Sprint("t", n), Grade: principal.Verified}) // a caller has less room than all together
			_, err = o.call(t.Context(), one, 0)
		}
		if !errors.Is(err, approval.ErrFull) || n != 11 {
			t.Errorf("%s: after %d calls with 3 MiB: %v", what, n, err)
		}
	}
}
