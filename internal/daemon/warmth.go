package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/relay"
	"github.com/doorward/doorward/internal/trust/principal"
	"github.com/doorward/doorward/internal/upstream"
)

// warmth starts the programs that were used before together with the daemon, so that their
// tools are ready at once. It stores in the state directory for which clients of the daemon's
// own user each program was started last.
type warmth struct {
	path string
	uid  uint32
	log  *slog.Logger

	mu    sync.Mutex
	faces map[string]relay.Face // by server
	run   func(*config.Config)  // nil: the daemon does not serve yet
}

// warmBytes is the largest size of the file.
const warmBytes = 1 << 20

// openWarmth reads the stored uses. Without them programs start when they are first needed.
func openWarmth(stateDir string, uid uint32, log *slog.Logger) *warmth {
	w := &warmth{path: filepath.Join(stateDir, "used.json"), uid: uid, log: log, faces: make(map[string]relay.Face)}
	b, err := durable.ReadFile(w.path)
	if err == nil && len(b) <= warmBytes {
		err = json.Unmarshal(b, &w.faces)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the list of used servers cannot be read; they start when first needed", "err", err)
	}
	maps.DeleteFunc(w.faces, func(_ string, f relay.Face) bool { return !w.mine(f) })
	return w
}

// mine reports whether a face belongs to the daemon's own user, or to all principals.
func (w *warmth) mine(f relay.Face) bool { return f.Who == "" || isOwn(w.uid)(f.Who) }

// opened notes that a program was started for clients.
func (w *warmth) opened(server string, f relay.Face) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old, known := w.faces[server]
	if !w.mine(f) || known && (old == f || !f.Before(old)) {
		return
	}
	w.faces[server] = f
	b, err := json.Marshal(w.faces)
	if err == nil {
		err = durable.ReplaceAt(w.path, b)
	}
	if err != nil {
		w.log.Warn("the list of used servers could not be stored", "err", err)
	}
}

// start starts the due servers of a configuration, and enables again for later ones, until
// ctx ends.
func (w *warmth) start(ctx context.Context, r *relay.Relay, c *config.Config) {
	run := func(c *config.Config) {
		go relay.Warm(ctx, r, w.due(c), func(server string, err error) {
			if err != nil && ctx.Err() == nil {
				w.log.Warn("a server was not started with the daemon", "server", server, "err", err)
			}
		})
	}
	w.mu.Lock()
	w.run = run
	w.mu.Unlock()
	run(c)
}

// again starts the due servers of a new configuration.
func (w *warmth) again(c *config.Config) {
	w.mu.Lock()
	run := w.run
	w.mu.Unlock()
	if run != nil {
		run(c)
	}
}

// due returns the servers that start with the daemon, each with the face of its last use.
func (w *warmth) due(c *config.Config) map[string]relay.Face {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[string]relay.Face)
	for name, s := range c.Servers {
		f, used := w.faces[name]
		start := s.Doorward.Start
		if s.Disabled || s.Refused != "" || s.Kind != upstream.KindStdio || start == "lazy" || start == "auto" && !used {
			continue
		}
		if !used {
			f = relay.Face{Who: principal.UID(w.uid)}
		}
		out[name] = f
	}
	return out
}
