package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// skips maps the tests that may be skipped, each as "package test", to whether it was skipped.
type skips map[string]bool

// cutSkips removes `-skips FILE` from the front of the arguments and reads the file.
func cutSkips(args []string) (skips, []string, error) {
	if len(args) < 2 || args[0] != "-skips" {
		return nil, args, nil
	}
	text, err := os.ReadFile(args[1])
	if err != nil {
		return nil, nil, fmt.Errorf("reading the list of skips: %w", err)
	}
	listed, err := parseSkips(string(text))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", args[1], err)
	}
	return listed, args[2:], nil
}

// parseSkips reads lines of the form `package test # reason`. A line that begins
// with # is a comment.
func parseSkips(text string) (skips, error) {
	listed := make(skips)
	for line := range strings.Lines(text) {
		test, reason, _ := strings.Cut(line, "#")
		if test = strings.TrimSpace(test); test == "" {
			continue
		}
		if len(strings.Fields(test)) != 2 || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("%q is not of the form `package test # reason`", strings.TrimSpace(line))
		}
		listed[strings.Join(strings.Fields(test), " ")] = false
	}
	return listed, nil
}

// take notes a skipped test, and returns its text in the report.
func (s skips) take(test string) string {
	if _, ok := s[test]; !ok {
		return ""
	}
	s[test] = true
	return " as listed"
}

// of returns the listed tests of the given packages, because a run need not contain all of them.
func (s skips) of(packages map[string]bool) skips {
	out := maps.Clone(s)
	maps.DeleteFunc(out, func(test string, _ bool) bool {
		name, _, _ := strings.Cut(test, " ")
		return !packages[name]
	})
	return out
}

// unexpected reports whether a skipped test is not listed, or a listed test was not skipped.
func (s skips) unexpected(total int) bool {
	for _, test := range slices.Sorted(maps.Keys(s)) {
		if !s[test] {
			fmt.Println("listed as skipped, and was not:", test)
		} else {
			total--
		}
	}
	if total > 0 {
		fmt.Println("a skipped test that is not listed counts as missing where CI is set")
	}
	return total > 0 || slices.Contains(slices.Collect(maps.Values(s)), false)
}
