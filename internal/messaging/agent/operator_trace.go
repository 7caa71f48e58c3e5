package agent

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/auditlog"
	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/internal/trust/audit"
)

// Trace returns the deliveries, changes and audit records of a message.
func (o *Operator) Trace(ctx context.Context, by Caller, messageID string) (*Traced, error) {
	a, err := o.enter(ctx, by, "trace")
	if err != nil {
		return nil, err
	}
	if !isID(messageID) {
		return nil, a.fail(refuse(mail.UnknownMessage))
	}
	es, cs, err := o.s.o.Book.Desk().Trace(ctx, messageID)
	if err != nil {
		return nil, a.fail(err)
	}
	out := &Traced{Messages: o.s.envelopes.messages(es, false), Changes: cs, Audit: []uint64{}}
	err = o.s.trail.records(ctx, func(r recorded) {
		if bytes.Contains(r.line, []byte(messageID)) {
			out.Audit = append(out.Audit, r.seq)
		}
	})
	if err != nil {
		return nil, a.fail(err)
	}
	if out.Changes == nil {
		out.Changes = []mail.Change{}
	}
	return out, a.done(field("message", messageID))
}

// isID reports whether s has the form of an id.
func isID(s string) bool {
	if len(s) != idLength {
		return false
	}
	return strings.Trim(s, "0123456789ABCDEFGHJKMNPQRSTVWXYZ") == ""
}

// recorded is one record of messaging.
type recorded struct {
	seq  uint64
	line []byte
}

// records calls fn for every record of messaging in the audit log of this node. It does
// not verify the log; `doorward audit verify` does.
func (s *trail) records(ctx context.Context, fn func(recorded)) error {
	if s.o.AuditDir == "" {
		return nil
	}
	mine := []byte(`,"source":"` + source + `"`)
	var shown auditlog.Showing
	return auditlog.Export(ctx, s.o.AuditDir, &lines{fn: func(line []byte) {
		line = shown.Show(line)
		if !bytes.Contains(line, mine) {
			return
		}
		seq, err := strconv.ParseUint(string(rawjson.Get(line, "seq")), 10, 64)
		if err == nil {
			fn(recorded{seq, line})
		}
	}})
}

// lines calls fn for each whole line that is written to it.
type lines struct {
	fn   func(line []byte)
	rest []byte
}

var errLong = errors.New("a line of the audit log is too long")

func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, after, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			break
		}
		l.fn(line)
		l.rest = after
	}
	if len(l.rest) > 2*audit.MaxLine {
		return 0, errLong
	}
	l.rest = append([]byte(nil), l.rest...)
	return len(b), nil
}

// Fsck checks the invariants of the book, and the book against the audit log.
func (o *Operator) Fsck(ctx context.Context, by Caller, repair bool) (*Checked, error) {
	what := "fsck"
	if repair {
		what = "fsck/repair"
	}
	a, err := o.enter(ctx, by, what)
	if err != nil {
		return nil, err
	}
	c, err := o.s.o.Book.Desk().Fsck(ctx, repair, func(v *mail.Check) any {
		return a.line(number("problems", int64(len(v.Problems))), number("repaired", int64(v.Repaired)))
	})
	if err != nil {
		return nil, a.fail(err)
	}
	out := &Checked{Check: *c}
	if err := o.s.trail.compare(ctx, out); err != nil {
		return nil, a.fail(err)
	}
	a.end()
	return out, nil
}

// comparedTime is the age up to which recorded messages are looked for in the store. The
// rows of ended messages are kept for longer than that.
const comparedTime = 24 * time.Hour

// compare looks for messages without a record, and for records without a message. The
// first must not exist: the record is on disk before the message. The second is left by a
// crash between the two; the sender got no answer. The daemon keeps running meanwhile:
// the mailboxes are read before the records, so that each message that is read has its
// record by then. A newer record may have no message yet.
func (s *trail) compare(ctx context.Context, out *Checked) error {
	if s.o.AuditDir == "" {
		return nil
	}
	until := time.Now()
	met, err := s.stored(ctx)
	if err != nil {
		return err
	}
	known := make(map[string]bool) // ids of recorded messages; true: recorded within comparedTime
	err = s.records(ctx, func(r recorded) {
		for id, late := range sentIn(r.line, until.Add(-comparedTime), until) {
			known[id] = known[id] || late
		}
	})
	if err != nil {
		return err
	}
	for id, ours := range met {
		if _, ok := known[id]; !ok && ours {
			out.Unrecorded = append(out.Unrecorded, id)
		}
		delete(known, id)
	}
	slices.Sort(out.Unrecorded)
	return s.unstored(ctx, known, out)
}

// stored returns the ids of the messages in all mailboxes; true: this node must have a
// record of the message.
func (s *trail) stored(ctx context.Context) (map[string]bool, error) {
	met := make(map[string]bool) // a message to several peers is in several mailboxes
	var all []mail.Peer
	if err := s.eachPeer(ctx, func(p mail.Peer) { all = append(all, p) }); err != nil {
		return nil, err
	}
	for _, p := range all {
		es, err := s.o.Book.Desk().Mailbox(ctx, p.ID, false)
		if err != nil {
			return nil, err
		}
		for _, e := range es {
			met[e.ID] = nodeOf(e.From.Principal) == s.o.Node && e.From.Lineage != mail.LineageBroker
		}
	}
	return met, nil
}

// unstored looks up the recently recorded messages that are in no mailbox.
func (s *trail) unstored(ctx context.Context, known map[string]bool, out *Checked) error {
	for id, late := range known {
		if !late {
			continue
		}
		es, _, err := s.o.Book.Desk().Trace(ctx, id)
		switch {
		case isRefusal(err, mail.UnknownMessage), err == nil && len(es) == 0:
			out.Unstored = append(out.Unstored, id)
		case err != nil:
			return err
		}
	}
	return nil
}

// sentIn returns the ids of the messages that a record reports as stored; true: between
// since and until.
func sentIn(line []byte, since, until time.Time) map[string]bool {
	if string(rawjson.Get(line, "decision")) != `"allow"` {
		return nil
	}
	action, _ := rawjson.GetString(line, "action")
	resource, _ := rawjson.GetString(line, "resource")
	sends := action == "agent.send" || strings.HasSuffix(resource, ServerName+"/send") || strings.HasSuffix(resource, ServerName+"/hold/requeue")
	detail := rawjson.Get(line, "detail")
	if !sends || detail == nil {
		return nil
	}
	text, _ := rawjson.GetString(line, "time")
	at, err := time.Parse(time.RFC3339Nano, text)
	out := make(map[string]bool)
	for _, name := range []string{"message", "new_message"} {
		if id, ok := rawjson.GetString(detail, name); ok && isID(id) {
			out[id] = err == nil && at.After(since) && at.Before(until)
		}
	}
	if _, ok := rawjson.GetString(detail, "replay"); ok {
		return nil // an earlier call stored it, and it may be deleted by now
	}
	return out
}
