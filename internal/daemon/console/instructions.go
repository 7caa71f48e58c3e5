package console

import (
	"context"
	"slices"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/doorward/doorward/internal/instructions/deliver"
	"github.com/doorward/doorward/internal/instructions/library"
)

// Instructions is the operator's side of instruction delivery
// (deliver.Operator).
type Instructions interface {
	List(ctx context.Context, by deliver.Caller) (*deliver.Listing, error)
	Versions(ctx context.Context, by deliver.Caller, name string) (*deliver.Versions, error)
	Show(ctx context.Context, by deliver.Caller, name, ref string) (*deliver.Shown, error)
	Promote(ctx context.Context, by deliver.Caller, name, version, label string) (*library.Act, error)
	Rollback(ctx context.Context, by deliver.Caller, name string) (*library.Act, error)
	Access(ctx context.Context, by deliver.Caller) (*deliver.Accessed, error)
}

// instructionsData is the data of the page Instructions.
type instructionsData struct {
	deliver.Listing
	Deliveries      []deliver.Access
	More, MoreReads int // numbers of entries that are not shown
}

const (
	mostDocuments  = 100
	mostDeliveries = 50
)

// instructions lists the documents and their readers.
func (c *Console) instructions(q *request) (page, error) {
	op := c.o.Instructions()
	all, err := op.List(q.ctx, q.guideCaller())
	if err != nil {
		return page{}, err
	}
	read, err := op.Access(q.ctx, q.guideCaller())
	if err != nil {
		return page{}, err
	}
	d := instructionsData{Listing: *all, Deliveries: read.Deliveries[:min(len(read.Deliveries), mostDeliveries)]}
	d.Templates = d.Templates[:min(len(d.Templates), mostDocuments)]
	d.More, d.MoreReads = len(all.Templates)-len(d.Templates), len(read.Deliveries)-len(d.Deliveries)
	return page{View: "instructions", Title: "Instructions", Data: d}, nil
}

// documentData is the data of the page of one document name.
type documentData struct {
	Name     string
	Versions []deliver.VersionInfo
	More     int
	Shown    *deliver.Shown
	Diff     []diffLine
	From, To string
}

type diffLine struct{ Kind, Text string }

// document shows the versions of a name, one content, and a difference.
func (c *Console) document(q *request) (page, error) {
	op, name := c.o.Instructions(), q.in.Get("name")
	all, err := op.Versions(q.ctx, q.guideCaller(), name)
	if err != nil {
		return page{}, err
	}
	d := documentData{Name: name, Versions: all.Versions[:min(len(all.Versions), mostDocuments)], From: q.in.Get("from"), To: q.in.Get("version")}
	d.More = len(all.Versions) - len(d.Versions)
	if d.To != "" {
		if d.Shown, err = op.Show(q.ctx, q.guideCaller(), name, d.To); err != nil {
			return page{}, err
		}
	}
	if d.From != "" && d.Shown != nil {
		from, err := op.Show(q.ctx, q.guideCaller(), name, d.From)
		if err != nil {
			return page{}, err
		}
		d.Diff = difference(from.Content, d.Shown.Content)
	}
	return page{View: "document", Title: "Instructions " + name, Data: d}, nil
}

// mostLines is the largest number of lines of a difference.
const mostLines = 500

func difference(before, after string) []diffLine {
	var out []diffLine
	for _, line := range splitLines(string(diff.Diff("before", []byte(before), "after", []byte(after)))) {
		if len(out) == mostLines {
			return append(out, diffLine{"", "…"})
		}
		switch line[0] {
		case '+':
			out = append(out, diffLine{"ins", line})
		case '-':
			out = append(out, diffLine{"del", line})
		default:
			out = append(out, diffLine{"", line})
		}
	}
	return out
}

// moveLabel promotes a version, or rolls back to the previous one.
func (f acts) moveLabel(q *request) (said, next string, err error) {
	op, name := f.c.o.Instructions(), q.in.Get("name")
	if !slices.Contains([]string{"promote", "rollback"}, q.in.Get("do")) {
		return "", "", errForm
	}
	said = name + ": promoted."
	if q.in.Get("do") == "promote" {
		_, err = op.Promote(q.ctx, q.guideCaller(), name, q.in.Get("version"), q.in.Get("label"))
	} else {
		said = name + ": rolled back."
		_, err = op.Rollback(q.ctx, q.guideCaller(), name)
	}
	return said, "instructions/one?" + query("name", name), err
}

// guideCaller returns the operator as a caller of instruction delivery.
func (q *request) guideCaller() deliver.Caller {
	return deliver.Caller{Who: q.s.by.Who, Processes: q.s.by.Processes, Complete: true}
}
