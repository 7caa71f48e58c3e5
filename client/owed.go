package client

import (
	"errors"
	"maps"
	"time"

	"github.com/doorward/doorward/internal/base/protocol"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// A subscription that the shim repeats in a new session may be refused there: its server may
// still be starting, or not be configured at the moment. The client does not see that answer, so
// the shim repeats the subscription later.

// owed holds the subscriptions of the client that one session lacks.
type owed struct {
	s       *shim
	uris    map[string][]byte                             // resources/subscribe messages by raw uri
	post    func(s *shim, line []byte) (*response, error) // sends one in the session that is open
	wants   func(uri string) bool                         // the session is open, and the client still subscribed
	changed chan struct{}                                 // receives when resources have changed
	over    chan struct{}                                 // closed when another session is opened
}

// owedTries is the number of later attempts without a change of resources, with pauseAfter
// between them.
const owedTries = 6

// subscribe repeats each subscription that the client still wants, and keeps those that the
// daemon refuses, and all that are left once no daemon answers. done is called for the others.
func (o *owed) subscribe(done func(uri string)) {
	away := false
	maps.DeleteFunc(o.uris, func(uri string, line []byte) bool {
		if away || !o.wants(uri) {
			return !away
		}
		ok, err := o.accepted(line)
		away = errors.Is(err, ErrNoDaemon)
		switch {
		case ok && o.wants(uri):
			done(uri)
		case ok:
			o.leave(uri)
			ok = !o.wants(uri) // again by now: the end may have crossed another beginning
		}
		return ok
	})
}

// leave ends a subscription that the client has ended while it was made. The session that has
// been replaced has none.
func (o *owed) leave(uri string) {
	select {
	case <-o.over:
		return
	default:
	}
	params := rawjson.Set(nil, rawjson.Edit{Key: "uri", Value: []byte(uri)})
	o.accepted(rawjson.AppendRequest(nil, wire.ID(`"doorward-leaves"`), "resources/unsubscribe", params))
	o.s.channel.left(&wire.Message{Method: "resources/unsubscribe", Params: params})
}

// accepted sends one request, and reports whether the daemon accepts it.
func (o *owed) accepted(line []byte) (ok bool, err error) {
	_, err = o.s.send(o.s.ctx, &wire.Message{}, func() (*response, error) {
		r, err := o.post(o.s, line)
		if err != nil {
			return nil, err
		}
		defer r.Body.Close()
		return r, o.s.c.messages(r.Response, func(got *wire.Message, _ []byte) bool {
			ok = got.Kind == wire.Response && got.Error == nil
			return got.Kind != wire.Response
		})
	})
	return ok && err == nil, err
}

// later calls subscribe until nothing is owed: for about a minute, and whenever resources have
// changed. A resource may have changed meanwhile, and the client is told so.
func (o *owed) later() {
	for failed := 0; len(o.uris) > 0; {
		var pause <-chan time.Time
		if failed < owedTries {
			pause = time.After(pauseAfter(failed))
		}
		select {
		case <-pause:
			failed++
		case <-o.changed:
		case <-o.over:
			return
		case <-o.s.ctx.Done():
			return
		}
		o.subscribe(func(uri string) { tellUpdated(o.s, uri) })
	}
}

// notice takes a message for the client, and notes a change of the list of resources. o may be
// nil.
func (o *owed) notice(got *wire.Message) {
	if o == nil || got.Method != protocol.ResourcesChanged {
		return
	}
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// tellUpdated notifies the client of a change of a resource, given its raw URI.
func tellUpdated(s *shim, uri string) {
	s.write(rawjson.AppendNotification(nil, protocol.ResourceUpdated, rawjson.Set(nil, rawjson.Edit{Key: "uri", Value: []byte(uri)})))
}
