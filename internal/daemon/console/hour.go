package console

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/daemon/history"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/policy"
)

// hour counts the acts of the last hour. It reads each line of the log once, however many pages
// show it.
type hour struct {
	dir string
	now func() time.Time

	mu      sync.Mutex
	seq     uint64 // number of the last record read
	minutes map[int64]*minute
	clients map[string]*clientUse
	callers map[string]*clientUse // by the text of principal and facts in a line
}

type minute struct{ calls, refused int }

// clientUse counts the acts of one program.
type clientUse struct {
	Client, Principal string
	Last              time.Time
	Calls, Refused    int
}

// maxHour is the largest number of lines that one call of read visits.
const maxHour = 50_000

// mostClients bounds the programs that are counted separately, mostCallers the cached texts of
// connections.
const mostClients, mostCallers = 200, 500

func newHour(dir string, now func() time.Time) *hour {
	return &hour{dir: dir, now: now, minutes: make(map[int64]*minute), clients: make(map[string]*clientUse), callers: make(map[string]*clientUse)}
}

// bar is one minute of the chart, which is 60 by 40 units large.
type bar struct {
	X, Calls, CallsY, Refused, RefusedY int
	Text                                string
}

// summary is the last hour.
type summary struct {
	Bars           []bar
	Calls, Refused int
	Clients        []clientUse
}

const chartHeight = 40

// read reads the new lines of the log, and returns the last hour.
func (h *hour) read(ctx context.Context) (summary, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since, newest, lines := h.now().Add(-time.Hour), h.seq, 0
	for line, err := range auditlog.Backwards(ctx, h.dir) {
		if err != nil {
			return summary{}, err
		}
		seq := history.SeqOf(line)
		newest = max(newest, seq)
		if lines++; seq <= h.seq || lines > maxHour || !h.take(line, since) {
			break
		}
	}
	h.seq = newest
	h.forget(since)
	return h.summary(), nil
}

// take counts one line; false: it is too old. Under load there are thousands of lines a second,
// so only the needed members are parsed.
func (h *hour) take(line []byte, since time.Time) bool {
	if !bytes.Contains(line[:min(len(line), 120)], []byte(`"kind":"decision"`)) || history.Member(line, "action") == policy.ActionAdmin {
		return true
	}
	at, err := time.Parse(time.RFC3339Nano, history.Member(line, "time"))
	if err != nil {
		return true
	}
	if at.Before(since) {
		return false
	}
	m := h.minutes[at.Unix()/60]
	if m == nil {
		m = new(minute)
		h.minutes[at.Unix()/60] = m
	}
	c := h.caller(line)
	if at.After(c.Last) {
		c.Last = at
	}
	if history.Member(line, "decision") == audit.Deny {
		m.refused++
		c.Refused++
		return true
	}
	m.calls++
	c.Calls++
	return true
}

// caller returns the counter of the caller of a line. All lines of one connection have the same
// text of facts.
func (h *hour) caller(line []byte) *clientUse {
	text, _, _ := bytes.Cut(line, []byte(`,"action":`))
	_, text, _ = bytes.Cut(text, []byte(`,"principal":`))
	text, _, _ = bytes.Cut(text, []byte(`,"session":"`))
	if c := h.callers[string(text)]; c != nil {
		return c
	}
	var r history.Record
	_ = json.Unmarshal(line, &r) // a line that cannot be parsed counts without a caller
	if len(h.callers) >= mostCallers {
		clear(h.callers)
	}
	c := h.client(history.Client(r.Facts), r.Principal)
	h.callers[string(text)] = c
	return c
}

func (h *hour) client(program, principal string) *clientUse {
	key := program + "\x00" + principal
	c := h.clients[key]
	if c == nil && len(h.clients) >= mostClients {
		program, principal, key = "others", "", "\x00"
		c = h.clients[key]
	}
	if c == nil {
		c = &clientUse{Client: program, Principal: principal}
		h.clients[key] = c
	}
	return c
}

func (h *hour) forget(since time.Time) {
	maps.DeleteFunc(h.minutes, func(at int64, _ *minute) bool { return at < since.Unix()/60 })
	for key, c := range h.clients {
		if c.Last.Before(since) {
			delete(h.clients, key)
			clear(h.callers)
		}
	}
}

func (h *hour) summary() summary {
	var out summary
	first, most := h.now().Unix()/60-59, 1
	for _, m := range h.minutes {
		most = max(most, m.calls+m.refused)
	}
	for i := range 60 {
		m := h.minutes[first+int64(i)]
		if m == nil {
			continue
		}
		out.Calls += m.calls
		out.Refused += m.refused
		b := bar{X: i, Calls: height(m.calls, most), Refused: height(m.refused, most)}
		b.CallsY, b.RefusedY = chartHeight-b.Calls, chartHeight-b.Calls-b.Refused
		out.Bars = append(out.Bars, b)
	}
	for _, c := range h.clients {
		out.Clients = append(out.Clients, *c)
	}
	slices.SortFunc(out.Clients, func(a, b clientUse) int {
		if c := b.Last.Compare(a.Last); c != 0 {
			return c
		}
		return strings.Compare(a.Client, b.Client)
	})
	return out
}

// height returns the height of a bar, at least one unit unless n is 0.
func height(n, most int) int {
	if n == 0 {
		return 0
	}
	return max(1, n*(chartHeight-2)/most)
}
