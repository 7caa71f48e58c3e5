package wire

// Messages. Invariant: a Message is a request, a notification or a response of JSON-RPC
// 2.0, and its parts are the received bytes.

import (
	"bytes"
	"strconv"
	"strings"
)

// Kind distinguishes the three shapes of a JSON-RPC message.
type Kind uint8

// A Request has a method and an id, a Notification a method alone, a Response
// an id and exactly one of result and error.
const (
	Request Kind = iota + 1
	Notification
	Response
)

// Side is the sender of the bytes. Only a server may send an error response
// without an id (MCP Overview, "Error Responses").
type Side uint8

// The two sides of a connection.
const (
	FromClient Side = iota + 1
	FromServer
)

// ID is the raw JSON text of an id, `"abc"` or `7`, kept unchanged because a
// client may compare it byte for byte. nil means that there is none.
type ID []byte

// IntID returns the id for the integer n.
func IntID(n int64) ID { return strconv.AppendInt(nil, n, 10) }

// Int returns the value of a plain decimal integer that fits int64; false for
// strings, larger numbers and everything else.
func (id ID) Int() (int64, bool) {
	if !isInteger(id) {
		return 0, false
	}
	n, err := strconv.ParseInt(string(id), 10, 64)
	return n, err == nil
}

// Error is the error member of a response. Raw is the received error object, and nil for
// an error that Doorward made.
type Error struct {
	Code    int64
	Message string
	Data    []byte // raw JSON, nil when absent
	Raw     []byte
}

// Error returns the code and the message. The sender chose both, so the text belongs in
// an operator's log only when the sender is trusted.
func (e *Error) Error() string {
	return "JSON-RPC error " + strconv.FormatInt(e.Code, 10) + ": " + e.Message
}

// Message is one parsed JSON-RPC message. The slices alias the bytes given to
// Parse. Unknown members of the envelope are dropped, because their meaning is not defined.
type Message struct {
	Kind   Kind
	ID     ID
	Method string // unescaped
	Params []byte // raw object, nil when absent
	Result []byte // raw value of any type
	Error  *Error
	// Plain means that no object in the message, at any depth, has a member that
	// HoldsQuestions reports. If it is false, there may be such a member or not.
	Plain bool
}

// The two JSON-RPC codes of a refusal.
const (
	codeParse   = -32700
	codeInvalid = -32600
)

// maxID bounds the raw text of an id, quotes included, in bytes: ids are held
// for every call in flight and written into every answer.
const maxID = 256

// Parse reads exactly one message from b, and returns a *SyntaxError for everything
// else. The returned slices alias b. An array is refused with -32600; ParseBatch reads
// arrays, for protocol versions that have them.
func Parse(b []byte, side Side) (Message, error) {
	s := takeScanner(b)
	defer s.release()
	if s.document(levelEnvelope) < 0 {
		return Message{}, s.failure()
	}
	m := s.message(s.first, side)
	if s.invalid.Code != 0 {
		return Message{}, s.failure()
	}
	return m, nil
}

// ParseBatch reads a message, or an array of messages; batch reports whether b is an
// array. If one element is invalid, the whole array is refused, and so is an empty array
// (-32600). batch is also valid with an error: it depends only on the first byte.
func ParseBatch(b []byte, side Side) (msgs []Message, batch bool, err error) {
	s := takeScanner(b)
	defer s.release()
	if p := s.space(0); p >= len(b) || b[p] != '[' {
		m, err := Parse(b, side)
		if err != nil {
			return nil, false, err
		}
		return []Message{m}, false, nil
	}
	s.onElement = func(start int) { msgs = append(msgs, s.message(start, side)) }
	if s.document(levelBatch) < 0 || s.invalid.Code != 0 {
		return nil, true, s.failure()
	}
	if len(msgs) == 0 {
		return nil, true, &SyntaxError{Code: codeInvalid, Offset: s.first, Reason: reasonEmptyBatch}
	}
	return msgs, true, nil
}

// message turns the members that the scanner found in the envelope starting
// at p into a Message, noting the first thing that JSON-RPC or MCP forbids.
func (s *scanner) message(p int, side Side) Message {
	if s.b[p] != '{' {
		s.refuse(p, reasonNotObject)
		return Message{}
	}
	if v := s.found[fieldJSONRPC].In(s.b); string(v) != `"2.0"` && wordOf(v) != "2.0" {
		s.refuse(p, reasonVersion)
		return Message{}
	}
	m := Message{
		ID:     s.id(),
		Params: s.found[fieldParams].In(s.b),
		Result: s.found[fieldResult].In(s.b),
		Plain:  !s.questions,
	}
	hasError := s.found[fieldError].In(s.b) != nil
	switch method := s.found[fieldMethod].In(s.b); {
	case method != nil && (m.Result != nil || hasError):
		s.refuse(p, reasonMixed)
	case method != nil:
		s.call(&m, method, side)
	case hasError && m.Result != nil:
		s.refuse(p, reasonResultAndError)
	case hasError || m.Result != nil:
		s.response(&m, p, side)
	default:
		s.refuse(p, reasonNoKind)
	}
	return m
}

// id returns the raw id member. By JSON-RPC 2.0, section 5, a server that could not read
// the id answers with an error and the id null. Only in that case null counts as no id,
// which response accepts from servers. In all other messages null is refused.
func (s *scanner) id() ID {
	at := s.found[fieldID]
	raw := at.In(s.b)
	switch {
	case raw == nil:
		return nil
	case raw[0] == 'n' && s.found[fieldError].In(s.b) != nil:
		return nil
	case len(raw) > maxID:
		s.refuse(at.Start, reasonLongID)
	case raw[0] != '"' && !isInteger(raw):
		s.refuse(at.Start, reasonID)
	}
	return raw
}

// call completes a request or a notification. It refuses a client's message that has the
// method of a request but no id: a reader that took it for a notification would act on it
// without an answer.
func (s *scanner) call(m *Message, method []byte, side Side) {
	m.Kind = Notification
	if m.ID != nil {
		m.Kind = Request
	}
	m.Method = wordOf(method)
	if m.Method == "" {
		s.refuse(s.found[fieldMethod].Start, reasonMethod)
	}
	if m.Params != nil && m.Params[0] != '{' {
		s.refuse(s.found[fieldParams].Start, reasonParams)
	}
	if m.Kind == Notification && side == FromClient && !IsNotification(m.Method) {
		s.refuse(s.found[fieldMethod].Start, reasonRequestNoID)
	}
}

// response completes a response from the envelope at p.
func (s *scanner) response(m *Message, p int, side Side) {
	m.Kind = Response
	if s.found[fieldParams].In(s.b) != nil {
		s.refuse(s.found[fieldParams].Start, reasonMixed)
	}
	if m.ID == nil && (side != FromServer || m.Result != nil) {
		s.refuse(p, reasonNoID)
	}
	if m.Result == nil {
		m.Error = s.errorObject()
	}
}

// errorObject reads the error member: an integer code and a string message
// are required (JSON-RPC 2.0, section 5.1), data may be anything.
func (s *scanner) errorObject() *Error {
	at := s.found[fieldError]
	e := &Error{Raw: at.In(s.b), Data: s.found[fieldData].In(s.b)}
	if e.Raw[0] != '{' {
		s.refuse(at.Start, reasonErrorObject)
		return nil
	}
	var isCode, isText bool
	e.Code, isCode = ID(s.found[fieldCode].In(s.b)).Int()
	e.Message, isText = Text(s.found[fieldMessage].In(s.b))
	if !isCode || !isText {
		s.refuse(at.Start, reasonErrorObject)
	}
	return e
}

// IsNotification reports whether a method is that of a notification. In MCP these, and no
// other methods, have this prefix.
func IsNotification(method string) bool { return strings.HasPrefix(method, "notifications/") }

// isInteger reports whether raw is an integer that every decoder preserves: no
// fraction, no exponent, no leading zero, no -0.
func isInteger(raw []byte) bool {
	digits := bytes.TrimPrefix(raw, []byte("-"))
	for _, c := range digits {
		if c-'0' > 9 {
			return false
		}
	}
	return len(raw) == 1 && len(digits) == 1 || len(digits) > 0 && digits[0] != '0'
}

// wordOf returns the text of the string raw, or "" when raw is not a string. The names in
// usualMethods cost no allocation.
func wordOf(raw []byte) string {
	if name, usual := usualMethods[string(raw)]; usual {
		return name
	}
	name, _ := Text(raw)
	return name
}

// usualMethods maps the raw JSON of the most frequent methods to their names.
var usualMethods = map[string]string{
	`"tools/call"`: "tools/call", `"tools/list"`: "tools/list", `"ping"`: "ping",
	`"resources/read"`: "resources/read", `"resources/list"`: "resources/list",
	`"prompts/get"`: "prompts/get", `"prompts/list"`: "prompts/list",
	`"notifications/progress"`: "notifications/progress", `"notifications/message"`: "notifications/message",
	`"notifications/cancelled"`: "notifications/cancelled",
}
