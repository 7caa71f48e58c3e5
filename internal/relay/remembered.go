package relay

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/doorward/doorward/internal/downstream/front"
)

// remembered is what a session has set up with its servers, as it is kept for the next
// run of the daemon.
type remembered struct {
	Level     json.RawMessage     `json:"level,omitempty"`     // params of the last logging/setLevel
	Resources map[string][]string `json:"resources,omitempty"` // subscribed to, by server
}

// recall brings a new binding to what its session had set up in an earlier run.
func (d *binding) recall() {
	var was remembered
	if json.Unmarshal(d.session.Remembered(), &was) != nil {
		return
	}
	d.level = was.Level
	for server, uris := range was.Resources {
		if d.kept == nil {
			d.kept = make(map[string]map[string]bool)
		}
		d.kept[server] = make(map[string]bool)
		for _, uri := range uris {
			d.kept[server][uri] = true
		}
	}
}

// note keeps what the session has set up by now. A subscription at a server that is part
// of the daemon belongs to more than the session, so it is not set up again, and a session
// that has one ends with the daemon.
func (d *binding) note() {
	builtin := false
	d.mu.Lock()
	now := remembered{Level: d.level, Resources: make(map[string][]string)}
	for server, uris := range d.kept {
		b := d.r.table.Load().byName[server]
		builtin = builtin || b != nil && b.Builtin != nil
		now.Resources[server] = slices.Sorted(maps.Keys(uris))
	}
	for b, h := range d.links {
		if uris := h.subscribed(); len(uris) > 0 {
			now.Resources[b.Name] = slices.Sorted(maps.Keys(uris))
			builtin = builtin || b.Builtin != nil
		}
	}
	d.mu.Unlock()
	if builtin {
		d.session.Remember(nil)
		return
	}
	if text, err := json.Marshal(now); err == nil {
		d.session.Remember(text)
	}
}

// subscribeAgain reaches the servers to whose resources the session was subscribed in an
// earlier run, so that it hears of changes before it calls anything there.
func (d *binding) subscribeAgain(x *front.Exchange) {
	for _, server := range d.awaited() {
		b := d.r.table.Load().byName[server]
		if b == nil || !d.r.visible(x.Who, server) {
			continue
		}
		again := &front.Exchange{Who: x.Who, Server: x.Server, Era: x.Era, Version: x.Version, Session: x.Session}
		go func() {
			ctx, cancel := context.WithTimeout(x.Session.Context(), dialTime)
			defer cancel()
			if _, err := d.r.linkFor(again, b).get(ctx); err != nil {
				d.r.log.Warn("the subscriptions of a session are not restored", "server", server, "err", err)
			}
		}()
	}
}

// subscribesAgain decides and records a subscription that is set up again: policy may
// have changed since the client asked for it.
func (d *binding) subscribesAgain(b *backend, uri string) bool {
	x := front.Exchange{Who: d.session.Owner(), Session: d.session, Confirmed: d.session.Confirmed()}
	act := d.r.act(&x, b.Name, "resources/subscribe", uri)
	return entersListed(d.r, b, act)
}

// awaited are the servers whose links the session gave up, or has not got yet.
func (d *binding) awaited() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.kept))
}
