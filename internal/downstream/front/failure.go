package front

import (
	"net/http"
	"strconv"

	"github.com/doorward/doorward/internal/base/rawjson"
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

// Constant texts: a caller learns the class of a failure and nothing else.
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
	errInBatch        = &wire.Error{Code: CodeInvalidRequest, Message: "initialize must not be part of a batch"}
	errHeaderOnce     = &wire.Error{Code: CodeInvalidRequest, Message: "A protocol header appears more than once"}
)

// fail writes a JSON-RPC error with an HTTP status. id nil leaves the id out:
// the request could not be attributed.
func fail(w http.ResponseWriter, status int, id wire.ID, e *wire.Error) {
	writeJSON(w, status, rawjson.AppendError(nil, id, e))
}

// writeJSON sends one complete JSON body.
func writeJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	w.Write(body)
}

// Header values that every answer shares. They are never changed: net/http
// only reads them.
var (
	jsonType   = []string{"application/json"}
	streamType = []string{"text/event-stream"}
	noCache    = []string{"no-cache, no-transform"}
	noBuffer   = []string{"no"}
)

// statusOf is the HTTP status of a final answer when nothing has been
// streamed: the codes of the contract's table, and for the modern era those
// that the specification fixes (Overview, "Error Codes").
func statusOf(era Era, e *wire.Error) int {
	switch e.Code {
	case 1502:
		return http.StatusBadGateway
	case 1503:
		return http.StatusServiceUnavailable
	case 1504:
		return http.StatusGatewayTimeout
	case 1429:
		return http.StatusTooManyRequests
	}
	if era != Modern {
		return http.StatusOK
	}
	switch e.Code {
	case CodeNoMethod:
		return http.StatusNotFound
	case CodeParse, CodeInvalidRequest, CodeInvalidParams, CodeHeaderMismatch, CodeNoCapability, CodeVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}
