package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/downstream/peer"
)

// Open reads the keys and the rows, or creates keys if there are none. Live sessions that
// have expired, or whose bound process is gone, end at once.
func Open(ctx context.Context, o Options) (*Keeper, error) {
	if o.DB == nil || o.Dir == "" || o.Installation == "" || o.Record == nil {
		return nil, errors.New("opening the sessions: a database, a directory, an installation and a recorder are needed")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Gone == nil {
		o.Gone = peer.Gone
	}
	if o.Ended == nil {
		o.Ended = func(Session) {}
	}
	k := &Keeper{o: o, tokens: tokens{short(o.Installation, maxAudience)}, limits: limits{subject: 1000, all: 10_000, ended: 20_000, renewals: 16},
		over: make(chan struct{}), poke: make(chan struct{}, 1), slow: make(chan struct{}, 1),
		sessions: make(map[string]*entry), grants: make(map[digest]*grant), live: make(map[string]int)}
	k.rows.o = &k.o
	close(k.over)
	keys, err := openKeys(o.Dir, o.Now())
	if err == nil {
		k.place, err = durable.Pin(filepath.Join(o.Dir, keyFile))
	}
	if err != nil {
		return nil, fmt.Errorf("opening the sessions: %w", err)
	}
	k.ring.Store(keys)
	if err := k.load(ctx); err != nil {
		return nil, fmt.Errorf("opening the sessions: %w", err)
	}
	k.untold = upkeep{k}.look()
	if err := (upkeep{k}).save(ctx); err != nil {
		o.Log.Error(unsaved, slog.Any("error", err))
	}
	return k, nil
}
