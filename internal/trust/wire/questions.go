package wire

import (
	"bytes"
	"strings"
)

// The members that hold questions of a server to its client: of a result or a task
// that waits for input (Multi Round-Trip Requests), and of an error that wants the
// user to open a URL first (2025-11-25 Elicitation, "URL Elicitation Required
// Error").
const (
	InputRequests = "inputRequests"
	Elicitations  = "elicitations"
)

// HoldsQuestions reports whether an object anywhere inside raw has a member of one
// of these names. Case is ignored, as some readers do.
func HoldsQuestions(raw []byte) bool {
	for p := 0; ; {
		n := bytes.IndexByte(raw[p:], '"')
		if n < 0 {
			return false
		}
		start := p + n
		p = StringEnd(raw, start)
		if p-start >= 2 && isKey(raw[p:]) && isQuestions(unescaped(raw[start+1:p-1])) {
			return true
		}
	}
}

func unescaped(body []byte) []byte {
	if bytes.IndexByte(body, '\\') < 0 {
		return body
	}
	return appendUnescaped(make([]byte, 0, len(body)), body)
}

// isQuestions judges the text of one key.
func isQuestions(key []byte) bool {
	return strings.EqualFold(string(key), InputRequests) || strings.EqualFold(string(key), Elicitations)
}

// isKey reports whether a colon follows.
func isKey(rest []byte) bool {
	rest = bytes.TrimLeft(rest, " \n\r\t")
	return len(rest) > 0 && rest[0] == ':'
}
