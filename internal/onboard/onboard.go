// Package onboard edits the configuration files of MCP clients: it adds Doorward to a
// client, removes it again, and reads the servers of a client.
//
// Invariants: an edit inserts, replaces or removes one entry of the text and leaves every
// other byte, comments and order included. A text that does not parse is not edited. After
// an edit the text is parsed again, and an edit that changed any other value is an error. A
// file is written as a whole by rename, with its mode, after a backup was made. A file that
// changed since it was read is not written.
//
// The package has no dialogue: it does not ask, print or start anything.
package onboard

import (
	"errors"
	"fmt"
)

// Name is the name of Doorward's entry in a client's file.
const Name = "doorward"

// Errors of this package, wrapped with the file.
var (
	ErrSyntax   = errors.New("it does not parse")
	ErrShape    = errors.New("it has an unexpected shape")
	ErrChanged  = errors.New("it has changed since it was read")
	ErrReadOnly = errors.New("it is read-only")
	ErrKind     = errors.New("it is not a regular file")
	ErrLink     = errors.New("it is a symbolic link whose target does not exist")
	ErrTooLarge = errors.New("it is larger than 64 MiB")
	ErrScope    = errors.New("the client has no file for a project")
	ErrNoHome   = errors.New("HOME is not set")
)

// A Format is the syntax of a file.
type Format uint8

// The formats.
const (
	JSON Format = iota // with comments and trailing commas
	TOML
	YAML
)

// commandLine returns the command of an entry and its arguments, in any client's form.
func commandLine(entry map[string]any) []string {
	return append(wordsOf(first(entry, "command", "cmd")), wordsOf(entry["args"])...)
}

func first(m map[string]any, keys ...string) any {
	for _, key := range keys {
		if v := m[key]; v != nil {
			return v
		}
	}
	return nil
}

// wordsOf returns the words of a string or a list. A number or truth value in it is the text of it.
func wordsOf(v any) (out []string) {
	items, ok := v.([]any)
	if !ok {
		return stringsOf(v)
	}
	for _, item := range items {
		switch item.(type) {
		case nil, map[string]any, []any:
		default:
			out = append(out, fmt.Sprint(item))
		}
	}
	return out
}

// stringsOf returns the strings of a string or a list.
func stringsOf(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, item := range v {
			if s, ok := item.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}
