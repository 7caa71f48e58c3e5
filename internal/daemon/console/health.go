package console

import (
	"fmt"
	"maps"
	"slices"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/health"
	"github.com/doorward/doorward/internal/trust/audit"
)

// healthData is the data of the page Health.
type healthData struct {
	Checks   []health.Check
	Status   admin.Status
	Refusals []Setting
	Limits   []Setting
	// Children is the number of running processes of servers.
	Children int
	// Checkpoint is the last signed checkpoint, if Signed.
	Checkpoint audit.Mark
	Signed     bool
}

// health shows the problems, the limits and the state of the record.
func (c *Console) health(*request) (page, error) {
	d := healthData{Status: c.o.Status(), Limits: c.o.Limits}
	d.Checks = health.OfStatus(d.Status)
	d.Checkpoint, d.Signed = c.o.Checkpoint()
	for _, s := range d.Status.Servers {
		d.Children += len(s.Processes)
	}
	all := c.o.Refusals()
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		d.Refusals = append(d.Refusals, Setting{kind, fmt.Sprint(all[kind])})
	}
	return page{View: "health", Title: "Health", Live: true, Part: Prefix + "health?part=1", Data: d}, nil
}
