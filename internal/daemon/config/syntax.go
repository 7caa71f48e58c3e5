package config

import (
	"bytes"
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/doorward/doorward/internal/base/plainyaml"
)

// malformed maps parts of the YAML library's messages to advice.
var malformed = []struct{ said, advice string }{
	{"mapping values are not allowed", "a colon is where no key can end; put a text with a colon and a space in quotes, or check that this line is " +
		"indented like its neighbours and that the line above has its colon"},
	{"did not find expected key", "this line does not match those above; indent all keys of a mapping equally, and write nothing after a closing quotation mark"},
	{"did not find expected ',' or '}'", "a comma or a closing } is missing here or above"},
	{"did not find expected ',' or ']'", "a comma or a closing ] is missing here or above"},
	{"could not find expected ':'", "a key has no colon; write key: value"},
	{"found unexpected end of stream", "a quotation mark is not closed; write it at the end of its text"},
	{"did not find expected node content", "a value is missing, or a bracket or brace is not closed"},
	{"unknown escape character", doubleBackslash},
	{"did not find expected hexdecimal number", doubleBackslash},
	{"did not find expected '-' indicator", "all items of a list must begin with - in the same column"},
	{"block sequence entries are not allowed", "a list begins on a line of its own, below its key"},
	{"did not find expected alphabetic or numeric character", "a text cannot begin with * or & without quotes; put it in quotes"},
	{"cannot start any token", "a text cannot begin with @ or ` without quotes; put it in quotes"},
	{"control characters are not allowed", "there is a control character here; remove it"},
}

const doubleBackslash = `a backslash in double quotes begins an escape; write \\ for one, or use single quotes`

// syntaxText describes content that is not plain YAML. A message that quotes the file is not repeated,
// because the quoted text may be a secret that should have been in quotation marks.
func syntaxText(err *plainyaml.Error, content []byte) string {
	switch {
	case err.Kind == plainyaml.Second:
		return "a second document begins here; put everything into one, without ---"
	case err.Kind == plainyaml.UnknownAlias:
		return plainyaml.AliasText
	case err.Kind != plainyaml.Malformed:
		return err.Text
	}
	const begin = "this is not valid YAML"
	if line := lineText(content, err.Line); err.Line > 1 && strings.HasPrefix(line, "{") {
		return begin + ": a JSON object cannot follow keys of YAML; remove its outer braces and the blanks before \"mcpServers\""
	}
	if advice := yamlAdvice(err.Text, lineText(content, err.Line)); advice != "" {
		return begin + ": " + advice
	}
	if strings.ContainsAny(err.Text, "'\"`\n") {
		return begin + "; compare the line with the manual's example"
	}
	return begin + ": " + err.Text
}

// yamlAdvice returns advice for an error in a line; empty: none.
func yamlAdvice(said, line string) string {
	indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	switch {
	case strings.Contains(indent, "\t"):
		return "a tab indents this line; use spaces"
	case strings.HasPrefix(line, "```"):
		return "a line of ``` is Markdown; remove it"
	}
	for _, m := range malformed {
		if strings.Contains(said, m.said) {
			return m.advice
		}
	}
	return ""
}

// lineText returns a line of the content, counted from 1.
func lineText(content []byte, number int) string {
	lines := bytes.Split(content, []byte("\n"))
	if number < 1 || number > len(lines) {
		return ""
	}
	return string(bytes.TrimPrefix(lines[number-1], []byte("\ufeff")))
}

// looksLikeJSON reports whether content begins with a brace followed by a quoted name or a comment.
func looksLikeJSON(content []byte) bool {
	rest, brace := bytes.CutPrefix(bytes.TrimLeft(content, " \t\r\n"), []byte("{"))
	rest = bytes.TrimLeft(rest, " \t\r\n")
	return brace && len(rest) > 0 && (rest[0] == '"' || rest[0] == '/')
}

// jsonProblem describes content that is not JSON, and returns the line of the error.
func jsonProblem(content []byte, err error) (line int, text string) {
	at, said := len(content), ""
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at, said = min(int(e.ByteOffset), len(content)), e.Error()
	}
	rest := bytes.TrimLeft(content[at:], " \t\r\n")
	at = len(content) - len(rest)
	before := bytes.TrimRight(content[:at], " \t\r\n")
	const begin = "this is not valid JSON: "
	switch {
	case errors.Is(err, errMoreValues):
		return lineOf(content, at), begin + "there is more after the first value; put everything into one"
	case strings.Contains(said, "escape"):
		return lineOf(content, at), begin + `a backslash begins an escape; write \\ for one`
	}
	if text, comma := jsonAdvice(before, rest); comma {
		return lineOf(content, len(before)-1), begin + text
	} else {
		return lineOf(content, at), begin + text
	}
}

// jsonAdvice returns advice from the text before and after the place of an error. comma reports that a
// comma before the place is the error.
func jsonAdvice(before, rest []byte) (text string, comma bool) {
	if next, ok := bytes.CutPrefix(rest, []byte(",")); ok && closes(bytes.TrimLeft(next, " \t\r\n")) {
		return "there is a comma before a closing bracket; remove it", false
	}
	switch {
	case len(rest) == 0:
		return "a brace, bracket or quotation mark is not closed", false
	case bytes.HasPrefix(rest, []byte("//")), bytes.HasPrefix(rest, []byte("/*")), rest[0] == '#':
		return "JSON has no comments; remove it, or write YAML, whose comments begin with #", false
	case bytes.HasSuffix(before, []byte(",")) && closes(rest):
		return "there is a comma before a closing bracket; remove it", true
	case rest[0] == '\'':
		return `texts are in double quotes; write " for '`, false
	case bytes.HasPrefix(rest, []byte("True")), bytes.HasPrefix(rest, []byte("False")), bytes.HasPrefix(rest, []byte("None")):
		return "JSON has true, false and null", false
	case rest[0] == '"' && !bytes.HasSuffix(before, []byte(",")):
		return "a comma is missing before this", false
	}
	return "a name, text or comma is missing here; names and texts are in double quotes", false
}

func closes(b []byte) bool { return len(b) > 0 && (b[0] == '}' || b[0] == ']') }

var errMoreValues = errors.New("more than one value")

// lineOf returns the line of an offset, counted from 1. A line end at the end of the content begins no
// line.
func lineOf(content []byte, offset int) int {
	content = bytes.TrimSuffix(content, []byte("\n"))
	return 1 + bytes.Count(content[:min(offset, len(content))], []byte("\n"))
}
