// Package sample has one mutant that lives and one that no test reaches.
package sample

const size = 2 * 4

// clip is n, at most size.
func clip(n int) int {
	// At size both branches give the same, so the edge is equivalent.
	if n < size {
		return n
	}
	return size
}

// both counts the pairs of which both are positive.
func both(a, b []int) (n int) {
	for i := range a {
		if a[i] > 0 && b[i]+1 > 1 {
			n++
		}
	}
	return n
}

func unreached(n int) int { return -n }
