package console

import (
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/daemon/admin"
	"github.com/doorward/doorward/internal/messaging/agent"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/upstream/pin"
)

// decisionsData is the data of the page Decisions.
type decisionsData struct {
	Calls    []Held
	Others   int  // later calls that are not shown
	NoCalls  bool // this daemon holds no calls
	Changes  []definitionChange
	More     int             // changes that are not shown
	Messages []agent.Message // that can be sent again
}

// definitionChange is one withheld definition.
type definitionChange struct {
	Server, Item, Digest, Detail string
	Reason                       pin.Reason
	Changes                      []pin.Change
	Bytes                        int64 // of all its changes
	Cut                          bool  // it is not shown completely, so it cannot be approved here
	Approvable                   bool
}

// The limits of a page: numbers of items and of changes, and the bytes of all items of a kind.
const (
	mostHeld   = 50
	mostBytes  = 24 << 10
	mostPlaces = 100
)

func (c *Console) pending(q *request) ([]Held, error) {
	if c.o.Approvals == nil {
		return nil, nil
	}
	all, err := c.o.Approvals.Pending(q.ctx, q.s.by)
	for i := range all {
		all[i].Passkey = c.o.PasskeyRequired
	}
	return all, err
}

// decisions shows the calls, messages and definitions that wait for a person.
func (c *Console) decisions(q *request) (page, error) {
	d := decisionsData{NoCalls: c.o.Approvals == nil}
	all, err := c.pending(q)
	if err != nil {
		return page{}, err
	}
	after, err := number(q.in.Get("after"))
	if err != nil {
		return page{}, err
	}
	d.show(slices.DeleteFunc(all, func(h Held) bool { return h.N-1 < after }))
	d.Changes, d.More = changesOf(c.o.Trust.List())
	if a := c.o.Agents(); a != nil {
		all, err := a.Holds(q.ctx, q.mailCaller())
		if err != nil {
			return page{}, err
		}
		again := slices.DeleteFunc(all, func(l agent.Message) bool { return l.State == mail.Held })
		d.Messages = again[:min(len(again), mostHeld)]
	}
	return page{View: "decisions", Title: "Decisions", Live: true, Part: fmt.Sprintf("%sdecisions?part=1&after=%d", Prefix, after), Data: d}, nil
}

// show takes the first calls that fit on the page, and counts the others, which are on the next
// page.
func (d *decisionsData) show(all []Held) {
	d.Calls = fitting(all)
	d.Others = len(all) - len(d.Calls)
}

// Last returns the number of the last call on the page; 0: it has none, and neither has any
// further one.
func (d decisionsData) Last() uint64 { return d.Calls[len(d.Calls)-1].N }

// Cut reports that the call is too long to be shown completely, so that it cannot be approved
// here.
func (h Held) Cut() bool { return h.Bytes() > mostBytes }

// Bytes returns the length of the texts that the caller chose.
func (h Held) Bytes() int64 { return int64(len(h.Tool) + len(h.Args) + len(h.Rest)) }

// fitting returns the first calls that fit on a page together, at least one.
func fitting(all []Held) []Held {
	left := int64(mostBytes)
	for i, h := range all {
		if left -= h.Bytes(); left < 0 && i > 0 || i == mostHeld {
			return all[:i]
		}
	}
	return all
}

// changesOf returns the first definitions that fit on a page, and the number of the others.
func changesOf(all []admin.Trust) (shown []definitionChange, more int) {
	left := mostBytes
	for _, t := range all {
		for _, w := range t.Withheld {
			if left <= 0 || len(shown) == mostHeld {
				more++
				continue
			}
			c, bytes := changeOf(t.Server, w, left)
			shown, left = append(shown, c), left-bytes
		}
	}
	return shown, more
}

// changeOf returns one definition, cut to that many bytes.
func changeOf(server string, w pin.Withheld, most int) (out definitionChange, bytes int) {
	out = definitionChange{Server: server, Item: w.Item, Digest: w.Digest, Detail: w.Detail, Reason: w.Reason,
		Approvable: w.Reason != pin.Refused && w.Digest != ""}
	for _, place := range w.Changes() {
		bytes += len(place.Path) + len(place.Before) + len(place.After)
		if out.Cut = out.Cut || bytes > most || len(out.Changes) == mostPlaces; !out.Cut {
			out.Changes = append(out.Changes, place)
		}
	}
	out.Bytes = int64(bytes)
	return out, bytes
}

// approveDefinition approves the definition with the digest that was shown.
func (f acts) approveDefinition(q *request) (said, next string, err error) {
	server, want := q.in.Get("server"), q.in.Get("digest")
	for _, t := range f.c.o.Trust.List() {
		for _, w := range t.Withheld {
			if t.Server != server || want == "" || w.Digest != want || w.Reason == pin.Refused {
				continue
			}
			err := f.c.o.Trust.Approve(q.s.by.Who, server, []pin.Approval{{Item: w.Item, Digest: w.Digest}})
			return "Approved: " + server + " " + w.Item, "decisions", err
		}
	}
	return "", "", admin.ErrStale
}

// settleCall decides a held call.
func (f acts) settleCall(q *request) (said, next string, err error) {
	if f.c.o.Approvals == nil {
		return "", "", errAway
	}
	n, err := number(q.in.Get("n"))
	v := Verdict{Decision: q.in.Get("decision"), For: q.in.Get("for"), Why: strings.TrimSpace(q.in.Get("why")), Preview: q.in.Get("preview")}
	if err != nil || v.Decision != "approve" && v.Decision != "deny" {
		return "", "", errForm
	}
	if v.Decision == "approve" {
		v.Why = ""
		if v.Passkey, err = (passkeyPages(f)).approved(q, n); err != nil {
			return "", "", err
		}
	} else {
		v.For = ""
	}
	if err := f.c.o.Approvals.Settle(q.ctx, q.s.by, n, v); err != nil {
		return "", "", err
	}
	return fmt.Sprintf("%d: %s.", n, v.Decision), "decisions", nil
}

// settleMessage sends a message again, or ends it. A held message is decided like a
// call.
func (f acts) settleMessage(q *request) (said, next string, err error) {
	a := f.c.o.Agents()
	if a == nil {
		return "", "", errAway
	}
	do := q.in.Get("do")
	if do != agent.HoldRequeue && do != agent.HoldPurge {
		return "", "", errForm
	}
	done, err := a.Settle(q.ctx, q.mailCaller(), do, q.in.Get("message"))
	if err != nil {
		return "", "", err
	}
	var text []string
	for _, s := range done {
		text = append(text, s.MessageID+": "+s.State)
	}
	return strings.Join(text, ", "), "decisions", nil
}

// mailCaller returns the operator as a caller of messaging.
func (q *request) mailCaller() agent.Caller {
	return agent.Caller{Who: q.s.by.Who, Processes: q.s.by.Processes, Complete: true, Continues: q.continues}
}
