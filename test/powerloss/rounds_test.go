package main

import "testing"

func TestVerdict(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answered, stored []string
		mustLose, ok     bool
	}{
		"all there":                         {[]string{"a", "b"}, []string{"b", "a"}, false, true},
		"one more than answered":            {[]string{"a"}, []string{"a", "b"}, false, true},
		"one lost":                          {[]string{"a", "b"}, []string{"a"}, false, false},
		"one twice":                         {[]string{"a"}, []string{"a", "a"}, false, false},
		"one twice that was never answered": {[]string{"a"}, []string{"a", "b", "b"}, false, false},
		"a control that lost":               {[]string{"a", "b"}, []string{"a"}, true, true},
		"a control that lost nothing":       {[]string{"a"}, []string{"a"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tally{answered: c.answered, stored: c.stored}.verdict(c.mustLose)
			if (err == nil) != c.ok {
				t.Errorf("verdict: %v", err)
			}
		})
	}
}
