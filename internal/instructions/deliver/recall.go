package deliver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/internal/instructions/watermark"
	"github.com/doorward/doorward/internal/trust/audit"
)

// The store knows the deliveries of earlier runs, except those that it could not save
// because of a kill or an unavailable database. The audit log has these: each delivery is
// recorded before the text is sent, and its ref is computed again from the record. This
// needs no database.

const (
	// recallBytes and recallKinds bound how much of the log is read, from its end;
	// lostKinds bounds the deliveries without a row that get one.
	recallBytes = 256 << 20
	recallKinds = 200_000
	lostKinds   = 10_000
	// recallWait is how long an operator waits for the log to be read.
	recallWait = 10 * time.Second
)

// recall holds the deliveries of earlier runs that the audit log names.
type recall struct {
	until time.Time     // later records are of this run
	read  chan struct{} // closed when the log has been read

	mu    sync.Mutex
	kinds map[watermark.Delivery]*library.Delivered // the newest kinds of delivery
}

// leaks finds the refs of delivered texts in outgoing messages.
type leaks struct {
	o      *Options
	log    *slog.Logger
	counts *counts
	recall recall
}

// recollect adds the refs of deliveries in the audit log, newest first.
func (s *leaks) recollect(ctx context.Context, records iter.Seq2[[]byte, error]) {
	defer close(s.recall.read)
	if err := s.readRecords(records); err != nil && ctx.Err() == nil {
		s.log.Warn("the marks of some earlier deliveries are not known", "err", err)
	}
}

func (s *leaks) readRecords(records iter.Seq2[[]byte, error]) error {
	oldest := s.recall.until.Add(-refsKept)
	left, found := int64(recallBytes), 0
	for line, err := range records {
		if err != nil {
			return fmt.Errorf("reading the record: %w", err)
		}
		if left -= int64(len(line)) + 1; left < 0 || found >= recallKinds {
			return nil
		}
		d, ok := deliveredBy(line)
		if !ok || d.Last.After(s.recall.until) {
			continue
		}
		if d.Last.Before(oldest) {
			return nil
		}
		of := watermark.Delivery{Session: d.Session, Template: d.Template, Revision: d.Revision}
		d.Ref = watermark.Ref(s.o.CanaryKey, of)
		if _, known := s.o.Refs.Find(d.Ref); !known {
			found++
			s.o.Refs.Add(d.Ref, of, d.Last)
		}
		s.recall.count(of, d)
	}
	return nil
}

// count adds a delivery to its kind. The log is read backwards, so it is older than those
// before.
func (r *recall) count(of watermark.Delivery, d library.Delivered) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch is := r.kinds[of]; {
	case is != nil:
		is.First, is.Bytes, is.Count = d.First, is.Bytes+d.Bytes, is.Count+1
	case len(r.kinds) < lostKinds:
		r.kinds[of] = &d
	}
}

// find returns the earlier deliveries of a kind, as long as the store does not have them.
func (r *recall) find(of watermark.Delivery) (d library.Delivered, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if is := r.kinds[of]; is != nil {
		return *is, true
	}
	return d, false
}

// recorded holds the fields of a record that describe a delivery.
type recorded struct {
	Time      time.Time         `json:"time"`
	Kind      string            `json:"kind"`
	Source    string            `json:"source"`
	Principal string            `json:"principal"`
	Action    string            `json:"action"`
	Resource  string            `json:"resource"`
	Decision  string            `json:"decision"`
	Detail    map[string]string `json:"detail"`
}

var (
	ofUs         = []byte(`,"source":"` + source + `"`)
	withRevision = []byte(`"revision":"`)
)

// deliveredBy returns the delivery that a line of the log records, without its ref;
// false: it records none.
func deliveredBy(line []byte) (d library.Delivered, ok bool) {
	if !bytes.Contains(line, ofUs) || !bytes.Contains(line, withRevision) {
		return d, false
	}
	var r recorded
	if json.Unmarshal(line, &r) != nil || r.Source != source || r.Kind != audit.Decision || r.Decision != audit.Allow ||
		r.Action != actionRead && r.Action != actionRender {
		return d, false
	}
	name, ok := strings.CutPrefix(r.Resource, ServerName+"/")
	revision := r.Detail["revision"]
	size, err := strconv.Atoi(r.Detail["bytes"])
	if !ok || !document.ValidName(name) || len(revision) != 64 || !isHex(revision) || err != nil {
		return d, false
	}
	who := firstOf(r.Detail["subject"], r.Detail["bearer"], r.Principal)
	d = library.Delivered{First: r.Time, Last: r.Time, Count: 1, Delivery: library.Delivery{Principal: who,
		Session: firstOf(r.Detail["session"], who), Template: name, Revision: revision, Bytes: size}}
	return d, d.Session != ""
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// Reckon loads the refs from the store, and restores the deliveries that only the log
// has; those beyond the store's capacity are restored by the next start. It is called
// when there is a store, until it succeeds.
func (s *Server) Reckon(ctx context.Context, shelf *library.Library) error {
	rows, err := shelf.Deliveries(ctx)
	if err != nil {
		return fmt.Errorf("reading what was delivered: %w", err)
	}
	kept := make(map[watermark.Delivery]bool, len(rows))
	for _, d := range rows {
		of := watermark.Delivery{Session: d.Session, Template: d.Template, Revision: d.Revision}
		s.o.Refs.Add(d.Ref, of, d.Last)
		kept[of] = true
	}
	select {
	case <-s.leaks.recall.read:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.leaks.recall.mu.Lock()
	lost := s.leaks.recall.kinds
	s.leaks.recall.kinds = nil
	s.leaks.recall.mu.Unlock()
	for of, d := range lost {
		if !kept[of] && shelf.Restore(*d) != nil {
			break
		}
	}
	return nil
}

// recalled waits until the log has been read, at most until a time.
func (s *leaks) recalled(ctx context.Context, until time.Time) {
	select {
	case <-s.recall.read:
		return
	default:
	}
	select {
	case <-s.recall.read:
	case <-time.After(time.Until(until)):
	case <-ctx.Done():
	}
}
