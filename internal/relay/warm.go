package relay

import (
	"context"
	"sync"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream"
)

// Face is whose clients a connection that they share is opened for, and what they
// declare to the server.
type Face struct {
	Who    string `json:"who"` // empty: all principals
	Modern bool   `json:"modern,omitempty"`
	Caps   string `json:"caps,omitempty"` // capabilities as canonical JSON; empty: none
	Info   string `json:"info,omitempty"` // clientInfo as canonical JSON; empty: Doorward's own
}

// declaration is what the connection of f declares.
func (f Face) declaration() (d declaration) {
	if f.Caps != "" {
		d.caps = []byte(f.Caps)
	}
	if f.Info != "" {
		d.info = []byte(f.Info)
	}
	return d
}

// bare reports a face without a session and without capabilities, such as that of the
// command line.
func (f Face) bare() bool { return f.Modern && f.Caps == "" }

// Before reports whether a server that was opened for f and for other is better opened
// for f ahead of need: an agent waits for its tools, a command can wait for itself.
func (f Face) Before(other Face) bool { return !f.bare() || other.bare() }

// warmAtOnce is how many programs are started at once ahead of need.
const warmAtOnce = 4

// Warm opens the connections of the given servers, each for its face, and keeps them
// when no session uses them; others that were kept no longer are. done is called for
// each of them. It returns when all are open or have failed.
func Warm(ctx context.Context, r *Relay, faces map[string]Face, done func(server string, err error)) {
	var wg sync.WaitGroup
	room := make(chan struct{}, warmAtOnce)
	for _, b := range r.table.Load().sorted {
		f, wanted := faces[b.Name]
		l := warmed(r, b, f, wanted)
		if l == nil {
			continue
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			_, err := l.get(ctx)
			done(b.Name, err)
		})
	}
	wg.Wait()
}

// warmed marks the link of a face as one that stays, and no other; nil: no sessions
// share a process of this server.
func warmed(r *Relay, b *backend, f Face, wanted bool) *link {
	b.mu.Lock()
	for _, l := range b.pool {
		l.warm.Store(false)
	}
	b.mu.Unlock()
	if !wanted || b.Kind != upstream.KindStdio || b.Builtin != nil || b.Instances == "session" || !f.Modern && b.PerSession {
		return nil
	}
	who, era := principal.New(f.Who).WithLocal(), front.Legacy
	if f.Modern {
		era = front.Modern
	}
	key, d := b.poolKey(who, era), f.declaration()
	if b.Instances == "shared" {
		who = nil
	}
	l := b.keyed(r, who, era, d, d.key(key))
	l.warm.Store(true)
	return l
}

// faceOf is whom the link is opened for; false: it is not one that is opened ahead of need.
func faceOf(l *link) (f Face, ok bool) {
	if l.key == "" || l.b.Kind != upstream.KindStdio || l.b.Builtin != nil {
		return f, false
	}
	f = Face{Who: l.who.Name(), Modern: l.client == front.Modern, Caps: string(l.says.caps), Info: string(l.says.info)}
	return f, l.says.key(l.b.poolKey(l.who, l.client)) == l.key // else it is a further one beside another
}
