// Package offer judges what a server offers on one connection: its lists against what
// was approved, and the names that clients use against its lists.
//
// Invariant: of a pinned server, a name is used and an entry is shown only as far as a
// verdict about the server's own list lets it, which was made on the same connection and
// has neither been revoked nor been followed by a change of the list.
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

// Options are what the offers of a connection are judged with.
type Options struct {
	Conn  upstream.Conn
	Era   front.Era  // of the server
	Hello []byte     // what it said of itself
	Meta  []byte     // of requests that Doorward makes itself, see era.OwnParams
	Guard *pin.Guard // nil: everything is offered
	// Caps are the capabilities that were declared to a legacy server.
	Caps []byte
	// Table has the header annotations of the server's tools; Learn fills it from lists
	// that are asked for.
	Table *paramheader.Table
	Learn bool
}

// Offers are what a server offers on one connection.
type Offers struct {
	o     Options
	view  *pin.View
	lists [pin.KindCount]list
}

// New returns the offers of a new connection, and notes what its server says of itself.
func New(o Options) *Offers {
	f := &Offers{o: o}
	if o.Guard != nil {
		f.view = o.Guard.View()
		afterwards(o.Conn, f.view.Close)
		f.view.Meet(f.era(), wire.Get(o.Hello, "capabilities"), wire.Get(o.Hello, "instructions"))
	}
	return f
}

// ending is a connection that calls f once it can carry no more calls.
type ending interface{ AfterDone(f func()) }

// afterwards has f called when the connection has ended; a goroutine waits for that if the connection
// cannot do it.
func afterwards(c upstream.Conn, f func()) {
	if e, ok := c.(ending); ok {
		e.AfterDone(f)
		return
	}
	go func() {
		<-c.Done()
		f()
	}()
}

func (f *Offers) era() string {
	if f.o.Era == front.Modern {
		return "modern"
	}
	return "legacy"
}

// telling are the capabilities of a client by which some servers decide what they offer.
var telling = [][]string{{"elicitation"}, {"elicitation", "url"}, {"roots"}, {"sampling"}, {"sampling", "tools"}, {"tasks"}}

// asker is for whom a list is asked: of a modern server by the request with params, of a
// legacy one by the connection.
func (f *Offers) asker(params []byte) pin.Asker {
	caps := wire.GetPath(params, "_meta", wire.MetaCapabilities)
	if f.o.Era == front.Legacy {
		caps = f.o.Caps
	}
	var words []string
	for _, path := range telling {
		if wire.GetPath(caps, path...) != nil {
			words = append(words, strings.Join(path, "."))
		}
	}
	return pin.Asker{Era: f.era(), Client: strings.Join(words, ",")}
}

// Changed is called for a notification: the lists that it says have changed are asked
// for again at the next use.
func (f *Offers) Changed(method string) {
	for k, list := range listing.ListMethods {
		if kind, _ := listing.Of(list); kind.Changed == method {
			f.lists[k].forget()
		}
	}
}

// Changes is how often the list of a method has changed so far.
func (f *Offers) Changes(method string) uint64 {
	if k, ok := listing.PinKind(method); ok {
		return f.lists[k].changes.Load()
	}
	return 0
}

// Greeting is what the server says of itself as clients may see it.
func (f *Offers) Greeting(result []byte) []byte {
	if f.view == nil {
		return result
	}
	var edits []rawjson.Edit
	if text := wire.Get(result, "instructions"); text != nil {
		edits = append(edits, rawjson.Edit{Key: "instructions", Value: f.view.Instructions(f.era(), text)})
	}
	if info := wire.Get(result, "serverInfo"); info != nil {
		clean, _ := pin.CleanText(info, 0)
		edits = append(edits, rawjson.Edit{Key: "serverInfo", Value: clean})
	}
	result = rawjson.Set(result, edits...)
	if info := wire.GetPath(result, "_meta", wire.MetaServerInfo); info != nil {
		clean, n := pin.CleanText(info, 0)
		if n > 0 {
			result = rawjson.SetIn(result, "_meta", rawjson.Edit{Key: wire.MetaServerInfo, Value: clean})
		}
	}
	return result
}
