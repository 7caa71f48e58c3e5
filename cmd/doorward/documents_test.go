package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// written is a command of doorward in a document: in backquotes, or a line of a block of
// code, without its comment.
var written = regexp.MustCompile("(?m)`((?:sops .*\\| )?doorward [^`\n]+)`|^(?: {4}|\\$ )?((?:sudo |bin/)?doorward [a-z][^#\n]*)")

// commandsOf returns the commands of doorward in a text, each as its words, with a word
// that was in quotation marks as one, without `doorward`, redirections and what the shell adds.
func commandsOf(text string) [][]string {
	var all [][]string
	for _, m := range written.FindAllStringSubmatch(text, -1) {
		_, line, _ := strings.Cut(m[1]+m[2], "doorward ")
		line = regexp.MustCompile(`  +.*|[|<>&;].*|[\[\]]`).ReplaceAllString(line, "")
		words := regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`).FindAllString(line, -1)
		all = append(all, slices.DeleteFunc(words, func(w string) bool { return strings.Trim(w, "…()") == "" }))
	}
	return all
}

// unknownIn returns what a command line names that doorward does not have; empty: nothing.
func unknownIn(words []string) string {
	c, rest, err := newRoot().Find(doubleDashed(newRoot(), words))
	if err != nil {
		return err.Error()
	}
	if c.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return fmt.Sprintf("%s has no command %s", c.CommandPath(), rest[0])
	}
	c.InitDefaultHelpFlag()
	for _, word := range rest {
		name, _, _ := strings.Cut(word, "=")
		if name == "--" {
			return ""
		}
		if long := strings.TrimPrefix(name, "--"); long != name && c.Flags().Lookup(long) == nil ||
			long == name && len(name) == 2 && name[0] == '-' && c.Flags().ShorthandLookup(name[1:]) == nil {
			return fmt.Sprintf("%s has no flag %s", c.CommandPath(), name)
		}
	}
	return ""
}

// TestDocumentsNameCommandsAndFlagsThatExist: each command in a document, and each flag of
// it, is one of doorward.
func TestDocumentsNameCommandsAndFlagsThatExist(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md", "../../examples/quickstart.yaml") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, words := range commandsOf(string(text)) {
			named++
			if what := unknownIn(words); what != "" {
				t.Errorf("%s: doorward %s: %s", page, strings.Join(words, " "), what)
			}
		}
	}
	if named < 200 {
		t.Errorf("%d commands, want at least 200: does the pattern of this test still match?", named)
	}
}

// TestWhatADocumentMayNotName: the test above finds these.
func TestWhatADocumentMayNotName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"`doorward audit verfy`":                   "doorward audit has no command verfy",
		"    doorward pending --folow   decide":    "doorward pending has no flag --folow",
		"doorward log -x      # a comment":         "doorward log has no flag -x",
		"$ doorward nothing":                       "doorward has no command nothing",
		"`doorward login docs [--wait 1m]`":        "",
		"`doorward agent …`":                       "",
		"`doorward agent send x -- --no-flag`":     "",
		"doorward auth session-start </dev/null":   "",
		"the doorward nothing that prose may name": "",
	} {
		for _, words := range commandsOf(text) {
			if got := unknownIn(words); got != want {
				t.Errorf("%s: %q, want %q", text, got, want)
			}
		}
		if got := len(commandsOf(text)); got != 1 && !strings.HasPrefix(text, "the ") {
			t.Errorf("%s: %d commands", text, got)
		}
	}
}

// TestExamplesOfTheHelpAreAccepted: each example in a help text has the flags and the
// number of arguments that its command takes.
func TestExamplesOfTheHelpAreAccepted(t *testing.T) {
	t.Parallel()
	for _, c := range leaves(newRoot()) {
		for _, words := range commandsOf(strings.ReplaceAll(c.Example, "EDITOR=nano ", "")) {
			if err := accepted(words); err != nil {
				t.Errorf("%s: %v", c.Example, err)
			}
		}
	}
}

// accepted returns why doorward takes a command line for wrong usage.
func accepted(words []string) error {
	c, rest, err := newRoot().Find(words)
	if err != nil {
		return err
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}
