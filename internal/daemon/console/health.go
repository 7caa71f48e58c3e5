package console

import (
	"fmt"
	"maps"
	"slices"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/daemon/health"
	"github.com/doorward/doorward/internal/trust/audit"
)

// healthData is the page Health.
type healthData struct {
	Checks   []health.Check
	Status   admin.Status
	Refusals []Setting
	Limits   []Setting
	// Children is how many processes of servers run.
	Children int
	// Checkpoint is the last signed one; Signed: there is one.
	Checkpoint audit.Mark
	Signed     bool
}

// health shows what is wrong, the limits, and how the record is.
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
