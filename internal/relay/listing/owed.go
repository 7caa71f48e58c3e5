package listing

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// ListTime is how long a list waits for a server. A slower server's share is made from what
// was approved of it, and the client is told to list again when the server answers.
const ListTime = 2500 * time.Millisecond

// LateTime replaces ListTime for a server that has owed the answer since an earlier list, and
// in a list of a client that is hasty.
const LateTime = 500 * time.Millisecond

// Hasty reports whether a client goes on without the tools of a server that has not listed
// them within a second. Codex does so in its first turn. It is known by the name that the
// client gives itself; the name decides nothing else.
func Hasty(client string) bool { return client == "codex-mcp-client" }

// WhyStarting is the reason of a list that is missing because its server is being started.
const WhyStarting = "starting"

// Owed holds the lists that went out without a server's own answer.
type Owed struct {
	mu    sync.Mutex
	lists map[string]owedList // by method
}

type owedList struct {
	since time.Time
	why   string
}

// Miss notes that a list went out without the server's own answer; first: the list before it
// had the answer.
func (o *Owed) Miss(method, why string) (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	old, known := o.lists[method]
	if o.lists == nil {
		o.lists = make(map[string]owedList)
	}
	if !known {
		old.since = time.Now()
	}
	o.lists[method] = owedList{old.since, why}
	return !known
}

// Pay notes that the server has answered a list; owed: it was missed before.
func (o *Owed) Pay(method string) (owed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, owed = o.lists[method]
	delete(o.lists, method)
	return owed
}

// Started forgets the lists that a server owed only because it was being started.
func (o *Owed) Started() {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.lists, func(_ string, l owedList) bool { return l.why == WhyStarting })
}

// Text says which lists lack the server, since when and why; "" for none.
func (o *Owed) Text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []string
	for method, l := range o.lists {
		all = append(all, method+" (since "+l.since.Format("15:04")+": "+l.why+")")
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return "not yet in " + strings.Join(all, ", ")
}
