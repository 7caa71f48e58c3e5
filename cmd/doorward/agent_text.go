package main

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// Text chosen by an agent is shown as one word, in quotes, or as a block whose
// lines each begin with a mark. In none of these forms it can move the cursor or imitate
// the program's own lines.

// oneWord returns a name of visible ASCII unchanged, "-" for an empty one, and any other
// name in quotes.
func oneWord(s string) string {
	for _, r := range s {
		if r <= ' ' || r > '~' || r == '"' {
			return plaintext.Quote(s)
		}
	}
	return orDash(s)
}

// quoted returns s in quotes, with invisible characters escaped.
func quoted(s string) string { return plaintext.Quote(s) }

// blockWidth is the width at which the lines of a block are broken. A terminal that breaks
// them itself would start the rest at its left edge, without the mark.
const blockWidth = 72

// block writes a text of several lines, each with a mark in front.
func block(b *strings.Builder, indent, text string) {
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		mark, used := "| ", 0
		b.WriteString(indent + mark)
		for _, r := range plaintext.Line(strings.ReplaceAll(line, "\t", "    ")) {
			n := cells(string(r))
			if used+n > blockWidth {
				b.WriteString("\n" + indent + "|+")
				used = 0
			}
			b.WriteRune(r)
			used += n
		}
		b.WriteString("\n")
	}
}

// plainJSON returns v as JSON on one line, with invisible characters escaped.
func plainJSON(v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return plaintext.Text(b.String()), err
}

// cells returns an upper bound of the terminal columns that s takes.
func cells(s string) (n int) {
	for _, r := range s {
		n++
		if r >= 0x1100 {
			n++
		}
	}
	return n
}

// moment returns the time in ms, milliseconds since 1970, as text; "-" if it is not positive.
func moment(ms int64) string {
	if ms <= 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// wordOrNothing returns s as one word, and an empty one as it is.
func wordOrNothing(s string) string {
	if s == "" {
		return ""
	}
	return plaintext.Word(s)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
