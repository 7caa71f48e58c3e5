package sample

import "testing"

func TestSample(t *testing.T) {
	if clip(3) != 3 || clip(9) != 8 {
		t.Error("clip")
	}
	if both([]int{1, 0, 2, 3}, []int{1, 1, 0, 9}) != 2 {
		t.Error("both")
	}
}
