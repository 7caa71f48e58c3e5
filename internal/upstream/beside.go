package upstream

import (
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
)

// Messages of calls on the listening stream. A server that answers with JSON has no other
// stream for what it sends during a call.

// progress passes progress on the listening stream to the call that it names, before the
// answer to that call.
func (c *httpConn) progress(m wire.Message) {
	id, _ := wire.ID(rawjson.Get(m.Params, "progressToken")).Int()
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.calls.find(id)
	if x == nil || x.r.ProgressToken == nil {
		c.srv.counts.stray.Add(1)
		return
	}
	x.offer(Event{Method: m.Method, Params: restoreToken(m.Params, x.r.ProgressToken)})
}

// offerLogs offers a log message to the oldest call of each client that receives them, and
// reports whether there was one.
func (c *httpConn) offerLogs(m wire.Message) (offered bool) {
	ev := keepEvent(m, false)
	c.mu.Lock()
	defer c.mu.Unlock()
	oldest := make(map[string]*httpCall)
	for _, x := range c.calls {
		if first := oldest[x.r.Logs]; x.r.Logs != "" && (first == nil || x.id < first.id) {
			oldest[x.r.Logs] = x
		}
	}
	for _, x := range oldest {
		x.offer(ev)
	}
	return len(oldest) > 0
}

// offer passes an event of the listening stream to the call.
func (x *httpCall) offer(ev Event) {
	if !x.beside.push(ev) {
		x.c.srv.counts.dropped.Add(1)
	}
}
