package instruct

import (
	"github.com/doorward/doorward/internal/audit"
	"github.com/doorward/doorward/internal/canary"
	"github.com/doorward/doorward/internal/gate"
)

// actionCanary is the action of the records of refs on their way out.
const actionCanary = rulePrefix + "canary"

// Outgoing looks for refs in the params of a request on its way to a server,
// raw, and gives what may go on: params itself where nothing was cut. The
// deliveries whose refs are found are recorded, and where that cannot be done
// nothing goes on. blocked: the request may not go on.
func (s *Server) Outgoing(a gate.Act, params []byte) (out []byte, blocked bool) {
	s.Seen(a)
	if s.o.Refs == nil || s.o.Refs.Empty() {
		return params, false
	}
	got := s.o.Refs.Look(s.o.Mode, params)
	if len(got.Found) == 0 {
		return params, got.Blocked
	}
	result := string(canary.Alert)
	switch {
	case got.Blocked:
		result = string(canary.Block)
	case s.o.Mode == canary.Redact:
		result = string(canary.Redact)
	}
	if _, err := s.o.Gate.Append(finds(a, got.Found, result)); err != nil {
		s.log.Error("a request is held back, since what was found in it cannot be recorded", "err", err)
		return nil, true
	}
	for range got.Found {
		s.counts.canary.add(result)
	}
	if got.Blocked {
		return nil, true
	}
	if s.o.Mode == canary.Redact {
		return got.Out, false
	}
	return params, false
}

// mostFinds is how many deliveries have a record of their own: refs are cheap to
// collect, and one request full of them must not fill the record.
const mostFinds = canary.Enough

// finds are the records of what was found: one for each of the first deliveries,
// and one, with their number, for all others.
func finds(a gate.Act, found []canary.Delivery, result string) []*audit.Record {
	where := a.Server
	if a.Name != "" {
		where += "/" + a.Name
	}
	record := func(n int, detail ...audit.Field) *audit.Record {
		return &audit.Record{Kind: audit.Event, Source: source, Who: a.Who, Session: a.Session, Action: actionCanary, Resource: where,
			Rule: actionCanary, Result: result, Count: int64(n), Detail: detail}
	}
	var out []*audit.Record
	for _, d := range found[:min(len(found), mostFinds)] {
		out = append(out, record(1, field("session", d.Session), field("template", d.Template), field("revision", d.Revision)))
	}
	if rest := len(found) - mostFinds; rest > 0 {
		out = append(out, record(rest))
	}
	return out
}
