package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/daemon/admin"
)

// servers lists the configured servers.
func (c *Console) servers(*request) (page, error) {
	return page{View: "servers", Title: "Servers", Live: true, Part: Prefix + "servers?part=1", Data: c.o.Status().Servers}, nil
}

// serverData is the data of the page of one server.
type serverData struct {
	admin.Server
	Items  []item
	More   int // items that are not shown
	Stderr []string
	Child  bool // it has processes that can be restarted
}

// item is one approved definition of a server.
type item struct {
	Key, Description string
	Bytes            int
	// Tokens estimates its cost for a model: one token for four bytes.
	Tokens int
}

// mostItems is the largest number of items that a page lists.
const mostItems = 200

func (c *Console) serverOf(q *request) (admin.Server, error) {
	for _, s := range c.o.Status().Servers {
		if s.Name == q.in.Get("server") {
			return s, nil
		}
	}
	return admin.Server{}, errNotFound
}

// server shows one server: its offer, its sandbox, its processes.
func (c *Console) server(q *request) (page, error) {
	s, err := c.serverOf(q)
	if err != nil {
		return page{}, err
	}
	d := serverData{Server: s, Stderr: c.o.Servers.Stderr(s.Name), Child: s.Kind == "stdio"}
	all := c.o.Servers.Definitions(s.Name)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if len(d.Items) == mostItems {
			d.More = len(all) - mostItems
			break
		}
		description, _ := rawjson.GetString(all[key], "description")
		d.Items = append(d.Items, item{Key: key, Description: description, Bytes: len(all[key]), Tokens: (len(all[key]) + 3) / 4})
	}
	return page{View: "server", Title: "Server " + s.Name, Data: d}, nil
}

// definitionData is one definition of a server.
type definitionData struct{ Server, Item, Text string }

// definition shows one definition as it was approved.
func (c *Console) definition(q *request) (page, error) {
	s, err := c.serverOf(q)
	if err != nil {
		return page{}, err
	}
	key := q.in.Get("item")
	raw, ok := c.o.Servers.Definitions(s.Name)[key]
	if !ok {
		return page{}, errNotFound
	}
	var text bytes.Buffer
	if json.Indent(&text, raw, "", "  ") != nil {
		text.Write(raw)
	}
	return page{View: "definition", Title: strings.Replace(key, ":", " ", 1), Data: definitionData{s.Name, key, text.String()}}, nil
}

// restart ends the processes of a server.
func (f acts) restart(q *request) (said, next string, err error) {
	name := q.in.Get("server")
	n, err := f.c.o.Servers.Restart(name)
	if err != nil {
		return "", "", err
	}
	return fmt.Sprintf("Ended %d of %s; it starts again at the next call.", n, name), "servers/one?" + query("server", name), nil
}

// look lists the offer of a server.
func (f acts) look(q *request) (said, next string, err error) {
	name := q.in.Get("server")
	t, err := f.c.o.Trust.Look(q.ctx, q.s.by.Who, name)
	if err != nil {
		return "", "", err
	}
	said = fmt.Sprintf("%s: %d withheld.", name, len(t.Withheld))
	if t.Unreached {
		said = name + " did not list what it offers."
	}
	return said, "servers/one?" + query("server", name), nil
}
