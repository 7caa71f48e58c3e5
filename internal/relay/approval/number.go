package approval

// Number numbers items of other packages that the same commands decide, in the series of the
// calls and in the order of keys. A key keeps its number until a call of Number omits it, or
// the daemon ends.
func (q *Queue) Number(keys []string) []uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, out := make(map[string]uint64, len(keys)), make([]uint64, 0, len(keys))
	for _, key := range keys {
		n := q.elsewhere[key]
		if n == 0 {
			n = now[key]
		}
		if n == 0 {
			q.last++
			n = q.last
		}
		now[key] = n
		out = append(out, n)
	}
	q.elsewhere = now
	return out
}
