package approval_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/relay/approval"
)

// TestANumberIsGivenOnce: calls and items of other packages never get a number that another one
// had, in the same run or in an earlier one, also when a number could not be stored.
func TestANumberIsGivenOnce(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	full := errors.New("no space")
	var stored uint64
	var broken bool
	o := open(t, time.Hour)
	given := map[uint64]string{}
	give := func(n uint64, what string) {
		if was := given[n]; n == 0 || was != "" && was != what {
			t.Fatalf("seed %d: %s has number %d of %s", seed, what, n, was)
		}
		given[n] = what
	}
	run := func() *approval.Queue {
		return approval.New(approval.Options{Expire: time.Hour, Record: o.log.Append, Last: stored, Give: func(n uint64) error {
			if broken {
				return full
			}
			stored = n
			return nil
		}}, nil)
	}
	o.queue = run()
	for i := range 300 {
		broken = r.IntN(4) == 0
		switch r.IntN(5) {
		case 0:
			o.queue = run() // after a crash nothing was closed
		case 1, 2:
			a, err := o.call(t.Context(), act(fmt.Sprintf(`{"i":%d}`, i)), 0)
			if broken != errors.Is(err, full) {
				t.Fatalf("seed %d: broken %v, %v", seed, broken, err)
			}
			if err == nil {
				give(a.Pending, fmt.Sprint("call ", i))
			}
		default:
			keys := []string{fmt.Sprint("item ", i), fmt.Sprint("item ", i, " b")}
			all, err := o.queue.Number(keys)
			if broken != errors.Is(err, full) || err == nil && len(all) != len(keys) {
				t.Fatalf("seed %d: broken %v, %v, %v", seed, broken, all, err)
			}
			for k, n := range all {
				if broken && n == 0 { // it has none yet
					continue
				}
				give(n, keys[k])
			}
		}
	}
}
