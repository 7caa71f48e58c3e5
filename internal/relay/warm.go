package relay

import (
	"context"
	"sync"

	"github.com/doorward/doorward/internal/downstream/front"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream"
)

// warmAtOnce is how many programs are started at once ahead of need.
const warmAtOnce = 4

// Warm opens the connections of the given servers, each for its face, and keeps them open
// without use. Connections kept by an earlier Warm are no longer kept. done is called for
// each of the servers. Warm returns when all are open or have failed.
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

// warmed marks the link of a face as the only one that stays open; nil: later clients share no
// process of this server.
func warmed(r *Relay, b *backend, f Face, wanted bool) *link {
	b.mu.Lock()
	for _, l := range b.pool {
		l.warm.Store(false)
	}
	b.mu.Unlock()
	if !wanted || b.Kind != upstream.KindStdio || b.Builtin != nil || b.Instances == "session" || b.PerSession && (!f.Modern || f.bare()) {
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
	l := r.links.keyed(b, who, era, d, d.key(key))
	l.warm.Store(true)
	return l
}
