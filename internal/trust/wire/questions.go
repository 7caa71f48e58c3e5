package wire

// Questions of servers. Invariant: a member with one of the names is found at any
// depth, in any case and spelling.

import "strings"

// The members that hold questions of a server to its client. InputRequests is a member of
// a result or a task that waits for input (Multi Round-Trip Requests). Elicitations is a
// member of an error that requires the user to open a URL first (2025-11-25 Elicitation,
// "URL Elicitation Required Error").
const (
	InputRequests = "inputRequests"
	Elicitations  = "elicitations"
)

// HoldsQuestions reports whether an object anywhere inside raw has a member that
// some reader takes for InputRequests or Elicitations. It is true for bytes that are not
// strict JSON, since readers may differ about them, and false for no bytes.
func HoldsQuestions(raw []byte) bool {
	s := takeScanner(raw)
	defer s.release()
	return len(raw) > 0 && (s.document(levelNone) < 0 || s.questions)
}

// isQuestions reports whether some reader takes key for InputRequests or Elicitations.
func isQuestions(key []byte) bool {
	return Resembles(string(key), InputRequests) || Resembles(string(key), Elicitations)
}

// Resembles reports whether some reader takes key for the member name. Such a reader
// ignores case (encoding/json), or also accepts names with separated words, such as
// input_requests for inputRequests (models of pydantic with populate_by_name, as in the
// Python SDK).
func Resembles(key, name string) bool {
	if strings.EqualFold(key, name) {
		return true
	}
	return strings.ContainsAny(key, "_-") && strings.EqualFold(strings.ReplaceAll(key, "-", "_"), separated(name))
}

// separated returns name with an underscore in front of each capital letter.
func separated(name string) (out string) {
	for _, c := range name {
		if c >= 'A' && c <= 'Z' {
			out += "_"
		}
		out += string(c)
	}
	return out
}
