package store

import "testing"

func TestACacheHasABound(t *testing.T) {
	t.Parallel()
	var c cache[int]
	dropped := make(map[int]int)
	drop := func(s int) { dropped[s]++ }
	for i := range 3 * cached {
		c.put(string(rune(0x4e00+i)), i, drop)
		if s, ok := c.get(string(rune(0x4e00 + i))); !ok || s != i {
			t.Fatalf("%d was not kept", i)
		}
	}
	if len(c.m) != cached || len(dropped) != 2*cached {
		t.Errorf("%d are kept, %d were dropped", len(c.m), len(dropped))
	}
	c.clear(drop)
	for i := range 3 * cached {
		if dropped[i] != 1 {
			t.Errorf("%d was dropped %d times", i, dropped[i])
		}
	}
}
