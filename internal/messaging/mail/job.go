package mail

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/base/store"
)

// job is a transaction of the book. The counters, notices and changes that result from
// its acts are collected and written at its end (flush), in the order of locks:
// mailboxes, then outboxes, each sorted.
type job struct {
	*store.Tx
	roles
	b   *Book
	now int64

	boxes   map[string]*box
	notices []notice
	changes []Change
	topics  map[string]bool

	requeued string // the id under which this job sends a message again
}

// errNothing ends a job that changed nothing. Its transaction is rolled back, and write
// returns nil.
var errNothing = errors.New("nothing was to be done")

// write runs fn in a transaction, followed by flush. fn notes what it changes, or fails
// (store.DB.Act).
func (b *Book) write(ctx context.Context, fn func(*job) error) error {
	err := b.db.Act(ctx, b.whole(fn))
	if errors.Is(err, errNothing) {
		return nil
	}
	return wrap(err)
}

// mark is write without a record. Open uses it to enter the node, and Touch to extend
// leases.
func (b *Book) mark(ctx context.Context, fn func(*job) error) error {
	return wrap(b.db.Write(ctx, b.whole(fn)))
}

// whole returns the body of a transaction: fn, then flush.
func (b *Book) whole(fn func(*job) error) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		j := b.job(tx)
		if err := fn(j); err != nil {
			return err
		}
		return j.flush()
	}
}

// read runs fn on a consistent view of the database, without writing.
func (b *Book) read(ctx context.Context, fn func(*job) error) error {
	return wrap(b.db.Read(ctx, func(tx *store.Tx) error { return fn(b.job(tx)) }))
}

func (b *Book) job(tx *store.Tx) *job {
	j := &job{Tx: tx, b: b, now: tx.Now()}
	j.roles = rolesOf(j)
	return j
}

// signal signals a topic, once in a job.
func (j *job) signal(topic string) {
	if j.topics == nil {
		j.topics = make(map[string]bool)
	}
	if !j.topics[topic] {
		j.topics[topic] = true
		j.Signal(topic)
	}
}

// flush writes the collected counters, notices and changes.
func (j *job) flush() error {
	for _, id := range slices.Sorted(maps.Keys(j.boxes)) {
		if err := j.mailboxes.save(j.boxes[id]); err != nil {
			return err
		}
	}
	if err := j.flushNotices(); err != nil {
		return err
	}
	return j.flushChanges()
}

// notice is a state change of one delivery that its sender is told.
type notice struct {
	sender, message, peer, state string
}

func (j *job) notify(n notice) {
	j.notices = append(j.notices, n)
	j.signal(TopicMailbox(n.sender))
}

// flushNotices numbers the notices of each sender. A delivery has room for one notice: a
// later one replaces one that was not read yet.
func (j *job) flushNotices() error {
	slices.SortStableFunc(j.notices, func(a, b notice) int { return cmp.Compare(a.sender, b.sender) })
	for len(j.notices) > 0 {
		sender := j.notices[0].sender
		n := slices.IndexFunc(j.notices, func(x notice) bool { return x.sender != sender })
		if n < 0 {
			n = len(j.notices)
		}
		var last int64
		err := j.Row([]any{&last}, `INSERT INTO outboxes (peer_id, last_notice, covered) VALUES (?1, ?2, 0)
			ON CONFLICT (peer_id) DO UPDATE SET last_notice = outboxes.last_notice + excluded.last_notice RETURNING last_notice`,
			sender, n)
		if err != nil {
			return fmt.Errorf("numbering notices: %w", err)
		}
		for i, x := range j.notices[:n] {
			_, err := j.Exec(`UPDATE deliveries SET notice_seq = ?3, notice_state = ?4, notice_at = ?5 WHERE message_id = ?1 AND peer_id = ?2`,
				x.message, x.peer, last-int64(n-1-i), x.state, j.now)
			if err != nil {
				return fmt.Errorf("marking a notice: %w", err)
			}
		}
		j.notices = j.notices[n:]
	}
	return nil
}

// change collects a state change for the log that tail and trace read.
func (j *job) change(c Change) {
	c.ID, c.At = j.b.ticker.next(j.now), j.now
	j.changes = append(j.changes, c)
}

const (
	changeChunk  = 16
	changeFields = 10
)

var (
	changeInsert      = changeStatement(1)
	changeInsertChunk = changeStatement(changeChunk)
)

// changeStatement returns the statement that inserts n changes.
func changeStatement(n int) string {
	var s strings.Builder
	s.WriteString(`INSERT INTO mail_changes (id, at, message_id, peer_id, to_name, from_name, state_before, state_after, epoch, reason) VALUES `)
	for i := range n {
		if i > 0 {
			s.WriteString(", ")
		}
		for k := range changeFields {
			fmt.Fprintf(&s, "%c?%d", "(,,,,,,,,,"[k], i*changeFields+k+1)
		}
		s.WriteByte(')')
	}
	s.WriteString(` ON CONFLICT (id) DO NOTHING`)
	return s.String()
}

func (j *job) flushChanges() error {
	for rest := j.changes; len(rest) > 0; {
		n, query := 1, changeInsert
		if len(rest) >= changeChunk {
			n, query = changeChunk, changeInsertChunk
		}
		args := make([]any, 0, n*changeFields)
		for _, c := range rest[:n] {
			args = append(args, c.ID, c.At, c.MessageID, c.PeerID, c.To, c.From, c.Before, c.After, c.Epoch, c.Reason)
		}
		if _, err := j.Exec(query, args...); err != nil {
			return fmt.Errorf("logging a change: %w", err)
		}
		rest = rest[n:]
	}
	j.changes = nil
	return nil
}

// wrap turns an error of the store into an Error with its code.
func wrap(err error) error {
	var e *Error
	switch {
	case err == nil, errors.As(err, &e), errors.Is(err, errSlot), errors.Is(err, ErrChanged):
		return err
	case errors.Is(err, store.ErrRecord):
		return &Error{Code: AuditUnavailable, Err: err}
	}
	return &Error{Code: StoreUnavailable, Err: err}
}

func refuse(code string) *Error { return &Error{Code: code} }

// labelText encodes labels for their column; labelMap decodes them.
func labelText(labels map[string]string) string {
	if len(labels) == 0 {
		return ""
	}
	text, err := json.Marshal(labels)
	if err != nil {
		return "" // cannot happen: the map holds only strings
	}
	return string(text)
}

func labelMap(text string) map[string]string {
	if text == "" {
		return nil
	}
	var labels map[string]string
	if err := json.Unmarshal([]byte(text), &labels); err != nil {
		return nil
	}
	return labels
}

func joinIDs(ids []string) string { return strings.Join(ids, " ") }

func splitIDs(text string) []string { return strings.Fields(text) }
