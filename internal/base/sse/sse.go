// Package sse reads and writes server-sent events by the grammar of the HTML
// standard, section 9.2.6.
//
// Invariant: a reader holds at most about four times the event limit in memory,
// and never returns an event that is not complete.
package sse

import (
	"bytes"
	"strings"
)

// Event is one server-sent event, made of its own lines only. Unlike a browser,
// the reader does not carry an id or a retry time over to later events.
type Event struct {
	ID    string
	HasID bool   // there is an id line, perhaps an empty one
	Name  string // the event line; "" means "message"
	Data  []byte // data lines joined by \n; nil without a data line, empty for an empty one
	Retry int    // milliseconds; -1: there is no retry line
}

// Append appends an event: id and name when they are not empty, one data
// line for each line of data (so one for empty data), and the blank line. An
// id or a name that would break the framing is left out.
func Append(dst []byte, id, name string, data []byte) []byte {
	dst = appendField(dst, "id: ", id)
	dst = appendField(dst, "event: ", name)
	for more := true; more; {
		var line []byte
		line, data, more = cutLine(data)
		dst = append(dst, "data: "...)
		dst = append(dst, line...)
		dst = append(dst, '\n')
	}
	return append(dst, '\n')
}

func appendField(dst []byte, field, value string) []byte {
	if value == "" || strings.ContainsAny(value, "\r\n\x00") {
		return dst
	}
	dst = append(dst, field...)
	dst = append(dst, value...)
	return append(dst, '\n')
}

// cutLine splits data after its first line end; more reports whether there is one.
func cutLine(data []byte) (line, rest []byte, more bool) {
	n := lineEnd(data)
	if n < 0 {
		return data, nil, false
	}
	line, rest = data[:n], data[n+1:]
	if data[n] == '\r' && len(rest) > 0 && rest[0] == '\n' {
		rest = rest[1:]
	}
	return line, rest, true
}

// lineEnd returns the offset of the first CR or LF, or -1. It searches one window after
// the other. Otherwise each line that ends in CR would cost a search for an LF up to the
// end of the buffer.
func lineEnd(b []byte) int {
	const window = 4 << 10
	for from := 0; from < len(b); from += window {
		part := b[from:min(from+window, len(b))]
		n := bytes.IndexByte(part, '\n')
		if n >= 0 {
			part = part[:n]
		}
		if r := bytes.IndexByte(part, '\r'); r >= 0 {
			n = r
		}
		if n >= 0 {
			return from + n
		}
	}
	return -1
}
