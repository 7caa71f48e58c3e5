// Package plainyaml parses the subset of YAML that all parsers read alike.
//
// A person, a reviewer's tool and this program must see the same tree in a configuration
// and in the header of a document. Both use this package, so both have the same subset.
//
// Invariant: if Parse accepts a text and Walk reports no fault, every YAML parser
// makes the same mappings and lists of it, there are no aliases or merge keys, and each
// key of a mapping is text and unique. Bytes that two parsers would split differently are refused.
//
// Limit: the type of a value without quotes depends on the parser. To a parser of YAML
// 1.1, no and 1:30 are a boolean and a number; here they are text, and as keys they are
// refused. Callers accept numbers only in the form of JSON, and only listed words where a
// value is a choice.
package plainyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Kind is the kind of an Error.
type Kind uint8

const (
	NotText      Kind = iota + 1 // not UTF-8, or with NUL
	NotPlain                     // read differently by different parsers
	Malformed                    // not YAML; the text is that of the YAML library, and may quote the content
	UnknownAlias                 // an alias without anchor, often a text that needs quotes; the text quotes it
	Second                       // a second document
)

// Error is the error of Parse.
type Error struct {
	Kind Kind
	Line int // from 1
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// Parse returns the tree of the only document of content; nil without an error
// when there is no document. The tree must pass Walk before it is used.
func Parse(content []byte) (*yaml.Node, *Error) {
	if e := unplain(content); e != nil {
		return nil, e
	}
	content = bytes.TrimPrefix(content, []byte(mark))
	root, e := document(content)
	switch {
	case e != nil:
		e.Line = errorLine(content, e)
		return nil, e
	case root != nil:
		showTags(root, tagStarts(content))
	}
	return root, nil
}

// mark is the byte order mark.
const mark = "\ufeff"

// FirstInvalid returns the offset of the first byte that is not UTF-8 or is NUL; -1:
// there is none.
func FirstInvalid(b []byte) int {
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size <= 1 || r == 0 {
			return i
		}
		i += size
	}
	return -1
}

// unplain finds characters and lines that parsers read differently and that are not
// visible in the tree. The line breaks of Unicode end a line, and so a comment, only in
// YAML 1.1. A byte order mark inside the text is a letter to one parser and ignored by
// another. A directive chooses the version by which the rest is read.
func unplain(content []byte) *Error {
	if i := FirstInvalid(content); i >= 0 {
		return &Error{NotText, lineOf(content, i), "this is not UTF-8 text; save the file as UTF-8"}
	}
	last := '\n'
	for i, r := range string(content) {
		switch {
		case r == '\u0085' || r == '\u2028' || r == '\u2029':
			return &Error{NotPlain, lineOf(content, i), fmt.Sprintf("some parsers take %U as a line end and others do not; write it as an escape in double quotes", r)}
		case r == '\ufeff' && i > 0:
			return &Error{NotPlain, lineOf(content, i), "there is a byte order mark here; remove it"}
		case r == '%' && (last == '\n' || last == '\r'):
			return &Error{NotPlain, lineOf(content, i), "directives (%NAME) are not supported here; remove the line"}
		}
		if r != '\ufeff' {
			last = r
		}
	}
	return nil
}

func lineOf(content []byte, offset int) int { return 1 + bytes.Count(content[:offset], []byte("\n")) }

// document parses content without the checks of unplain. Its error has no line yet.
func document(content []byte) (*yaml.Node, *Error) {
	dec := yaml.NewDecoder(bytes.NewReader(content))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, syntax(err)
	}
	if err := dec.Decode(&second); err == nil {
		return nil, &Error{Kind: Second, Text: "a second document begins here"}
	} else if !errors.Is(err, io.EOF) {
		return nil, syntax(err)
	}
	return doc.Content[0], nil
}

// syntax converts an error of the YAML library, without its line number.
func syntax(err error) *Error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if number, after, _ := strings.Cut(rest, ": "); number != "" && strings.Trim(number, "0123456789") == "" {
			text = after
		}
	}
	if strings.HasPrefix(text, "unknown anchor ") {
		return &Error{Kind: UnknownAlias, Text: text}
	}
	return &Error{Kind: Malformed, Text: text}
}

// errorLine finds the line of an error. The YAML library names the line where
// the construct around it began, or the end of the file. The real line is the last of the
// shortest beginning of the file that has the error, which a binary search finds.
func errorLine(content []byte, e *Error) int {
	var ends []int
	for i, c := range content {
		if c == '\n' {
			ends = append(ends, i+1)
		}
	}
	return 1 + sort.Search(len(ends), func(lines int) bool {
		_, got := document(content[:ends[lines]])
		return got != nil && got.Kind == e.Kind && got.Text == e.Text
	})
}
