//go:build packages

package packages

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Two units that conflict have an order. Without one systemd starts a unit while the other
// one still stops: it finds the state in use, and the end of the other one removes the
// runtime directory that both have.
func TestUnitsThatConflictHaveAnOrder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(moduleRoot(t), "packaging", "system")
	units, err := filepath.Glob(filepath.Join(dir, "*.service"))
	if err != nil || len(units) < 2 {
		t.Fatalf("units in %s: %v, %v", dir, units, err)
	}
	conflicts := 0
	for _, unit := range units {
		name := filepath.Base(unit)
		for _, other := range directives(t, unit, "Conflicts") {
			conflicts++
			ordered := directives(t, unit, "After", "Before")
			back := directives(t, filepath.Join(dir, other), "After", "Before")
			if !slices.Contains(ordered, other) && !slices.Contains(back, name) {
				t.Errorf("%s conflicts with %s, and neither names the other in After= or Before=", name, other)
			}
		}
	}
	if conflicts == 0 {
		t.Error("no unit conflicts with another one")
	}
}

// directives returns the values of the named directives of a unit file.
func directives(t *testing.T, unit string, names ...string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, values, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && slices.Contains(names, name) {
			all = append(all, strings.Fields(values)...)
		}
	}
	return all
}
