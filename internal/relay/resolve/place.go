package resolve

import (
	"strings"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/visible"
	"github.com/doorward/doorward/internal/trust/wire"
)

// place says where the params of a method hold the name of an object.
type place uint8

const (
	nowhere place = iota
	inName
	inURI
	inRefName
	inRefURI
)

// placeOf returns the place of the name for a method. The error says that the method is one
// of the protocol in another spelling, or that a completion has no valid ref.
func placeOf(method string, params []byte) (place, error) {
	switch method {
	case "tools/call", "prompts/get":
		return inName, nil
	case "resources/read", "resources/subscribe", "resources/unsubscribe", "resources/directory/read", "skills/get":
		return inURI, nil
	case "completion/complete":
		return reference(rawjson.Get(params, "ref"))
	}
	if !spansServers(method) && misread(method) {
		return nowhere, ErrMethod
	}
	return nowhere, nil
}

// reference reads the ref of a completion. It names a prompt or a resource, never
// both, and says which. Servers choose by type or by the member that is there, and
// some ignore case, or what follows a hidden character.
func reference(ref []byte) (place, error) {
	kind, name, uri := "", false, false
	for key, value := range rawjson.Members(ref) {
		switch {
		case key == "type":
			kind, _ = wire.Text(value)
		case key == "name":
			name = true
		case key == "uri":
			uri = true
		case strings.EqualFold(key, "type"), strings.EqualFold(key, "name"), strings.EqualFold(key, "uri"), strings.ContainsFunc(key, visible.Hidden):
			return nowhere, ErrName
		}
	}
	switch {
	case kind == "ref/prompt" && name && !uri:
		return inRefName, nil
	case kind == "ref/resource" && uri && !name:
		return inRefURI, nil
	}
	return nowhere, ErrName
}

// member returns the key of the name.
func (p place) member() string {
	if p == inURI || p == inRefURI {
		return "uri"
	}
	return "name"
}

func (p place) inRef() bool { return p == inRefName || p == inRefURI }

func (p place) read(params []byte) (string, bool) {
	if p.inRef() {
		params = rawjson.Get(params, "ref")
	}
	return rawjson.GetString(params, p.member())
}

func (p place) write(params []byte, name string) []byte {
	edit := rawjson.Edit{Key: p.member(), Value: rawjson.AppendQuote(nil, name)}
	if p.inRef() {
		return rawjson.SetIn(params, "ref", edit)
	}
	return rawjson.Set(params, edit)
}
