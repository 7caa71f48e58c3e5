package main

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdForged sends one request for each letter of a session's token, with one bit of that
// letter changed. It prints how many requests there were for each part of the token, and
// each distinct answer:
//
//	forged TOKEN METHOD TARGET [http FLAG…]   FORGED in a flag is the changed token
func cmdForged(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) >= 3 && strings.Count(args[0], ".") == 3, "forged TOKEN METHOD TARGET [FLAG…]")
	token, count := args[0], make([]int, 4)
	var answers []string
	for i := range len(token) {
		c, ok := oneBitOff(token[i])
		if !ok {
			continue
		}
		count[strings.Count(token[:i], ".")]++
		forged := token[:i] + string(c) + token[i+1:]
		var argv []string
		for _, a := range args[1:] {
			argv = append(argv, strings.ReplaceAll(a, "FORGED", forged))
		}
		var answer bytes.Buffer
		send(ts, &answer, argv)
		if text := answer.String(); !slices.Contains(answers, text) {
			answers = append(answers, text)
		}
	}
	fmt.Fprintf(ts.Stdout(), "forged %d %d %d %d\nanswers %d\n%s", count[0], count[1], count[2], count[3], len(answers), strings.Join(answers, "\n"))
}

var tokenLetter = regexp.MustCompile(`^[A-Za-z0-9_-]$`)

// oneBitOff returns a letter of the alphabet of tokens that differs from c in one bit. A
// letter outside of that alphabet would be refused before the token is verified.
func oneBitOff(c byte) (byte, bool) {
	for bit := range 7 {
		if d := c ^ 1<<bit; tokenLetter.Match([]byte{c}) && tokenLetter.Match([]byte{d}) {
			return d, true
		}
	}
	return 0, false
}
