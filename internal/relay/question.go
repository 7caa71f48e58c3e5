package relay

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/doorward/doorward/internal/base/plaintext"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/gate"
	"github.com/doorward/doorward/internal/trust/policy"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
)

// errAsksTooMuch is an upstream failure: the server asked this client for
// something that it did not declare or that policy forbids.
var errAsksTooMuch = fmt.Errorf("the server asked for what the client does not offer: %w", upstream.ErrProtocol)

// asked is the client that a server's question would reach.
type asked struct {
	x    front.Exchange // for the record
	caps []byte         // what it declared for this way of asking; nil: it cannot be asked
	urls []byte         // the same for the URLs of an error
	// inside: the question is part of another message, where an unknown method is
	// not a question.
	inside bool
}

// question passes one question of a server to its client, wherever it is in a
// message: it is decided, recorded, and labelled with the server's name. The
// caller leaves the pass once the outcome is known. After an error nothing of the
// question may reach the client.
func (l *link) question(to asked, method string, params []byte) (labelled []byte, pass gate.Pass, err error) {
	to.x.Size = int64(len(params))
	act := l.r.act(&to.x, l.b.Name, method, "")
	act.Kind = gate.Question
	if pass, err = l.r.gate.Enter(act); err != nil {
		return nil, pass, errors.Join(errAsksTooMuch, err)
	}
	ok := serves(to.caps, method, params) && !(to.inside && capabilityOf(method) == "") && !to.mixesTasks(method)
	if ok && method == policy.AskElicitation {
		params, ok = label(l.b.Name, params)
	}
	if !ok {
		pass.Leave("unsupported", 0)
		return nil, pass, errAsksTooMuch
	}
	return params, pass, nil
}

// mixesTasks reports a request about the tasks that a client keeps for the questions of
// servers (2025-11-25 Tasks). On the aggregate they would be those of all its servers.
func (to asked) mixesTasks(method string) bool {
	return to.x.Session != nil && to.x.Session.Server == "" && strings.HasPrefix(bare(method), "tasks/")
}

// serves reports whether a client that declared caps can be asked this. A
// method that Doorward does not know is between the client and the server, unless
// a client that ignores case would take it for one that is known.
func serves(caps []byte, method string, params []byte) bool {
	capability := capabilityOf(method)
	if capability == "" {
		return !resemblesAsk(method)
	}
	if !declares(caps, capability) || method != policy.AskElicitation {
		return declares(caps, capability)
	}
	switch mode := wire.Get(params, "mode"); {
	case isText(mode, "url"):
		text, _ := wire.GetString(params, "url")
		return declares(caps, "elicitation", "url") && safeURL(text)
	case mode == nil || isText(mode, "form"):
		return declares(caps, "elicitation", "form") || !declares(caps, "elicitation", "url")
	}
	return false // no mode that a client can have declared
}

// declares reports whether a client has declared a capability. Each of them is an
// object: a null in its place, which some libraries write, declares nothing.
func declares(caps []byte, path ...string) bool {
	value := wire.GetPath(caps, path...)
	return len(value) > 0 && value[0] == '{'
}

func isText(raw []byte, want string) bool {
	text, ok := wire.Text(raw)
	return ok && text == want
}

// safeURL admits what a user may be sent to: https, or this machine. Nothing is
// fetched here.
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

// askOf maps a client capability to the action that policy decides.
var askOf = []struct{ capability, action string }{
	{"elicitation", policy.AskElicitation},
	{"sampling", policy.AskSampling},
	{"roots", policy.AskRoots},
}

func capabilityOf(method string) string {
	for _, a := range askOf {
		if a.action == method {
			return a.capability
		}
	}
	return ""
}

// resemblesAsk reports whether a method is one of the questions for a reader that
// ignores case, white space and hidden characters, or separates words.
func resemblesAsk(method string) bool {
	for _, a := range askOf {
		if wire.Resembles(bare(method), a.action) {
			return true
		}
	}
	return false
}

// bare is a method as a careless reader sees it.
func bare(method string) string {
	clean, _ := plaintext.Clean(method)
	return strings.ToLower(strings.TrimSpace(clean))
}

// label puts the server's name in front of what it asks the user: clients
// show who asks, and they know only Doorward (Elicitation, "Security
// Considerations"). Texts lose their hidden characters, so that none of them erases or
// moves the name. False: there are some in what has to stay as it is.
func label(server string, params []byte) ([]byte, bool) {
	msg, _ := wire.GetString(params, "message")
	msg, _ = plaintext.Clean(msg)
	edits := []rawjson.Edit{{Key: "message", Value: rawjson.AppendQuote(nil, "["+server+"] "+msg)}}
	schema := wire.Get(params, "requestedSchema")
	clean, ok := cleanForm(schema)
	if !same(clean, schema) {
		edits = append(edits, rawjson.Edit{Key: "requestedSchema", Value: clean})
	}
	return rawjson.Set(params, edits...), ok
}

// cleanForm cleans the texts of a form. False: names of its fields, or values to choose
// from, have hidden characters; these come back to the server as they are.
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
