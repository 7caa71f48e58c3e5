package console

import (
	"time"

	"github.com/doorward/doorward/internal/daemon/admin"
)

// nowData is the data of the page Now.
type nowData struct {
	Hour     summary
	Status   admin.Status
	Trouble  []admin.Server // servers with a problem
	Withheld int
	Pending  []Held
	At       time.Time
}

// now shows the present state of the daemon.
func (c *Console) now(q *request) (page, error) {
	d := nowData{Status: c.o.Status(), At: c.o.Now()}
	var err error
	if d.Hour, err = c.hour.read(q.ctx); err != nil {
		return page{}, err
	}
	d.Hour.Clients = d.Hour.Clients[:min(len(d.Hour.Clients), 20)]
	for _, s := range d.Status.Servers {
		d.Withheld += len(s.Withheld)
		if s.State != "connected" && s.State != "idle" {
			d.Trouble = append(d.Trouble, s)
		}
	}
	if d.Pending, err = c.pending(q); err != nil {
		return page{}, err
	}
	return page{View: "now", Title: "Now", Live: true, Part: Prefix + "?part=1", Data: d}, nil
}
