// Package offer compares what a server offers on one connection with what was approved: its
// lists, and the names that clients use.
//
// Invariant: a name of a pinned server is used, and an entry is shown, only if a verdict
// allows it. The verdict is about the server's own list on the same connection, and the list
// has not changed since, nor has the verdict been revoked.
package offer

import (
	"strings"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/relay/listing"
	"github.com/doorward/doorward/internal/relay/paramheader"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/internal/upstream"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// Options holds what a connection's offers are judged with.
type Options struct {
	Conn  upstream.Conn
	Era   front.Era  // of the server
	Hello []byte     // InitializeResult or DiscoverResult, raw
	Meta  []byte     // _meta of requests that Doorward makes itself, see era.OwnParams
	Guard *pin.Guard // nil: everything is offered
	// Caps are the capabilities that were declared to a legacy server.
	Caps []byte
	// Table holds the header annotations of the server's tools; Learn fills it from lists
	// that are asked for.
	Table *paramheader.Table
	Learn bool
}

// Offers judges what a server offers on one connection.
type Offers struct {
	o     Options
	view  *pin.View
	lists [pin.KindCount]list
}

// New returns the offers of a new connection, and reports its server's greeting to the guard.
func New(o Options) *Offers {
	f := &Offers{o: o}
	if o.Guard != nil {
		f.view = o.Guard.View()
		upstream.After(o.Conn, f.view.Close)
		f.view.Meet(f.era(), rawjson.Get(o.Hello, "capabilities"), rawjson.Get(o.Hello, "instructions"))
	}
	return f
}

func (f *Offers) era() string {
	if f.o.Era == front.Modern {
		return "modern"
	}
	return "legacy"
}

// telling lists the capabilities of a client on which the offers of some servers depend.
var telling = [][]string{{"elicitation"}, {"elicitation", "url"}, {"roots"}, {"sampling"}, {"sampling", "tools"}, {"tasks"}}

// asker describes the client that a list is asked for: by the params of the request for a
// modern server, by the connection for a legacy one.
func (f *Offers) asker(params []byte) pin.Asker {
	caps := rawjson.GetPath(params, "_meta", wire.MetaCapabilities)
	if f.o.Era == front.Legacy {
		caps = f.o.Caps
	}
	var words []string
	for _, path := range telling {
		if rawjson.GetPath(caps, path...) != nil {
			words = append(words, strings.Join(path, "."))
		}
	}
	return pin.Asker{Era: f.era(), Client: strings.Join(words, ",")}
}

// Changed forgets the lists that a notification says have changed; their next use asks the
// server.
func (f *Offers) Changed(method string) {
	for k, list := range listing.ListMethods {
		if kind, _ := listing.Of(list); kind.Changed == method {
			f.lists[k].forget()
			if f.view != nil {
				f.view.Outdated(pin.Kind(k))
			}
		}
	}
}

// Changes returns how often the list of a method has changed so far.
func (f *Offers) Changes(method string) uint64 {
	if k, ok := listing.PinKind(method); ok {
		return f.lists[k].changes.Load()
	}
	return 0
}

// Greeting returns the server's greeting with what clients may see of it.
func (f *Offers) Greeting(result []byte) []byte {
	if f.view == nil {
		return result
	}
	var edits []rawjson.Edit
	if text := rawjson.Get(result, "instructions"); text != nil {
		edits = append(edits, rawjson.Edit{Key: "instructions", Value: f.view.Instructions(f.era(), text)})
	}
	if info := rawjson.Get(result, "serverInfo"); info != nil {
		clean, _ := pin.CleanText(info, 0)
		edits = append(edits, rawjson.Edit{Key: "serverInfo", Value: clean})
	}
	result = rawjson.Set(result, edits...)
	if info := rawjson.GetPath(result, "_meta", wire.MetaServerInfo); info != nil {
		clean, n := pin.CleanText(info, 0)
		if n > 0 {
			result = rawjson.SetIn(result, "_meta", rawjson.Edit{Key: wire.MetaServerInfo, Value: clean})
		}
	}
	return result
}
