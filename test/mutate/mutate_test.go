package main

import (
	"strings"
	"testing"
)

// TestMutantsOfAPackageAreKilledOrLive: measure reports one live and one unreached mutant of
// testdata/sample, and all others as killed.
func TestMutantsOfAPackageAreKilledOrLive(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	percent, err := measure("./testdata/sample", options{cpu: 20, short: true}, &out)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"LIVED CONDITIONALS_BOUNDARY at sample.go:9:7: < becomes <=",
		"UNREACHED INVERT_NEGATIVES at sample.go:25:36: - becomes +",
		"sample: 11 of 11 mutants, 9 killed, 1 lived, 1 unreached, 90.0 %",
	}
	if got := strings.Split(strings.TrimSpace(out.String()), "\n"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%.1f %%:\n%s", percent, out.String())
	}
}
