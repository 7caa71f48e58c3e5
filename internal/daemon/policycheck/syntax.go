package policycheck

import (
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/visible"
)

// The forms of Cedar's errors.
var (
	syntaxPrefix = regexp.MustCompile(`^(?:parser error: )?(?:parse error at )?<input>:(\d+):\d+(?: "(?:[^"\\]|\\.)*")?: `)
	exactShape   = regexp.MustCompile(`^exact got (.*) want (.*)$`)
)

// syntaxProblem finds the line of a syntax error. Cedar names the token after the wrong one,
// or none. The error is on the first line with which it occurs, which is found by binary
// search.
func syntaxProblem(file string, text []byte, err error) policy.Problem {
	said := syntaxText(err)
	ends := []int{0}
	for i, c := range text {
		if c == '\n' {
			ends = append(ends, i+1)
		}
	}
	if ends[len(ends)-1] < len(text) {
		ends = append(ends, len(text))
	}
	line := sort.Search(len(ends)-1, func(lines int) bool {
		_, got := parse(text[:ends[lines]])
		return got != nil && syntaxText(got) == said
	})
	if m := syntaxPrefix.FindStringSubmatch(err.Error()); m != nil {
		if named, _ := strconv.Atoi(m[1]); named > 0 {
			line = min(line, named)
		}
	}
	return policy.Problem{File: file, Line: max(1, line), Text: "this is not Cedar: " + said + "; docs/policy.md has examples"}
}

// syntaxText returns Cedar's message without the position.
func syntaxText(err error) string {
	said := strings.TrimPrefix(err.Error(), "parser error: ")
	if inner := errors.Unwrap(errors.Unwrap(err)); inner != nil {
		said = inner.Error()
	}
	said = syntaxPrefix.ReplaceAllString(said, "")
	if strings.HasPrefix(said, "unexpected effect") {
		said += "; a rule begins with permit or forbid"
	}
	if m := exactShape.FindStringSubmatch(said); m != nil {
		said = fmt.Sprintf("found %s, but %s is expected", quoted(m[1]), m[2])
	}
	return strings.Map(func(r rune) rune {
		if !visible.Printable(r) {
			return ' '
		}
		return r
	}, said)
}

func quoted(token string) string {
	if token == "" {
		return "the end"
	}
	return policy.Clip(token)
}

func parse(text []byte) (cedar.PolicyList, error) {
	var list cedar.PolicyList
	err := list.UnmarshalCedar(text)
	return list, err
}
