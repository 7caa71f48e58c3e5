package daemon

import (
	"log/slog"
	"path/filepath"

	"github.com/doorward/doorward/internal/downstream/sessionstore"
)

// keeper keeps the sessions of HTTP clients for the next run of the daemon.
type keeper struct {
	*sessionstore.Store
	log    *slog.Logger
	failed *repeated
}

// openKeeper opens the store of sessions in the state directory.
func openKeeper(state string, log *slog.Logger) (keeper, error) {
	store, err := sessionstore.Open(filepath.Join(state, "mcp-sessions"))
	return keeper{store, log, &repeated{}}, err
}

// Keep implements front.Keeper. A session that cannot be stored works until the daemon ends. Keep
// then removes its earlier copy, with which it would otherwise continue.
func (k keeper) Keep(name string, content []byte) {
	if err := k.Store.Keep(name, content); err != nil {
		k.Store.Drop(name)
		k.failed.warn(k.log, "a session could not be saved and will be lost at a restart", err)
	}
}
