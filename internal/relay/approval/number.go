package approval

import (
	"cmp"
	"fmt"
	"maps"
)

// give stores that the numbers up to n are given. The caller holds mu.
func (q *Queue) give(n uint64) error {
	if q.o.Give == nil {
		return nil
	}
	if err := q.o.Give(n); err != nil {
		return fmt.Errorf("storing the number of a held call: %w", err)
	}
	return nil
}

// Number numbers items of other packages that the same commands decide, in the series of the
// calls and in the order of keys. A key keeps its number until a call of Number omits it, or
// the daemon ends. After an error the keys without a number get 0.
func (q *Queue) Number(keys []string) ([]uint64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, last := make(map[string]uint64, len(keys)), q.last
	for _, key := range keys {
		if now[key] = cmp.Or(now[key], q.elsewhere[key]); now[key] == 0 {
			last++
			now[key] = last
		}
	}
	var err error
	if last > q.last {
		if err = q.give(last); err != nil {
			maps.DeleteFunc(now, func(_ string, n uint64) bool { return n > q.last })
			last = q.last
		}
	}
	q.elsewhere, q.last = now, last
	out := make([]uint64, 0, len(keys))
	for _, key := range keys {
		out = append(out, now[key])
	}
	return out, err
}
