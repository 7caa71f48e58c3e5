package console

import (
	"bytes"
	"cmp"
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
	seq     uint64            // number of the last record read
	left    time.Time         // time of the newest record that was left out; zero: none was
	minutes map[int64]*minute // by the Unix time in minutes
	callers map[string]caller // by the text of principal and facts in a line
}

// minute counts the acts of one minute.
type minute struct {
	calls, refused int
	clients        map[caller]*clientUse
}

// caller identifies a program of a principal.
type caller struct{ client, principal string }

// clientUse counts the acts of one program.
type clientUse struct {
	Client, Principal string
	Last              time.Time
	Calls, Refused    int
}

// maxHour is the largest number of lines that one call of read visits; older ones are left out.
const maxHour = 50_000

// mostClients bounds the programs that are counted separately in a minute, mostCallers the
// cached texts of connections.
const mostClients, mostCallers = 200, 500

func newHour(dir string, now func() time.Time) *hour {
	return &hour{dir: dir, now: now, minutes: make(map[int64]*minute), callers: make(map[string]caller)}
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
	Incomplete     bool // records of the hour were left out
}

const chartHeight = 40

// read reads the new lines of the log, and returns the last hour.
func (h *hour) read(ctx context.Context) (summary, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.now().Unix()/60 - 59
	if err := h.readNew(ctx, first); err != nil {
		return summary{}, err
	}
	maps.DeleteFunc(h.minutes, func(at int64, _ *minute) bool { return at < first })
	return h.summary(first), nil
}

// readNew counts the new lines from the minute first on. If it fails, it has counted none.
func (h *hour) readNew(ctx context.Context, first int64) error {
	fresh, newest, left, lines := make(map[int64]*minute), h.seq, h.left, 0
	for line, err := range auditlog.Backwards(ctx, h.dir) {
		if err != nil {
			return err
		}
		seq := history.SeqOf(line)
		newest = max(newest, seq)
		if lines++; lines > maxHour && seq > h.seq {
			left = timeOf(line, h.now())
		}
		if seq <= h.seq || lines > maxHour || !h.take(fresh, line, first) {
			break
		}
	}
	h.seq, h.left = newest, left
	for at, m := range fresh {
		minuteOf(h.minutes, at).add(m)
	}
	return nil
}

// timeOf returns the time of a line, and otherwise if it has none.
func timeOf(line []byte, otherwise time.Time) time.Time {
	at, err := time.Parse(time.RFC3339Nano, history.Member(line, "time"))
	if err != nil {
		return otherwise
	}
	return at
}

// take counts one line in fresh; false: it is too old. Under load there are thousands of lines a
// second, so only the needed members are parsed.
func (h *hour) take(fresh map[int64]*minute, line []byte, first int64) bool {
	if !bytes.Contains(line[:min(len(line), 120)], []byte(`"kind":"decision"`)) || history.Member(line, "action") == policy.ActionAdmin {
		return true
	}
	at := timeOf(line, time.Time{})
	switch {
	case at.IsZero():
		return true
	case at.Unix()/60 < first:
		return false
	}
	one := clientUse{Last: at, Calls: 1}
	if history.Member(line, "decision") == audit.Deny {
		one.Calls, one.Refused = 0, 1
	}
	minuteOf(fresh, at.Unix()/60).count(h.caller(line), one)
	return true
}

// caller returns the caller of a line. All lines of one connection have the same text of facts.
func (h *hour) caller(line []byte) caller {
	text, _, _ := bytes.Cut(line, []byte(`,"action":`))
	_, text, _ = bytes.Cut(text, []byte(`,"principal":`))
	text, _, _ = bytes.Cut(text, []byte(`,"session":"`))
	if c, known := h.callers[string(text)]; known {
		return c
	}
	var r history.Record
	_ = json.Unmarshal(line, &r) // a line that cannot be parsed counts without a caller
	if len(h.callers) >= mostCallers {
		clear(h.callers)
	}
	c := caller{history.Client(r.Facts), r.Principal}
	h.callers[string(text)] = c
	return c
}

// minuteOf returns a minute, which it makes if there is none.
func minuteOf(all map[int64]*minute, at int64) *minute {
	m := all[at]
	if m == nil {
		m = &minute{clients: make(map[caller]*clientUse)}
		all[at] = m
	}
	return m
}

// count adds acts of a program.
func (m *minute) count(c caller, acts clientUse) {
	m.calls += acts.Calls
	m.refused += acts.Refused
	if m.clients[c] == nil && len(m.clients) >= mostClients {
		c = caller{client: "others"}
	}
	addUse(m.clients, c, acts)
}

// add adds the acts of another minute.
func (m *minute) add(other *minute) {
	for c, acts := range other.clients {
		m.count(c, *acts)
	}
}

func addUse(all map[caller]*clientUse, c caller, acts clientUse) {
	u := all[c]
	if u == nil {
		u = &clientUse{Client: c.client, Principal: c.principal}
		all[c] = u
	}
	u.Calls += acts.Calls
	u.Refused += acts.Refused
	if acts.Last.After(u.Last) {
		u.Last = acts.Last
	}
}

// summary returns the hour that begins with the minute first.
func (h *hour) summary(first int64) summary {
	out := summary{Incomplete: h.left.Unix()/60 >= first}
	most, clients := 1, make(map[caller]*clientUse)
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
		out.Bars = append(out.Bars, barOf(i, m, most))
		for c, acts := range m.clients {
			addUse(clients, c, *acts)
		}
	}
	out.Clients = latest(clients)
	return out
}

func barOf(x int, m *minute, most int) bar {
	b := bar{X: x, Calls: height(m.calls, most), Refused: height(m.refused, most)}
	b.CallsY, b.RefusedY = chartHeight-b.Calls, chartHeight-b.Calls-b.Refused
	return b
}

// latest returns the programs, the one with the latest act first.
func latest(all map[caller]*clientUse) (out []clientUse) {
	for _, c := range all {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b clientUse) int {
		return cmp.Or(b.Last.Compare(a.Last), strings.Compare(a.Client, b.Client), strings.Compare(a.Principal, b.Principal))
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
