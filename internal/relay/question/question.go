// Package question finds the questions that servers ask clients, wherever they are in a
// message: as requests, in input_required, in errors.
//
// Invariant: every question in a message is passed to the function that decides on it,
// including one that only a parser that ignores case would find.
package question

import (
	"net/url"
	"strings"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
)

const (
	// OpenQuestions bounds the requests of one server that wait for its client.
	OpenQuestions = 64
	// PooledQuestions is the same where many clients share a connection.
	PooledQuestions = 1024
)

// InCall returns the client of a call, for questions in the server's messages during it. A
// legacy client cannot be asked that way.
func InCall(x *front.Exchange) Client {
	if x.Era == front.Modern {
		caps := rawjson.GetPath(x.Params, "_meta", wire.MetaCapabilities)
		return Client{X: *x, Caps: caps, URLs: caps}
	}
	return Client{X: *x}
}

// HasFolded reports whether obj has a member of that name, in any case.
func HasFolded(obj []byte, name string) bool {
	for key := range rawjson.Members(obj) {
		if strings.EqualFold(key, name) {
			return true
		}
	}
	return false
}

// misspelt reports whether obj has a member of that name in another case.
func misspelt(obj []byte, name string) bool {
	for key := range rawjson.Members(obj) {
		if key != name && strings.EqualFold(key, name) {
			return true
		}
	}
	return false
}

// Client is the client that a server's question would reach.
type Client struct {
	X    front.Exchange // for the record
	Caps []byte         // the capabilities it declared for this way of asking; nil: it cannot be asked
	URLs []byte         // the same for the URLs of an error
	// Inside: the question is part of another message, where an unknown method is
	// not a question.
	Inside bool
}

// MixesTasks reports whether a request is about the tasks that a client keeps for the
// questions of servers (2025-11-25 Tasks). On the aggregate these would mix the tasks of all
// servers.
func (to Client) MixesTasks(method string) bool {
	return to.X.Session != nil && to.X.Session.Server == "" && strings.HasPrefix(bare(method), "tasks/")
}

// Serves reports whether a client that declared caps can be asked this. A method that
// Doorward does not know is left to the client and the server, unless a client that ignores
// case would take it for a known one.
func Serves(caps []byte, method string, params []byte) bool {
	capability := CapabilityOf(method)
	if capability == "" {
		return !resemblesAsk(method)
	}
	if !declares(caps, capability) || method != policy.AskElicitation {
		return declares(caps, capability)
	}
	switch mode := rawjson.Get(params, "mode"); {
	case rawjson.IsText(mode, "url"):
		text, _ := rawjson.GetString(params, "url")
		return declares(caps, "elicitation", "url") && safeURL(text)
	case mode == nil || rawjson.IsText(mode, "form"):
		return declares(caps, "elicitation", "form") || !declares(caps, "elicitation", "url")
	}
	return false // no mode that a client can have declared
}

// declares reports whether a client has declared a capability. Each capability is an object:
// a null in its place, which some libraries write, declares nothing.
func declares(caps []byte, path ...string) bool {
	value := rawjson.GetPath(caps, path...)
	return len(value) > 0 && value[0] == '{'
}

// safeURL reports whether a user may be sent to a URL: one with https, or on this machine. It
// fetches nothing.
func safeURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Host == "" {
		return false
	}
	switch u.Hostname() {
	case "localhost", "127.0.0.1", "::1":
		return u.Scheme == "http" || u.Scheme == "https"
	}
	return u.Scheme == "https"
}

// Kinds lists the kinds of questions: the capability of the client and the action that policy
// decides.
var Kinds = []struct{ Capability, Action string }{
	{"elicitation", policy.AskElicitation},
	{"sampling", policy.AskSampling},
	{"roots", policy.AskRoots},
}

// Other is the action of a question that is none of Kinds. Its method is the name of the act.
const Other = "question"

// CapabilityOf returns the capability with which a client declares that it can be asked this;
// empty: the method is not one of the kinds.
func CapabilityOf(method string) string {
	for _, a := range Kinds {
		if a.Action == method {
			return a.Capability
		}
	}
	return ""
}

// resemblesAsk reports whether a parser may take a method for one of the questions, because
// it ignores case, white space and hidden characters, or separates words.
func resemblesAsk(method string) bool {
	for _, a := range Kinds {
		if wire.Resembles(bare(method), a.Action) {
			return true
		}
	}
	return false
}

// bare returns a method in lower case, without hidden characters and white space around it.
func bare(method string) string {
	clean, _ := plaintext.Clean(method)
	return strings.ToLower(strings.TrimSpace(clean))
}

// Label puts the server's name in front of the message to the user: clients show who asks,
// and they know only Doorward (Elicitation, "Security Considerations"). It removes hidden
// characters from texts, so that none of them erases or moves the name. False: parts that
// must not be changed have hidden characters.
func Label(server string, params []byte) ([]byte, bool) {
	msg, _ := rawjson.GetString(params, "message")
	msg, _ = plaintext.Clean(msg)
	edits := []rawjson.Edit{{Key: "message", Value: rawjson.AppendQuote(nil, "["+server+"] "+msg)}}
	schema := rawjson.Get(params, "requestedSchema")
	clean, ok := cleanForm(schema)
	if !rawjson.Same(clean, schema) {
		edits = append(edits, rawjson.Edit{Key: "requestedSchema", Value: clean})
	}
	return rawjson.Set(params, edits...), ok
}

// cleanForm cleans the texts of a form. False: names of its fields or values to choose from
// have hidden characters; they cannot be cleaned, because they go back to the server.
func cleanForm(schema []byte) (clean []byte, ok bool) {
	ok = true
	clean = rawjson.MapStrings(schema, func(s rawjson.String) ([]byte, bool) {
		text, n := plaintext.Clean(string(s.Text))
		switch string(s.Key) {
		case "title", "description", "default":
			return []byte(text), n > 0
		}
		ok = ok && n == 0
		return nil, false
	})
	return clean, ok
}

// MayAsk lists the methods that may answer input_required (MRTR, "Supported
// Requests").
func MayAsk(method string) bool {
	return method == "tools/call" || method == "prompts/get" || method == "resources/read"
}

// HasURLMode reports whether a modern client can be sent to a URL.
func HasURLMode(x *front.Exchange) bool {
	return declares(x.Params, "_meta", wire.MetaCapabilities, "elicitation", "url")
}
