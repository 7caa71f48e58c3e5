package deliver

import (
	"cmp"
	"errors"
	"io"
	"slices"

	"github.com/doorward/doorward/internal/instructions/watermark"
	"github.com/doorward/doorward/internal/trust/audit"
	"github.com/doorward/doorward/internal/trust/gate"
)

// actionCanary is the action of the records of found refs.
const actionCanary = rulePrefix + "canary"

// Outgoing searches the raw params of a request to a server for refs, and returns what
// may be sent: params itself if nothing was cut out. Each delivery whose ref is found is
// recorded; if that fails, the request is blocked. blocked: the request must not be sent.
func (s *Server) Outgoing(a gate.Act, params []byte) (out []byte, blocked bool) {
	s.conns.borne(&a)
	s.leaks.recalled(s.closing, s.storage.begun.Load().Add(patience))
	if s.o.Refs == nil || s.o.Refs.Empty() {
		return params, false
	}
	got := s.o.Refs.Look(s.o.Mode, params)
	if len(got.Found) == 0 {
		return params, got.Blocked
	}
	if !s.leaks.noted(a, got.Found, got.Blocked) || got.Blocked {
		return nil, true
	}
	if s.o.Mode == watermark.Redact {
		return got.Out, false
	}
	return params, false
}

// noted records the found deliveries and the action taken, and reports whether that
// succeeded. The caller blocks the message otherwise.
func (s *leaks) noted(a gate.Act, found []watermark.Delivery, blocked bool) bool {
	result := string(cmp.Or(s.o.Mode, watermark.Alert))
	if blocked {
		result = string(watermark.Block)
	}
	if _, err := s.o.Gate.Record(finds(a, found, result)...); err != nil {
		s.log.Error("a message is withheld, because a finding in it cannot be recorded", "err", err)
		return false
	}
	for range found {
		s.counts.canary.Add(result)
	}
	return true
}

// Printed searches an agent's output for refs before it is passed on: a text, and the
// whole output of which the text is the end, if that is longer (otherwise nil). Finds are
// recorded as by Outgoing. out is the part of the text that may be sent; keep: the whole
// output may be kept, from which nothing can be cut out; blocked: neither is allowed.
func (s *Server) Printed(a gate.Act, text string, whole io.Reader) (out string, keep, blocked bool) {
	s.leaks.recalled(s.closing, s.storage.begun.Load().Add(patience))
	if s.o.Refs == nil || s.o.Refs.Empty() {
		return text, true, false
	}
	out, found := s.o.Refs.Text(s.o.Mode, text)
	more, err := s.leaks.lookThrough(whole)
	cuts := s.o.Mode == watermark.Redact || s.o.Mode == watermark.Block
	keep = !cuts || whole == nil || len(found)+len(more) == 0 && err == nil // the text is cleaned, and the whole is not
	for _, d := range more {
		if !slices.Contains(found, d) {
			found = append(found, d)
		}
	}
	if len(found) == 0 {
		return text, keep, false
	}
	if blocked = s.o.Mode == watermark.Block; !s.leaks.noted(a, found, blocked) || blocked {
		return "", false, true
	}
	return out, keep, false
}

// A long text is searched in pieces. Each begins with the end of the one before, so that
// a ref that is not stretched beyond the overlap lies in one piece.
const (
	pieceBytes   = 1 << 20
	overlapBytes = 64 << 10
)

// lookThrough searches what it reads from whole for refs. It stops after watermark.Enough
// finds.
func (s *leaks) lookThrough(whole io.Reader) (found []watermark.Delivery, err error) {
	if whole == nil {
		return nil, nil
	}
	buf, kept := make([]byte, pieceBytes), 0
	for err == nil && len(found) < watermark.Enough {
		var n int
		n, err = io.ReadFull(whole, buf[kept:])
		piece := buf[:kept+n]
		_, more := s.o.Refs.Text(watermark.Alert, string(piece))
		for _, d := range more {
			if !slices.Contains(found, d) {
				found = append(found, d)
			}
		}
		kept = copy(buf, piece[max(0, len(piece)-overlapBytes):])
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return found, err
}

// mostFinds is how many deliveries have a record of their own. Refs are cheap to collect,
// and one request full of them must not fill the log.
const mostFinds = watermark.Enough

// finds returns the records of what was found: one for each of the first deliveries, and
// one with the number of all others.
func finds(a gate.Act, found []watermark.Delivery, result string) []*audit.Record {
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
