package console

import (
	"maps"
	"net/url"
	"strconv"
	"time"

	"github.com/doorward/doorward/internal/daemon/history"
)

// perPage is the number of acts on a page. A live part is searched as far as its page, because
// it replaces the list of the page.
const perPage = 50

// activityData is the data of the page Activity.
type activityData struct {
	history.Found
	Filter   history.Filter
	From, To string // as entered in the form
	Servers  []string
	Older    string // the address of the next page; empty: none
	Newest   bool
}

// formTime is the format of <input type=datetime-local>, taken as UTC.
const formTime = "2006-01-02T15:04"

// activity lists the acts, the newest first.
func (c *Console) activity(q *request) (page, error) {
	f, err := filterOf(q.in)
	if err != nil {
		return page{}, err
	}
	before, err := number(q.in.Get("before"))
	if err != nil {
		return page{}, err
	}
	d := activityData{Filter: f, From: q.in.Get("from"), To: q.in.Get("to"), Newest: before == 0}
	if d.Found, err = history.Search(q.ctx, c.o.AuditDir, f, before, perPage); err != nil {
		return page{}, err
	}
	for _, s := range c.o.Status().Servers {
		d.Servers = append(d.Servers, s.Name)
	}
	kept := chosen(q.in)
	if d.Next > 0 {
		d.Older = Prefix + "activity?" + with(kept, "before", strconv.FormatUint(d.Next, 10))
	}
	return page{View: "activity", Title: "Activity", Live: d.Newest, Part: Prefix + "activity?" + with(kept, "part", "1"), Data: d}, nil
}

func filterOf(in url.Values) (f history.Filter, err error) {
	f = history.Filter{Client: in.Get("client"), Server: in.Get("server"), Tool: in.Get("tool"), Outcome: in.Get("outcome"), Session: in.Get("session"),
		Rule: in.Get("rule"), All: in.Get("all") != ""}
	if f.From, err = moment(in.Get("from")); err != nil {
		return f, err
	}
	f.To, err = moment(in.Get("to"))
	return f, err
}

func moment(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(formTime, text)
	if err != nil {
		return t, errForm
	}
	return t, nil
}

// chosen returns the filters of a request.
func chosen(in url.Values) url.Values {
	out := make(url.Values)
	for _, name := range []string{"client", "server", "tool", "outcome", "session", "rule", "from", "to", "all"} {
		if v := in.Get(name); v != "" {
			out.Set(name, v)
		}
	}
	return out
}

func with(in url.Values, name, value string) string {
	out := make(url.Values, len(in)+1)
	maps.Copy(out, in)
	out.Set(name, value)
	return out.Encode()
}

// recordData is one act with the acts around it.
type recordData struct {
	Entry      history.Entry
	Neighbours []history.Entry
}

// oneRecord shows one act, and the acts of the same session around it.
func (c *Console) oneRecord(q *request) (page, error) {
	seq, err := number(q.in.Get("seq"))
	if err != nil || seq == 0 {
		return page{}, errForm
	}
	at, err := history.Search(q.ctx, c.o.AuditDir, history.Filter{All: true}, seq+1, 1)
	if err != nil {
		return page{}, err
	}
	if len(at.Entries) == 0 || at.Entries[0].Seq != seq {
		return page{}, errNotFound
	}
	d := recordData{Entry: at.Entries[0]}
	if s := d.Entry.Session; s != "" {
		near, err := history.Search(q.ctx, c.o.AuditDir, history.Filter{All: true, Session: s}, seq+neighbours, 2*neighbours)
		if err != nil {
			return page{}, err
		}
		d.Neighbours = near.Entries
	}
	return page{View: "record", Title: "Record " + strconv.FormatUint(seq, 10), Data: d}, nil
}

// neighbours is the number of acts that are shown on each side of an act.
const neighbours = 10
