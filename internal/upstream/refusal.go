package upstream

import (
	"errors"
	"io"
	"net/http"

	"github.com/doorward/doorward/internal/trust/wire"
)

// maxRefusal bounds the bytes that are read of the body of an error status.
const maxRefusal = 64 << 10

// codeOldServer is the code that TypeScript servers send with 400 for an unknown session, and
// before initialize ("Server not initialized").
const codeOldServer = -32000

// refused maps a status other than 2xx. A JSON-RPC error with the call's own id is an answer
// like any other; in the modern era one without an id is too, because errors there come with
// an error status (Overview, "Error Codes"). Any other status becomes an error, by what it
// says about the request.
func (c *httpConn) refused(resp *http.Response, method string, id int64) (Reply, error) {
	reply, mine := refusalBody(resp, id)
	status := resp.StatusCode
	if isAnswerStatus(status) && (mine || reply != nil && c.modern && id != 0 && status/100 == 4) {
		return Reply{Error: reply}, nil
	}
	if status == http.StatusBadRequest && reply == nil && !c.modern && id != 0 && isUnknown(method) {
		return Reply{Error: &wire.Error{Code: codeMethodNotFound, Message: "Method not found"}}, nil
	}
	err := statusFault(status, reply)
	if !c.modern && c.who.Load().session != "" && isForgotten(status, reply) {
		err = &fault{kind: ErrSession, status: status, reply: reply}
		c.fail(err)
	}
	return Reply{}, err
}

// isUnknown reports whether no revision of the legacy era defines a method. Some servers
// refuse such a method before they read the message (go-sdk 1.8.0: 400 and a line of text).
func isUnknown(method string) bool {
	switch method {
	case methodInitialize, methodPing, "completion/complete", "logging/setLevel", "prompts/get", "prompts/list",
		"resources/list", "resources/read", "resources/templates/list", "resources/subscribe", "resources/unsubscribe",
		"tools/call", "tools/list", "tasks/get", "tasks/list", "tasks/cancel", "tasks/result":
		return false
	}
	return true
}

// isForgotten reports whether the server does not know the session: by 404 (2025-11-25
// Transports, "Session Management"), or by 400 with codeOldServer, as the TypeScript examples
// do. In both cases nothing has run.
func isForgotten(status int, reply *wire.Error) bool {
	return status == http.StatusNotFound || status == http.StatusBadRequest && reply != nil && reply.Code == codeOldServer
}

// isAnswerStatus reports whether a status is about the request, and not about the client or
// the load.
func isAnswerStatus(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return false
	}
	return true
}

// refusalBody returns the JSON-RPC error in the body of an error status, nil if there is
// none, and whether it names the call id.
func refusalBody(resp *http.Response, id int64) (reply *wire.Error, mine bool) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		return nil, false
	}
	m, err := wire.Parse(body, wire.FromServer)
	if err != nil || m.Kind != wire.Response || m.Error == nil {
		return nil, false
	}
	n, ok := m.ID.Int()
	return m.Error, ok && id != 0 && n == id
}

// statusFault returns the error for a status, by whether the request may have run.
func statusFault(status int, reply *wire.Error) error {
	f := &fault{kind: ErrProtocol, status: status, reply: reply}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		f.reason = "the server requires other credentials"
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		f.kind, f.reason = ErrNotSent, "the server is busy"
	case status/100 == 5:
		f.kind, f.reason = ErrLost, "the server failed"
	case status/100 == 3:
		f.reason = "a redirect, which is not followed"
	default:
		f.reason = "the server refused the request"
	}
	return f
}

// isOldRefusal reports whether a refused initialize suggests a server of revision 2024-11-05:
// 400, 404 or 405, without the error of a newer server in the body.
func isOldRefusal(err error) bool {
	var f *fault
	if !errors.As(err, &f) {
		return false
	}
	switch f.status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return f.reply == nil || !isModernCode(f.reply.Code) && f.reply.Code != codeMethodNotFound
	}
	return false
}

// asEra turns a refusal into ErrEra, and keeps its status and reply.
func asEra(err error, reason string) error {
	var f *fault
	if !errors.As(err, &f) {
		return err
	}
	return &fault{kind: ErrEra, reason: reason, status: f.status, reply: f.reply}
}
