package subscribe

import (
	"maps"
	"slices"
	"sync"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
)

// Audience holds all clients that listen for changes of lists. They are told when the policy
// or the configuration changes what they may see, which no server reports.
type Audience struct {
	mu    sync.Mutex
	ears  map[int]Ear
	count int
}

// Ear is one client that listens.
type Ear struct {
	Announce func(method string)
	Sees     func(server string) bool // the server is on the client's route, and policy lets the client see it
}

// Join adds an ear; leave removes it.
func (a *Audience) Join(ear Ear) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ears == nil {
		a.ears = make(map[int]Ear)
	}
	a.count++
	n := a.count
	a.ears[n] = ear
	return func() {
		a.mu.Lock()
		delete(a.ears, n)
		a.mu.Unlock()
	}
}

// All returns the ears.
func (a *Audience) All() []Ear {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := slices.Collect(maps.Values(a.ears))
	return out
}

// ListCapability maps the notification of a list's change to the capability under which a
// server declares it.
var ListCapability = map[string]string{protocol.ToolsChanged: "tools", protocol.PromptsChanged: "prompts", protocol.ResourcesChanged: "resources"}

// URIParams returns the params of a request about one resource.
func URIParams(uri string) []byte {
	return rawjson.Set(nil, rawjson.Edit{Key: "uri", Value: rawjson.AppendQuote(nil, uri)})
}
