package protocol

import (
	"encoding/base64"
	"errors"
	"strings"
	"unicode/utf8"
)

// Marks around an encoded value that a header cannot carry unchanged (Streamable HTTP,
// "Value Encoding"). They are compared exactly.
const (
	sentinelStart = "=?base64?"
	sentinelEnd   = "?="
)

// Headers defined by Doorward.
const (
	// HeaderSession carries the token of a delivery session, or the bearer token of
	// a CI job, beside the credential of the connection.
	HeaderSession = "Doorward-Session"
	// HeaderRenews means that the client can renew the session of HeaderSession. It gets
	// a 401 when the session has ended; other clients are served without guidance then.
	HeaderRenews = "Doorward-Renews"
	// HeaderNamespace carries the label of the caller's project. It is claimed:
	// nothing is decided by it.
	HeaderNamespace = "Doorward-Namespace"
	// HeaderFormer names the session that the caller's session replaces, by its
	// SessionDigest. It is claimed: it selects among what the caller's principal owns.
	HeaderFormer = "Doorward-Former-Session"
	// HeaderStdio marks a message of `doorward connect`, which sends no Mcp-Param
	// headers. It is claimed: Mcp-Param headers that are present are checked.
	HeaderStdio = "Doorward-Stdio"
)

// errHeader contains nothing of the value, because it is sent to the caller as -32020.
var errHeader = errors.New("header value is neither plain ASCII nor Base64 of UTF-8 text")

// EncodeHeader returns s as a value of Mcp-Name or Mcp-Param-*: s itself if a
// header can carry it unambiguously, and otherwise Base64 between the marks.
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
	if len(v) < len(sentinelStart)+len(sentinelEnd) { // "=?base64?=": the marks overlap
		return "", errHeader
	}
	text, err := base64.StdEncoding.Strict().DecodeString(v[len(sentinelStart) : len(v)-len(sentinelEnd)])
	if err != nil || !utf8.Valid(text) {
		return "", errHeader
	}
	return string(text), nil
}

// isMarked reports whether v begins and ends with the marks, as the specification
// defines it. That includes a value in which they overlap, since some readers try to decode it.
func isMarked(v string) bool {
	return strings.HasPrefix(v, sentinelStart) && strings.HasSuffix(v, sentinelEnd)
}

// isHeaderSafe reports whether v consists of visible ASCII, space and tab.
func isHeaderSafe(v string) bool {
	return !strings.ContainsFunc(v, func(r rune) bool { return (r < ' ' || r > '~') && r != '\t' })
}

// NameMember returns the member of params that Mcp-Name repeats for a method, or
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
