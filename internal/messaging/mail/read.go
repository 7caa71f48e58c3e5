package mail

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Query holds the criteria of Read.
type Query struct {
	Thread   string // only of this thread; empty: any thread
	Text     string // only with this text in subject or body, ignoring case; empty: any
	Max      int    // 1 to 50; 0: 20
	MaxBytes int    // of bodies; 0: 32 KiB, at most 128 KiB
}

// Said is a message that a peer sent, or that it was given and acknowledged or rejected.
type Said struct {
	Message
	To    string // all addresses of a sent message, or the peer's own address
	Mine  bool   // the peer sent it
	State string // the state of the peer's own delivery; empty: it has none
}

// readScan bounds the messages that one Read searches.
const readScan = 20_000

// Read returns the newest matching messages of o's own peer, oldest first: those that it
// sent, and those that it was given and acknowledged or rejected. It never returns a
// message of another peer, nor one from the time before the name came to its present
// principal. more reports that there are older matches, or older messages that were not
// searched. Errors: NotRegistered, Fenced, InvalidArgument.
func (b *Book) Read(ctx context.Context, o Owner, q Query) (me Peer, all []Said, more bool, err error) {
	q.Max, q.MaxBytes = min(orUsual(q.Max, inboxUsual), inboxMax), min(orUsual(q.MaxBytes, bytesUsual), bytesMax)
	if q.Max < 1 || q.MaxBytes < 1 || q.Thread != "" && !isID(q.Thread) {
		return me, nil, false, refuse(InvalidArgument)
	}
	err = b.read(ctx, func(j *job) (err error) {
		if me, err = j.directory.me(o); err != nil {
			return err
		}
		all, more, err = j.receiving.said(me, q)
		return err
	})
	slices.Reverse(all)
	return me, all, more, err
}

func orUsual(n, usual int) int {
	if n == 0 {
		return usual
	}
	return n
}

// afterAll sorts after every id in every database.
const afterAll = "ZZZZZZZZZZZZZZZZZZZZZZZZZZ"

// said collects the matching messages, newest first, page by page.
func (j receiving) said(me Peer, q Query) (all []Said, more bool, err error) {
	room := q.MaxBytes
	for before, seen := afterAll, 0; ; {
		page, err := j.saidBefore(me, q.Thread, before)
		if err != nil {
			return nil, false, err
		}
		for _, s := range page {
			before = s.ID
			if !s.holds(q.Text) {
				continue
			}
			if len(all) == q.Max || len(all) > 0 && len(s.Body) > room {
				return all, true, nil
			}
			s.cut(q.MaxBytes)
			room -= len(s.Body)
			all = append(all, s)
		}
		if len(page) < readPage {
			return all, false, nil
		}
		if seen += len(page); seen >= readScan {
			return all, true, nil
		}
	}
}

// holds reports whether the subject or body contains a text, ignoring case.
func (s *Said) holds(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(strings.ToLower(s.Body), text) || strings.Contains(strings.ToLower(s.Subject), text)
}

const readPage = 100

// own selects the ids of a peer's messages before an id, newest first: those that it
// received and read, and those that it sent. Each half uses an index.
const own = `SELECT message_id FROM (SELECT d.message_id FROM deliveries d WHERE d.peer_id = ?1 AND d.` + isRead + ` AND d.given_at > 0
		AND d.acked_at >= (SELECT read_since FROM peers WHERE peer_id = ?1) AND d.message_id < ?2 AND (?4 = '' OR d.thread_id = ?4)
		ORDER BY d.message_id DESC LIMIT ?3) AS received
	UNION SELECT message_id FROM (SELECT m.message_id FROM messages m WHERE m.sender_id = ?1
		AND m.sent_at >= (SELECT read_since FROM peers WHERE peer_id = ?1) AND m.message_id < ?2 AND (?4 = '' OR m.thread_id = ?4)
		ORDER BY m.message_id DESC LIMIT ?3) AS sent
	ORDER BY message_id DESC LIMIT ?3`

// saidBefore reads a page of the messages that own selects. The text of an old one is
// empty, because it is not kept.
func (j receiving) saidBefore(me Peer, thread, before string) ([]Said, error) {
	var all []Said
	err := j.Each(func(scan func(...any) error) error {
		var s Said
		err := scan(&s.ID, &s.Thread, &s.ReplyTo, &s.Kind, &s.Subject, &s.Body, &s.BodyBytes, &s.SentAt, &s.From.PeerID, &s.From.Name,
			&s.From.Namespace, &s.From.Principal, &s.From.Grade, &s.From.Epoch, &s.From.Lineage, &s.Authority, &s.State, &s.To)
		s.Mine = s.From.PeerID == me.ID
		if s.Mine {
			s.From.Lineage, s.Authority = LineageSelf, AuthorityNone
		}
		all = append(all, s)
		return err
	}, `SELECT m.message_id, m.thread_id, m.reply_to, m.kind, m.subject, m.body, m.bytes, m.sent_at, m.sender_id, m.from_name,
		m.from_namespace, m.from_principal, m.from_grade, m.from_epoch, COALESCE(d.lineage, ''), COALESCE(d.authority, ''), COALESCE(d.state, ''),
		CASE WHEN m.sender_id = ?1 THEN COALESCE((SELECT string_agg(t.address, ' ' ORDER BY t.address) FROM deliveries t WHERE t.message_id = m.message_id), '')
			ELSE COALESCE(d.address, '') END
		FROM messages m LEFT JOIN deliveries d ON d.message_id = m.message_id AND d.peer_id = ?1
		WHERE m.message_id IN (`+own+`) ORDER BY m.message_id DESC`, me.ID, before, readPage, thread)
	if err != nil {
		return nil, fmt.Errorf("reading sent and confirmed messages: %w", err)
	}
	return all, nil
}
