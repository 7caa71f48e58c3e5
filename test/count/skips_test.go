package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSkips: a run is as expected if and only if exactly the listed tests were skipped.
func TestSkips(t *testing.T) {
	const list = "# why\n\nexample.com/a TestOne  # needs root\nexample.com/a TestTwo/part # needs root\n"
	for _, c := range []struct {
		name       string
		skipped    []string
		unexpected bool
	}{
		{"all of them", []string{"example.com/a TestOne", "example.com/a TestTwo/part"}, false},
		{"one was not skipped", []string{"example.com/a TestOne"}, true},
		{"one more was skipped", []string{"example.com/a TestOne", "example.com/a TestTwo/part", "example.com/b TestOne"}, true},
		{"another one was skipped", []string{"example.com/a TestOne", "example.com/b TestOne"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := parseSkips(list)
			if err != nil {
				t.Fatal(err)
			}
			for _, test := range c.skipped {
				s.take(test)
			}
			if got := s.unexpected(len(c.skipped)); got != c.unexpected {
				t.Errorf("unexpected: %v", got)
			}
		})
	}
}

// A listed test must be skipped only if its package ran.
func TestSkipsOfPackagesThatRan(t *testing.T) {
	s, err := parseSkips("example.com/a TestOne # needs root\nexample.com/b TestTwo # needs root\n")
	if err != nil {
		t.Fatal(err)
	}
	s.take("example.com/a TestOne")
	for packages, want := range map[string]bool{"a": false, "b": true, "ab": true, "": true} {
		ran := make(map[string]bool)
		for _, p := range packages {
			ran["example.com/"+string(p)] = true
		}
		if got := s.of(ran).unexpected(1); got != want {
			t.Errorf("packages %q ran: unexpected %v", packages, got)
		}
	}
}

// TestNoSkipsListed: without a list any skip is unexpected.
func TestNoSkipsListed(t *testing.T) {
	var s skips
	s.take("example.com/a TestOne")
	if !s.unexpected(1) || s.unexpected(0) {
		t.Error("without a list a skip must be unexpected, and no skip must not")
	}
}

func TestSkipWithoutReason(t *testing.T) {
	for _, line := range []string{"example.com/a TestOne", "example.com/a TestOne #", "TestOne # needs root"} {
		if s, err := parseSkips(line); err == nil {
			t.Errorf("%q: %s", line, cmp.Diff(skips(nil), s))
		}
	}
}

func TestCutSkips(t *testing.T) {
	s, rest, err := cutSkips([]string{"-race", "./..."})
	if err != nil || s != nil {
		t.Errorf("%v, %v", s, err)
	}
	if diff := cmp.Diff([]string{"-race", "./..."}, rest); diff != "" {
		t.Error(diff)
	}
	if _, _, err := cutSkips([]string{"-skips", t.TempDir() + "/none", "./..."}); err == nil {
		t.Error("a list that is not there was read")
	}
}
