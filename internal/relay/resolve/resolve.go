// Package resolve turns a client's message into what it asks for: a method, one
// server, and the tool, prompt or URI that it names there.
//
// A request is resolved once. Policy decides on the Target, the record names it,
// and its params are forwarded to the server.
//
// Invariant: a Target is complete. Its request has an id. A method that names an
// object has a name, which is not empty. On the aggregate the name includes a
// server's name. A message that cannot be brought into this form is refused as a
// whole.
package resolve

import (
	"errors"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/visible"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Reasons why a message has no Target.
var (
	// ErrNoID is a request without an id, which has no answer.
	ErrNoID = errors.New("request without an id")
	// ErrMethod is a method that this route does not carry, or that some parsers would take
	// for another: one that has a hidden character, or that differs from a method of the protocol
	// only in case or in white space around it.
	ErrMethod = errors.New("no such method")
	// ErrName is a missing, malformed or ambiguous name, or on the aggregate one
	// that names no server.
	ErrName = errors.New("no such name")
)

// Target is one resolved message. Only Request, Listed and Notice make one; the
// zero Target has no method and is never let through.
type Target struct {
	method string
	server string // "": Doorward itself, for all servers of the caller
	name   string
	at     place
	params []byte
}

// Method returns the message's method.
func (t Target) Method() string { return t.method }

// Server returns the server that the message is for. It is empty on the aggregate for a
// method that concerns no single server.
func (t Target) Server() string { return t.server }

// Name returns the tool, prompt or URI with the server's own name. It is empty for a method
// that names none.
func (t Target) Name() string { return t.name }

// NamesURI reports whether Name is a URI.
func (t Target) NamesURI() bool { return t.at == inURI || t.at == inRefURI }

// Params returns the raw params for the server. The name in them is Name.
func (t Target) Params() []byte { return t.params }

// Request resolves a request on the route of one server, or with route "" on the
// aggregate. It depends on its arguments alone, and decides about no permission.
//
// params are bytes that wire.Parse accepted, or nil. The Target may share their memory, so
// they must not change as long as it is used; Request does not write to them.
//
// These methods name an object: tools/call, prompts/get, completion/complete,
// resources/read, resources/subscribe, resources/unsubscribe, resources/directory/read
// and skills/get. The Target of any other method has no name. On the aggregate such a
// method is for all servers (initialize, ping, server/discover, subscriptions/listen,
// logging/setLevel, and lists), or one member of its params, name, uri or taskId, says
// for which server it is.
//
// With an error the Target is zero:
//
//   - ErrNoID: id is nil.
//   - ErrMethod: the method is a notification, or a method of the protocol in another
//     spelling; on the aggregate also a request that only servers make, and a method
//     that is not for all servers and whose params have none of the three members,
//     several of them, or one in another case.
//   - ErrName: the name is missing, empty or no string; the ref of a completion is not
//     exactly one prompt or one resource; on the aggregate also a name that does not
//     begin with a server's name.
func Request(route, method string, id wire.ID, params []byte) (Target, error) {
	if id == nil {
		return Target{}, ErrNoID
	}
	at, err := placeOf(method, params)
	if err != nil {
		return Target{}, err
	}
	t := Target{method: method, server: route, at: at, params: params}
	if at == nowhere {
		if route != "" || spansServers(method) {
			return t, nil
		}
		return t.routed()
	}
	full, ok := at.read(params)
	if !ok || full == "" {
		return Target{}, ErrName
	}
	if t.name = full; route == "" {
		return t.split()
	}
	return t, nil
}

// split separates the server from the aggregate's name.
func (t Target) split() (Target, error) {
	part := SplitName
	if t.NamesURI() {
		part = SplitURI
	}
	server, name, ok := part(t.name)
	if !ok {
		return Target{}, ErrName
	}
	t.server = server
	return t.Renamed(name), nil
}

// routed finds the server of a method that names an object in a way that policy does
// not know: a task, or an object of a method that Doorward does not know. One member
// names it. The Target has a server and no name.
func (t Target) routed() (Target, error) {
	member, ok := naming(t.params)
	if !ok || isQuestion(t.method) {
		return Target{}, ErrMethod
	}
	full, _ := rawjson.GetString(t.params, member)
	part := SplitName
	if member == "uri" {
		part = SplitURI
	}
	server, name, ok := part(full)
	if !ok {
		return Target{}, ErrName
	}
	t.server = server
	t.params = rawjson.Set(t.params, rawjson.Edit{Key: member, Value: rawjson.AppendQuote(nil, name)})
	return t, nil
}

// naming returns the member of params that names an object. False: there is none, or a parser
// could take another member for it.
func naming(params []byte) (member string, ok bool) {
	n := 0
	for key := range rawjson.Members(params) {
		for _, known := range []string{"name", "uri", "taskId"} {
			if strings.EqualFold(key, known) {
				n++
				member, ok = key, key == known
			}
		}
	}
	return member, ok && n == 1
}

// Listed resolves one resource that a subscriptions/listen names, as the target of a
// resources/subscribe.
func Listed(route, uri string) (Target, error) {
	params := rawjson.Set(nil, rawjson.Edit{Key: "uri", Value: rawjson.AppendQuote(nil, uri)})
	return Request(route, "resources/subscribe", wire.IntID(0), params)
}

// Notice resolves a notification on the route of one server, where it names nothing, or
// with route "" on the aggregate, where it names an object of one server. The error is ErrMethod
// for a notification of the protocol in another spelling.
func Notice(route, method string, params []byte) (Target, error) {
	if !wire.IsNotification(method) || looksKnown(method, notifications) {
		return Target{}, ErrMethod
	}
	t := Target{method: method, server: route, params: params}
	if route == "" {
		return t.routed()
	}
	return t, nil
}

// At returns a request to the aggregate as one to the given server. A Target that has a
// server keeps it.
func (t Target) At(server string) Target {
	if t.server == "" {
		t.server = server
	}
	return t
}

// With returns t with other params. False: they name another object.
func (t Target) With(params []byte) (Target, bool) {
	if at, err := placeOf(t.method, params); err != nil || at != t.at {
		return Target{}, false
	}
	if t.at != nowhere {
		if name, ok := t.at.read(params); !ok || name != t.name {
			return Target{}, false
		}
	}
	t.params = params
	return t, true
}

// Renamed returns t with another name, in its params too. A Target without a name and an
// empty name change nothing.
func (t Target) Renamed(name string) Target {
	if t.at == nowhere || name == "" {
		return t
	}
	t.name, t.params = name, t.at.write(t.params, name)
	return t
}

// spansServers reports whether the aggregate answers a method for all its servers. Every list
// is such a method, even one that Doorward does not know.
func spansServers(method string) bool {
	switch method {
	case "initialize", "ping", "server/discover", "subscriptions/listen", "logging/setLevel":
		return true
	}
	return strings.HasSuffix(method, "/list") && !isQuestion(method) && !misread(method)
}

// isQuestion reports whether only servers make a request.
func isQuestion(method string) bool {
	return method == "elicitation/create" || method == "sampling/createMessage" || method == "roots/list"
}

// misread reports whether a method is not one of the protocol's requests, but some parser would
// take it for one. A notification counts as misread, because it has no answer.
func misread(method string) bool {
	return wire.IsNotification(strings.ToLower(strings.TrimSpace(method))) || looksKnown(method, requests)
}

// looksKnown reports whether a parser that ignores case, white space or what follows a hidden
// character would take a method for another one: to some, "tools/call\x00" is "tools/call".
func looksKnown(method string, known []string) bool {
	if strings.ContainsFunc(method, visible.Hidden) {
		return true
	}
	bare := strings.TrimSpace(method)
	return slices.ContainsFunc(known, func(k string) bool { return method != k && strings.EqualFold(bare, k) })
}

// requests lists the requests of all revisions, of clients and of servers.
var requests = []string{
	"initialize", "ping", "server/discover", "subscriptions/listen", "logging/setLevel", "completion/complete",
	"tools/list", "tools/call", "prompts/list", "prompts/get",
	"resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe",
	"tasks/list", "tasks/get", "tasks/result", "tasks/update", "tasks/cancel",
	"skills/list", "skills/get", "resources/directory/read",
	"elicitation/create", "sampling/createMessage", "roots/list",
}

// notifications lists the notifications of all revisions, of clients and of servers.
var notifications = []string{
	"notifications/cancelled", "notifications/initialized", "notifications/progress", "notifications/roots/list_changed",
	"notifications/message", "notifications/elicitation/complete", "notifications/subscriptions/acknowledged",
	"notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed",
	"notifications/resources/updated", "notifications/tasks/status", "notifications/tasks",
}
