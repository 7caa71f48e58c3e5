package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"
)

// asTheyAre are commands that print data of others, or for programs, as it is: results
// of tools, documents, rules, code, tokens, a file with its changes.
var asTheyAre = []string{"call", "schema", "man", "connect", "auth header", "auth token create", "audit export", "instructions show",
	"instructions diff", "instructions import", "install", "uninstall", "import", "serve", "completion"}

// sequence is an escape sequence for a colour, which takes no room.
var sequence = regexp.MustCompile("\x1b\\[[0-9;]*m")

// cmdWide runs every command at a terminal of 80 columns, none with -v. No line that it
// writes there is longer.
func cmdWide(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) == 0, "wide")
	all, lines := everyCommand(), 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, given := range all[name] {
			argv := append(strings.Fields(strings.ReplaceAll(name, unseen, "UNSEEN")), given...)
			for i, a := range argv {
				argv[i] = os.Expand(strings.ReplaceAll(strings.ReplaceAll(a, "UNSEEN", unseen), "\x00", ""), ts.Getenv)
			}
			if slices.ContainsFunc(asTheyAre, func(c string) bool { return strings.HasPrefix(strings.Join(argv, " ")+" ", c+" ") }) {
				continue
			}
			lines += mustFit(ts, argv)
			lines += mustFit(ts, append(strings.Fields(strings.ReplaceAll(name, unseen, "x")), "--help"))
		}
	}
	if lines < 500 {
		ts.Fatalf("only %d lines were printed", lines)
	}
}

func mustFit(ts *testscript.TestScript, argv []string) (lines int) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second+late())
	defer cancel()
	out, errs, _, err := run1(ctx, ts, []string{"EDITOR=true", "TERM=xterm", "COLUMNS="}, append([]string{"pty", "-screen", program(ts, "doorward")}, argv...))
	ts.Check(err)
	if ctx.Err() != nil {
		ts.Fatalf("%q did not end", argv)
	}
	for line := range strings.Lines(sequence.ReplaceAllString(out+errs, "")) {
		lines++
		if line = strings.TrimRight(line, "\r\n"); utf8.RuneCountInString(line) > 80 {
			ts.Fatalf("%q writes a line of %d columns:\n%s", argv, utf8.RuneCountInString(line), fmt.Sprintf("%.400s", line))
		}
	}
	return lines
}
