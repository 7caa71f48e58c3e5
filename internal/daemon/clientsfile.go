package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/doorward/doorward/internal/base/durable"
)

// clientsFile is the file in the state directory with what the next run of the daemon has to
// know about clients.
const clientsFile = "clients.json"

// keptClients is the content of the file.
type keptClients struct {
	Above   map[string]map[uint32]oldest `json:"above"`   // orphans.heard
	Running map[string]client            `json:"running"` // clients.known
}

// load reads what earlier runs noted, without the processes that have ended.
func (c *clients) load() error {
	c.orphans.oldestBelow = map[string]map[uint32]oldest{} // not nil, which marks a file of an older version
	b, err := durable.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var kept keptClients
	if err == nil {
		err = json.Unmarshal(b, &kept)
	}
	if err == nil && kept.Above == nil {
		err = json.Unmarshal(b, &kept.Above) // the file of an older version is this member alone
	}
	if err != nil {
		return fmt.Errorf("the list of clients %s cannot be read, perhaps because a newer version wrote it: %w; end all MCP clients, and move it away", c.path, err)
	}
	c.orphans.oldestBelow, c.known = kept.Above, kept.Running
	c.orphans.prune()
	c.forget()
	return nil
}

// keep stores a change in the background.
func (c *clients) keep() {
	if c.path == "" {
		return
	}
	c.changed.Store(true)
	go c.save()
}

// save writes the file if there is an unsaved change. One write covers all changes before it.
func (c *clients) save() {
	c.saving.Lock()
	defer c.saving.Unlock()
	if !c.changed.Swap(false) {
		return
	}
	b, err := c.marshal()
	if err == nil {
		err = durable.ReplaceAt(c.path, b)
	}
	if err != nil {
		c.failed.warn(c.log, "the list of clients could not be stored; after a restart, the shell of a client or its orphan may be mistaken for a terminal of the operator", err)
	}
}

func (c *clients) marshal() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	c.orphans.mu.Lock()
	defer c.orphans.mu.Unlock()
	return json.Marshal(keptClients{Above: c.orphans.oldestBelow, Running: c.known})
}
