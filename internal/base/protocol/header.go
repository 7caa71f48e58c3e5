package protocol

import (
	"encoding/base64"
	"errors"
	"strings"
	"unicode/utf8"
)

// Marks around a value that a header cannot carry as it is (Streamable HTTP,
// "Value Encoding"): lower case, exact.
const (
	sentinelStart = "=?base64?"
	sentinelEnd   = "?="
)

// The headers that are Doorward's own.
const (
	// HeaderSession carries the token of a delivery session, or the bearer token of
	// a CI job, beside the credential of the connection.
	HeaderSession = "Doorward-Session"
	// HeaderRenews says that the bearer of HeaderSession gets a new session where
	// that one has ended, and wants a 401 then instead of less.
	HeaderRenews = "Doorward-Renews"
	// HeaderNamespace carries the label of the caller's project. It is claimed:
	// nothing is decided by it.
	HeaderNamespace = "Doorward-Namespace"
	// HeaderStdio says that a message came through `doorward connect`. Nothing is
	// believed by it.
	HeaderStdio = "Doorward-Stdio"
)

// errHeader says nothing of the value: it goes to the caller as -32020.
var errHeader = errors.New("header value is neither plain ASCII nor Base64 of UTF-8 text")

// EncodeHeader is s as the value of Mcp-Name or Mcp-Param-*: s itself where a
// header can carry it unambiguously, else Base64 between the marks.
func EncodeHeader(s string) string {
	if isHeaderSafe(s) && strings.Trim(s, " ") == s && !strings.Contains(s, "\t") && !isMarked(s) {
		return s
	}
	return sentinelStart + base64.StdEncoding.EncodeToString([]byte(s)) + sentinelEnd
}

// DecodeHeader returns the text of the header value v, outer white space trimmed.
// An error means -32020: v is marked as Base64 but is not Base64 of UTF-8 text,
// or holds characters that no header may (RFC 9110 and the MCP specification
// allow visible ASCII, space and tab).
func DecodeHeader(v string) (string, error) {
	v = strings.Trim(v, " \t")
	if !isHeaderSafe(v) {
		return "", errHeader
	}
	if !isMarked(v) {
		return v, nil
	}
	if len(v) < len(sentinelStart)+len(sentinelEnd) { // the marks share their question mark
		return "", errHeader
	}
	text, err := base64.StdEncoding.Strict().DecodeString(v[len(sentinelStart) : len(v)-len(sentinelEnd)])
	if err != nil || !utf8.Valid(text) {
		return "", errHeader
	}
	return string(text), nil
}

// isMarked reports a value with both marks, to the letter of the
// specification: even one that is too short to have them side by side, since
// some reader will try to decode it.
func isMarked(v string) bool {
	return strings.HasPrefix(v, sentinelStart) && strings.HasSuffix(v, sentinelEnd)
}

// isHeaderSafe reports that v is all visible ASCII, space and tab.
func isHeaderSafe(v string) bool {
	return !strings.ContainsFunc(v, func(r rune) bool { return (r < ' ' || r > '~') && r != '\t' })
}

// NameMember is the member of params that Mcp-Name repeats for a method, or
// "" (Streamable HTTP, "Standard Headers"; SEP-2663 for tasks).
func NameMember(method string) string {
	switch method {
	case "tools/call", "prompts/get":
		return "name"
	case "resources/read":
		return "uri"
	case "tasks/get", "tasks/update", "tasks/cancel":
		return "taskId"
	}
	return ""
}
