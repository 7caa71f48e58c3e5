package mail_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/messaging/mail"
	"github.com/doorward/doorward/test/doortest"
)

// bed is one database with one book, and on SQLite a clock that the test advances.
type bed struct {
	t *testing.T
	*mail.Book
	db     *store.DB
	limits mail.Limits
	dsn    string
	dir    string
	clock  *atomic.Int64 // added to the time of the start; on SQLite it is the only time that passes
	notes  atomic.Int64

	broken atomic.Bool // no record can be made
}

// onBoth runs a test on SQLite and on PostgreSQL, each on a database of its own.
func onBoth(t *testing.T, o mail.Options, test func(t *testing.T, b *bed)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, sqliteBed(t, o))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, postgresBed(t, o))
	})
}

// onSQLite runs a test on SQLite only, because it advances the clock.
func onSQLite(t *testing.T, o mail.Options, test func(t *testing.T, b *bed)) {
	t.Parallel()
	test(t, sqliteBed(t, o))
}

func sqliteBed(t *testing.T, o mail.Options) *bed {
	t.Helper()
	return openBed(t, o, &bed{dir: t.TempDir()})
}

func postgresBed(t *testing.T, o mail.Options) *bed {
	t.Helper()
	return openBed(t, o, &bed{dsn: doortest.Postgres(t)})
}

func openBed(t *testing.T, o mail.Options, b *bed) *bed {
	t.Helper()
	b.t, b.clock = t, new(atomic.Int64)
	start := time.Now()
	db, err := store.Open(t.Context(), store.Options{Dir: b.dir, Postgres: b.dsn, Migrations: mail.Migrations(),
		Record: func(n []any) error {
			if b.broken.Load() {
				return errors.New("the disk is full")
			}
			b.notes.Add(int64(len(n)))
			return nil
		},
		Now: func() time.Time { return start.Add(time.Duration(b.clock.Load())) }})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	if o.Node == "" {
		o.Node = "here"
	}
	o.Upkeep = said
	b.db, b.limits = db, o.Limits
	b.Book, err = mail.Open(t.Context(), db, o)
	must(t, err)
	return b
}

// pass advances the clock of a SQLite bed.
func (b *bed) pass(d time.Duration) { b.clock.Add(int64(d)) }

// later lets a short time pass on either engine; on PostgreSQL it sleeps.
func (b *bed) later(d time.Duration) {
	b.pass(d)
	if b.dsn != "" {
		time.Sleep(d)
	}
}

// sweep runs one sweep of the book.
func (b *bed) sweep() {
	b.t.Helper()
	_, err := b.Sweep(b.t.Context())
	must(b.t, err)
}

// ended reports every process as ended.
func ended(string) bool { return true }

// exec runs one statement of the test: damage, or the effect of time.
func (b *bed) exec(query string, args ...any) int64 {
	b.t.Helper()
	var n int64
	must(b.t, b.db.Write(context.Background(), func(tx *store.Tx) (err error) {
		n, err = tx.Exec(query, args...)
		return err
	}))
	return n
}

func (b *bed) count(query string, args ...any) (n int64) {
	b.t.Helper()
	must(b.t, b.db.Read(context.Background(), func(tx *store.Tx) error { return tx.Row([]any{&n}, query, args...) }))
	return n
}

// sound fails the test if fsck finds a difference.
func (b *bed) sound() {
	b.t.Helper()
	c, err := b.Desk().Fsck(b.t.Context(), false, said)
	must(b.t, err)
	if !c.OK {
		b.t.Fatalf("fsck: %+v", c.Problems)
	}
}

func owner(principal, session string) mail.Owner {
	return mail.Owner{Principal: mail.Qualify("here", principal), Session: session, Node: "here", Grade: "attested", Processes: []string{"boot/1@" + session}}
}

// agent is a registered peer with its session.
type agent struct {
	mail.Owner
	mail.Peer
	b *bed
}

// join registers a session of uid:1000 under a name.
func (b *bed) join(name string) *agent {
	b.t.Helper()
	return b.joinAs(owner("uid:1000", "s-"+name), mail.Registration{Name: name})
}

func (b *bed) joinAs(o mail.Owner, r mail.Registration) *agent {
	b.t.Helper()
	got, err := b.Register(b.t.Context(), o, r, nil, said)
	must(b.t, err)
	return &agent{o, got.Peer, b}
}

func (a *agent) to() mail.Recipient {
	return mail.Recipient{To: a.Name, PeerID: a.Peer.ID, Principal: a.Peer.Principal}
}

func draft(body string, to ...*agent) mail.Draft {
	d := mail.Draft{Body: body}
	for _, a := range to {
		d.To = append(d.To, a.to())
	}
	return d
}

func (a *agent) try(d mail.Draft) (*mail.Sent, error) {
	return a.b.Send(a.b.t.Context(), a.Owner, d, said)
}

func (a *agent) send(d mail.Draft) *mail.Sent {
	a.b.t.Helper()
	got, err := a.try(d)
	must(a.b.t, err)
	return got
}

func (a *agent) inbox(f mail.Fetch) *mail.Batch {
	a.b.t.Helper()
	got, err := a.b.Inbox(a.b.t.Context(), a.Owner, f, said)
	must(a.b.t, err)
	return got
}

// read is an inbox that acknowledges the previous answer.
func (a *agent) read(after *mail.Batch) *mail.Batch {
	a.b.t.Helper()
	return a.inbox(mail.Fetch{After: &after.Counts.Receipt})
}

func (a *agent) status(id string) []mail.Delivery {
	a.b.t.Helper()
	got, err := a.b.Status(a.b.t.Context(), a.Owner, id)
	must(a.b.t, err)
	return got
}

// state is the state of a message that has one recipient.
func (a *agent) state(id string) string {
	a.b.t.Helper()
	got := a.status(id)
	if len(got) != 1 {
		a.b.t.Fatalf("%d deliveries, want one", len(got))
	}
	return got[0].State
}

func bodies(b *mail.Batch) (out []string) {
	for _, m := range b.Messages {
		out = append(out, m.Body)
	}
	return out
}

func code(err error) string {
	var e *mail.Error
	if errors.As(err, &e) {
		return e.Code
	}
	if err == nil {
		return ""
	}
	return fmt.Sprint(err)
}

func refused(t *testing.T, err error, want string) {
	t.Helper()
	if code(err) != want {
		t.Fatalf("got %q, want %q (%v)", code(err), want, err)
	}
}

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func equal[T comparable](t *testing.T, what string, got []T, want ...T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// said is the record of an act in tests that do not check records.
func said[T any](*T) any { return "an act" }
