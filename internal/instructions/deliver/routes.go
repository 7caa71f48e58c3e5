package deliver

import (
	"net/http"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/instructions/document"
)

const (
	prefix      = "/auth/"
	prefixAdmin = prefix + "admin/"
	pathHealth  = prefix + "health"
	pathSession = prefix + "session"
)

// need is what a route requires of its caller.
type need uint8

const (
	anybody     need = iota // every authenticated caller, with a token or without
	aConnection             // the authentication of the connection, without a token beside it
	aReader                 // a session token or a bearer token
	aSession                // a session token
	anOperator              // the Unix socket; the gate and the check for agents decide further
)

// route is one method of one path.
type route struct {
	needs  need
	query  []string // the parameters that it takes
	body   int64    // the most bytes of a body; 0: it takes none
	stream bool     // it stays open, and has no HEAD
	serve  func(*request) error
}

// methods are the routes of one path.
type methods map[string]route

// allow lists the methods for the header Allow.
func (m methods) allow() string {
	var out []string
	for name, at := range m {
		out = append(out, name)
		if name == http.MethodGet && !at.stream {
			out = append(out, http.MethodHead)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// {name} stands for a document, {id} for a session.
const (
	anyName    = "{name}"
	anySession = "{id}"
)

var formats = []string{"format"}

// table holds every path under /auth/ except health, which Ahead answers.
var table = map[string]methods{
	"session": {
		http.MethodGet:    {needs: aSession, serve: sessions(sessionRequest.ownSession)},
		http.MethodPost:   {needs: aConnection, body: maxBody, serve: sessions(sessionRequest.openSession)},
		http.MethodDelete: {needs: aSession, serve: sessions(sessionRequest.endSession)},
	},
	"session/renew":           {http.MethodPost: {needs: aSession, body: maxBody, serve: sessions(sessionRequest.renewSession)}},
	"status":                  {http.MethodGet: {needs: anybody, serve: sessions(sessionRequest.status)}},
	"events":                  {http.MethodGet: {needs: aReader, stream: true, serve: streams(eventRequest.events)}},
	"instructions":            {http.MethodGet: {needs: aReader, query: []string{"format", "max_bytes"}, serve: texts(textRequest.instructions)}},
	"voice":                   {http.MethodGet: {needs: aReader, query: formats, serve: texts(textRequest.voice)}},
	"templates":               {http.MethodGet: {needs: aReader, query: formats, serve: texts(textRequest.templates)}},
	"templates/{name}":        {http.MethodGet: {needs: aReader, query: []string{"format", "version", "label"}, serve: texts(textRequest.template)}},
	"templates/{name}/render": {http.MethodPost: {needs: aReader, query: formats, body: maxBody, serve: texts(textRequest.render)}},

	"admin/templates": {http.MethodGet: {needs: anOperator, serve: operators(operatorRequest.adminList)}},
	"admin/templates/{name}": {
		http.MethodGet: {needs: anOperator, query: []string{"version"}, serve: operators(operatorRequest.adminShow)},
		http.MethodPut: {needs: anOperator, body: maxDocument, serve: operators(operatorRequest.adminPut)},
	},
	"admin/templates/{name}/promote":  {http.MethodPost: {needs: anOperator, body: maxBody, serve: operators(operatorRequest.adminPromote)}},
	"admin/templates/{name}/rollback": {http.MethodPost: {needs: anOperator, body: maxBody, serve: operators(operatorRequest.adminRollback)}},
	"admin/templates/{name}/revoke":   {http.MethodPost: {needs: anOperator, body: maxBody, serve: operators(operatorRequest.adminRevoke)}},
	"admin/access":                    {http.MethodGet: {needs: anOperator, serve: operators(operatorRequest.adminAccess)}},
	"admin/canary":                    {http.MethodPost: {needs: anOperator, body: maxBody, serve: operators(operatorRequest.adminCanary)}},
	"admin/sessions": {
		http.MethodGet:  {needs: anOperator, serve: operators(operatorRequest.adminSessions)},
		http.MethodPost: {needs: anOperator, body: maxBody, serve: operators(operatorRequest.adminIssue)},
	},
	"admin/sessions/{id}/revoke": {http.MethodPost: {needs: anOperator, body: maxBody, serve: operators(operatorRequest.adminRevokeSession)}},
	"admin/status":               {http.MethodGet: {needs: anOperator, serve: operators(operatorRequest.adminStatus)}},
}

// Serves reports whether the path exists for callers over TCP.
func Serves(path string) bool {
	_, _, ok := find(path)
	return ok && !strings.HasPrefix(path, prefixAdmin)
}

// find returns the routes of a path exactly as it was sent: nothing is decoded or
// cleaned, so that every reader of the path agrees on it. name is the document or
// the session in it.
func find(path string) (m methods, name string, ok bool) {
	rest, ok := strings.CutPrefix(path, prefix)
	if !ok || strings.ContainsAny(rest, "{}") {
		return nil, "", false
	}
	parts := strings.Split(rest, "/")
	for i := 1; i < len(parts) && name == ""; i++ {
		switch part := parts[i]; {
		case parts[i-1] == "templates" && document.ValidName(part):
			name, parts[i] = part, anyName
		case parts[i-1] == "sessions" && isSession(part):
			name, parts[i] = part, anySession
		}
	}
	m, ok = table[strings.Join(parts, "/")]
	return m, name, ok
}
