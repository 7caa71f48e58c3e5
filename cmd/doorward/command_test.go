package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// namesOf returns the names of the commands below c, sorted.
func namesOf(c *cobra.Command) []string {
	var names []string
	for _, below := range c.Commands() {
		names = append(names, below.Name())
	}
	slices.Sort(names)
	return names
}

// leaves returns the commands below c that have no commands below them.
func leaves(c *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, below := range c.Commands() {
		if below.HasSubCommands() {
			all = append(all, leaves(below)...)
		} else {
			all = append(all, below)
		}
	}
	return all
}

func TestEveryCommandHasHelpAndAnExample(t *testing.T) {
	t.Parallel()
	for _, c := range leaves(newRoot()) {
		if c.Short == "" || !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s: help %q, example %q", c.CommandPath(), c.Short, c.Example)
		}
		text, json := usageText(c), !slices.Contains([]string{"connect", "man", "serve"}, c.Name()) && c.Parent().Name() != "completion"
		if !strings.Contains(text, "usage: "+c.CommandPath()) || strings.Contains(text, "--json") != json {
			t.Errorf("%s: %s", c.CommandPath(), text)
		}
	}
}

func TestLongFlagsTakeOneDashOrTwo(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"status -json -wait 10s":             "status --json --wait 10s",
		"status --json":                      "status --json",
		"status -wait=10s":                   "status --wait=10s",
		"audit tail -n 5 -follow":            "audit tail -n 5 --follow",
		"agent send x --subject -json":       "agent send x --subject -json",
		"agent send x -- -json":              "agent send x -- -json",
		"call s t -args {} -no-such a=-json": "call s t --args {} -no-such a=-json",
	} {
		got := doubleDashed(newRoot(), strings.Fields(given))
		if diff := cmp.Diff(strings.Fields(want), got); diff != "" {
			t.Errorf("%s: %s", given, diff)
		}
	}
}

func TestAMistypedCommandGetsASuggestion(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ given, want string }{
		{"statsu", `wrong usage: unknown command "statsu"; did you mean status?`},
		{"audit verfy", `wrong usage: unknown command "verfy"; did you mean verify?`},
		{"xxxxxxxxxx", `wrong usage: unknown command "xxxxxxxxxx"`},
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(tc.given))
		if _, err := root.ExecuteContextC(t.Context()); err == nil || err.Error() != tc.want {
			t.Errorf("%s: %v", tc.given, err)
		}
	}
}
