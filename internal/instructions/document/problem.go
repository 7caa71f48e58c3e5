package document

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// Problem is one problem of a document, for the operator.
type Problem struct {
	File    string
	Line    int // from 1
	Text    string
	Warning bool // the document is served nevertheless
}

// String returns the form for a terminal: FILE:LINE: TEXT.
func (p Problem) String() string {
	if p.Warning {
		return fmt.Sprintf("%s:%d: warning: %s", p.File, p.Line, p.Text)
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
}

// Problems is used as an error when it is not empty.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sorted sorts problems by file and line.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, strings.Compare(a.Text, b.Text))
	})
	return ps
}

// maxProblems is how many problems of one file are reported.
const maxProblems = 20

// parser parses one file. It continues after a problem.
type parser struct {
	file     string
	problems Problems
}

// maxShown is how many characters of a text a problem repeats.
const maxShown = 64

func (p *parser) fail(line int, format string, args ...any) {
	if len(p.problems) < maxProblems {
		p.problems = append(p.problems, Problem{File: p.file, Line: max(line, 1), Text: plaintext.Line(fmt.Sprintf(format, args...))})
	}
}
