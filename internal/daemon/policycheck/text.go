package policycheck

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/trust/policy"
)

// unreadable returns the problems of a text that must not reach the parser: it is not
// UTF-8, or it could exhaust the parser's stack.
func unreadable(file string, text []byte) []policy.Problem {
	if at := firstBad(text); at >= 0 {
		return []policy.Problem{{File: file, Line: lineAt(text, at), Text: "this is not UTF-8 text; save the file as UTF-8"}}
	}
	if line := tooDeep(text); line > 0 {
		return []policy.Problem{{File: file, Line: line, Text: fmt.Sprintf("more than %d brackets are open here; simplify the rule", maxNesting)}}
	}
	return nil
}

// maxNesting is the most open brackets, more than a policy needs. The parser recurses for
// each bracket.
const maxNesting = 200

// tooDeep returns the line on which too many brackets are open; 0: none.
func tooDeep(text []byte) int {
	depth, inText := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText && c != '\n':
		case c == '/' && i+1 < len(text) && (text[i+1] == '/' || text[i+1] == '*'):
			i += comment(text[i:])
		case c == '\n':
			inText = false // a string ends with its line; otherwise the parser reports it
		case c == '(' || c == '[' || c == '{':
			if depth++; depth > maxNesting {
				return lineAt(text, i)
			}
		case c == ')' || c == ']' || c == '}':
			depth--
		}
	}
	return 0
}

// comment returns the length of the comment at the beginning of text, less one.
func comment(text []byte) int {
	end := "\n"
	if text[1] == '*' {
		end = "*/"
	}
	if n := strings.Index(string(text[2:]), end); n >= 0 {
		return n + 1 + len(end)
	}
	return len(text)
}

func lineAt(text []byte, offset int) int { return 1 + strings.Count(string(text[:offset]), "\n") }

// firstBad returns the offset of the first byte that is not UTF-8 or is NUL; -1: none.
func firstBad(b []byte) int {
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size <= 1 || r == 0 {
			return i
		}
		i += size
	}
	return -1
}
