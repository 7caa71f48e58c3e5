// Package plainyaml reads the part of YAML that has one reading.
//
// It exists so that what a person, a reviewer's tool and this program see in a
// configuration and in the header of a document is one tree, and so that what
// is left out of YAML is the same in both.
//
// Invariant: of what Parse gives and Walk finds no fault with, every YAML
// parser makes the same mappings and lists, each value is written where it
// stands, and each key of a mapping is text and there once. Bytes that two
// parsers would take apart differently are refused.
//
// Limit: which type a bare value has is not decided by its bytes. To an old
// parser no and 1:30 are a truth value and a number, and here they are text; as
// keys they are refused.
// Callers take numbers only as JSON writes them, and from a list of
// choices none but those on it.
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

// Kind says what is wrong with bytes that Parse refuses.
type Kind uint8

const (
	NotText      Kind = iota + 1 // not UTF-8, or with NUL
	NotPlain                     // read differently by different parsers
	Malformed                    // not YAML; the text is the YAML library's, and may quote the content
	UnknownAlias                 // an alias without its anchor, which is often text that should be in quotes; quotes it
	Second                       // a second document
)

// Error is why there is no tree.
type Error struct {
	Kind Kind
	Line int // from 1
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// Parse returns the tree of the only document of content; nil without an error
// when there is none. The tree must pass Walk before it is used.
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

// FirstInvalid is the offset of the first byte that is not UTF-8 or is NUL, -1
// when there is none.
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

// unplain finds what two parsers take apart differently before there is a tree.
// The line breaks of Unicode end a line, and so a comment, for YAML 1.1 alone;
// a mark further in is a letter to one parser and nothing to another; and a
// directive chooses the version by which the rest is read.
func unplain(content []byte) *Error {
	if i := FirstInvalid(content); i >= 0 {
		return &Error{NotText, lineOf(content, i), "this is not UTF-8 text; save the file as UTF-8"}
	}
	last := '\n'
	for i, r := range string(content) {
		switch {
		case r == '\u0085' || r == '\u2028' || r == '\u2029':
			return &Error{NotPlain, lineOf(content, i), fmt.Sprintf("%U ends a line for some readers and not for others; write it as an escape in double quotes", r)}
		case r == '\ufeff' && i > 0:
			return &Error{NotPlain, lineOf(content, i), "a byte order mark stands here; take it out"}
		case r == '%' && (last == '\n' || last == '\r'):
			return &Error{NotPlain, lineOf(content, i), "directives (%NAME) are not used here; leave the line out"}
		}
		if r != '\ufeff' {
			last = r
		}
	}
	return nil
}

func lineOf(content []byte, offset int) int { return 1 + bytes.Count(content[:offset], []byte("\n")) }

// document parses without asking what is plain; its error has no line yet.
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

// syntax is an error of the YAML library without its own line number.
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
// the construct around it began, or the end of the file; the error itself is on
// the first line with which it appears, and halving finds that.
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
