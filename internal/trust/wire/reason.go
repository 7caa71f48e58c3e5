package wire

// Reasons of refusals. Invariant: a reason contains nothing of the input.

import "fmt"

// SyntaxError is the error for refused bytes. Code is -32700 when they are not
// one strict JSON value (grammar, UTF-8, duplicate keys, depth, trailing
// data), and -32600 when they are one, but not a valid JSON-RPC message. Offset is
// the offset of the byte at which the error was found. Reason is constant text without
// any part of the input, so it may be shown to the sender.
type SyntaxError struct {
	Code   int
	Offset int
	Reason string
}

// Error returns the reason and the offset. The text is safe to show to the sender.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s (at byte %d)", e.Reason, e.Offset)
}

// Reasons with code -32700.
const (
	reasonEOF        = "unexpected end of input"
	reasonValue      = "expected a value"
	reasonKey        = "expected a string as object key"
	reasonColon      = "expected a colon after the object key"
	reasonObjectNext = "expected a comma or the end of the object"
	reasonArrayNext  = "expected a comma or the end of the array"
	reasonLiteral    = "invalid literal"
	reasonNumber     = "invalid number"
	reasonControl    = "control character in a string"
	reasonEscape     = "invalid escape sequence"
	reasonSurrogate  = "unpaired surrogate escape"
	reasonUTF8       = "invalid UTF-8"
	reasonBOM        = "byte order mark"
	reasonTrailing   = "data after the value"
	reasonDepth      = "nested too deeply"
	reasonDuplicate  = "duplicate object key"
	reasonMembers    = "too many object members"
	reasonLongNumber = "number too long"
	reasonSize       = "input too large"
)

// Reasons with code -32600.
const (
	reasonNotObject      = "message is not an object"
	reasonEmptyBatch     = "empty batch"
	reasonVersion        = "jsonrpc is not \"2.0\""
	reasonID             = "id is neither a string nor an integer"
	reasonLongID         = "id too long"
	reasonNoID           = "response without id"
	reasonRequestNoID    = "request without id"
	reasonMethod         = "method is not a non-empty string"
	reasonParams         = "params is not an object"
	reasonMixed          = "both request and response members"
	reasonResultAndError = "both result and error"
	reasonNoKind         = "neither method, result nor error"
	reasonErrorObject    = "error is not an object with an integer code and a string message"
	reasonFoldedKeys     = "object keys equal under case folding"
	reasonKeyVariant     = "case variant of a protocol key"
	reasonKeyControl     = "control character in a protocol object key"
)
