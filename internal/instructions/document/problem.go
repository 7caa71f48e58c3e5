package document

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/plaintext"
)

// Problem is one thing that is wrong with a document, for the operator.
type Problem struct {
	File    string
	Line    int // from 1
	Text    string
	Warning bool // worth saying; the document is served all the same
}

// String is the form for a terminal: FILE:LINE: TEXT.
func (p Problem) String() string {
	if p.Warning {
		return fmt.Sprintf("%s:%d: warning: %s", p.File, p.Line, p.Text)
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
}

// Problems is an error when there is one in it.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sorted puts problems into the order of files and lines.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, strings.Compare(a.Text, b.Text))
	})
	return ps
}

// maxProblems is how many problems of one file are reported.
const maxProblems = 20

// parser is one reading of a file. It does not stop at a problem.
type parser struct {
	file     string
	problems Problems
}

// maxShown is how much of a text a problem repeats.
const maxShown = 64

func (p *parser) fail(line int, format string, args ...any) {
	if len(p.problems) < maxProblems {
		p.problems = append(p.problems, Problem{File: p.file, Line: max(line, 1), Text: plaintext.Line(fmt.Sprintf(format, args...))})
	}
}
