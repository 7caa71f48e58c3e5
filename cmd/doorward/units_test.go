package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheUnitsDoNotRepeatAMistake: a unit that starts the daemon again after a failure does not
// after wrong usage or with a configuration that cannot be used.
func TestTheUnitsDoNotRepeatAMistake(t *testing.T) {
	units, err := filepath.Glob("../../packaging/*/*.service")
	if err != nil || len(units) < 3 {
		t.Fatalf("units %v: %v", units, err)
	}
	want := fmt.Sprintf("\nRestartPreventExitStatus=%d %d\n", exitUsage, exitConfig)
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s has no line %q", unit, strings.TrimSpace(want))
		}
	}
}
