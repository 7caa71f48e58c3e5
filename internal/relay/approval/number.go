package approval

import "fmt"

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
// the daemon ends.
func (q *Queue) Number(keys []string) ([]uint64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, out, last := make(map[string]uint64, len(keys)), make([]uint64, 0, len(keys)), q.last
	for _, key := range keys {
		n := q.elsewhere[key]
		if n == 0 {
			n = now[key]
		}
		if n == 0 {
			last++
			n = last
		}
		now[key] = n
		out = append(out, n)
	}
	if last > q.last {
		if err := q.give(last); err != nil {
			return nil, err
		}
	}
	q.elsewhere, q.last = now, last
	return out, nil
}
