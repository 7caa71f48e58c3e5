package front

import (
	"errors"

	"github.com/doorward/doorward/internal/trust/wire"
)

// JSON-RPC codes of 2026-07-28 (Overview, "Error Codes").
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeNoMethod       = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	CodeHeaderMismatch = -32020
	CodeNoCapability   = -32021
	CodeVersion        = -32022
)

// Constant texts: they tell a caller the class of a failure only.
var (
	errUnknownServer  = &wire.Error{Code: CodeNoMethod, Message: "Unknown server"}
	errUnknownSession = &wire.Error{Code: CodeInvalidRequest, Message: "Session not found"}
	errFull           = &wire.Error{Code: 1503, Message: "Too many sessions or requests"}
	errBatch          = &wire.Error{Code: CodeInvalidRequest, Message: "Batches are not part of this protocol version"}
	errNoVersion      = &wire.Error{Code: CodeInvalidRequest, Message: "Not a request of a known protocol version or session"}
	errBadVersion     = &wire.Error{Code: CodeInvalidRequest, Message: "Unsupported or mismatched MCP-Protocol-Version"}
	errResponse       = &wire.Error{Code: CodeInvalidRequest, Message: "Responses are not accepted here"}
	errTwice          = &wire.Error{Code: CodeInvalidRequest, Message: "Request id already in use"}
	errInitialized    = &wire.Error{Code: CodeInvalidRequest, Message: "Session already initialized"}
	errNotInitialized = &wire.Error{Code: CodeInvalidRequest, Message: "Session not initialized: send initialize and wait for its result; after an error, open a new stream"}
	errUnknownEvent   = &wire.Error{Code: CodeInvalidRequest, Message: "The event of Last-Event-ID is not kept: open the stream without this header"}
	errInBatch        = &wire.Error{Code: CodeInvalidRequest, Message: "initialize must not be part of a batch"}
	errHeaderOnce     = &wire.Error{Code: CodeInvalidRequest, Message: "A protocol header appears more than once"}
)

func syntax(err error) *wire.Error {
	e := &wire.Error{Code: CodeParse, Message: "Parse error"}
	var s *wire.SyntaxError
	if errors.As(err, &s) && s.Code == CodeInvalidRequest {
		e = &wire.Error{Code: CodeInvalidRequest, Message: "Invalid request"}
	}
	return e
}
