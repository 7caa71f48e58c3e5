package main

import (
	"testing"

	"github.com/doorward/doorward/internal/daemon/config"
)

// TestTheStatusNamesTheProblemThatPreventsAReload: a problem that refuses a single server does
// not prevent a reload, and neither does a warning.
func TestTheStatusNamesTheProblemThatPreventsAReload(t *testing.T) {
	t.Parallel()
	got := firstProblem([]config.Problem{
		{File: "f", Line: 1, Problem: "a warning", Warning: true},
		{File: "f", Line: 2, Problem: "a refused server", Server: "s"},
		{File: "f", Line: 3, Problem: "the cause"},
		{File: "f", Line: 4, Problem: "another one"},
	})
	if want := "f:3: the cause"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
