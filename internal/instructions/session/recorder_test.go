package session

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/test/doortest"
)

var errFull = errors.New("the disk is full")

// acts are the methods that change sessions, each with a call that changes something.
var acts = map[string]func(b *bed, s *Session, note Note) error{
	"Issue": func(b *bed, _ *Session, note Note) error {
		_, _, err := b.Issue(b.t.Context(), ask(), note)
		return err
	},
	"Renew": func(b *bed, s *Session, note Note) error { _, _, err := b.Renew(b.t.Context(), s, note); return err },
	"End": func(b *bed, s *Session, note Note) error {
		_, err := b.End(b.t.Context(), s.ID, ReasonRevoked, note)
		return err
	},
}

// others are the methods that change nothing, and Run, whose ends
// TestAnEndByTimeIsSavedWithItsRecord covers.
var others = []string{"Check", "Done", "Find", "Run", "Sessions", "Stats"}

func TestEveryMethodOfTheKeeperIsKnownToActOrNot(t *testing.T) {
	t.Parallel()
	keeper := reflect.TypeFor[*Keeper]()
	if n := keeper.NumMethod(); n != len(acts)+len(others) {
		t.Errorf("the Keeper has %d methods, this file knows %d", n, len(acts)+len(others))
	}
	for name := range acts {
		m, ok := keeper.MethodByName(name)
		if !ok || m.Type.In(m.Type.NumIn()-1) != reflect.TypeFor[Note]() {
			t.Errorf("%s takes no Note", name)
		}
	}
	for _, name := range others {
		if m, ok := keeper.MethodByName(name); !ok || strings.Contains(m.Type.String(), "Note") {
			t.Errorf("%s is no method, or takes a Note and is no act", name)
		}
	}
}

// TestWithoutARecordNoRowOfASessionChanges: an act without its record fails, and
// every row is as it was. An end holds in memory all the same.
func TestWithoutARecordNoRowOfASessionChanges(t *testing.T) {
	t.Parallel()
	ways := map[string]Note{"the recorder fails": said, "there is no recorder": nil, "the recorder makes nothing": func(*Session) any { return nil }}
	for name, act := range acts {
		for way, note := range ways {
			t.Run(name+"/"+way, func(t *testing.T) {
				onSQLite(t, func(t *testing.T, b *bed) {
					token, s := b.issue(ask())
					before := b.all()
					if note != nil && note(nil) != nil {
						b.broken = errFull
					}
					if err := act(b, s, note); !errors.Is(err, store.ErrRecord) {
						t.Fatalf("got %v, want %v", err, store.ErrRecord)
					}
					if after := b.all(); after != before {
						t.Fatalf("the rows have changed:\n%s", doortest.FirstDifference(before, after))
					}
					if name == "End" {
						b.bad(token, owner(), Revoked)
						return
					}
					b.broken = nil
					must(t, act(b, s, said))
					if b.all() == before {
						t.Fatal("with a record nothing is done either: the call tests nothing")
					}
				})
			})
		}
	}
}

// When Run ends a session by time, the record is written before the commit. If the
// record cannot be written, the change is not saved until it can.
func TestAnEndByTimeIsSavedWithItsRecord(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		var told []string
		o := b.options()
		o.Record = func(s *Session) any { told = append(told, s.ID+" "+s.Reason); return aside }
		b.Keeper = b.open(o)
		r := ask()
		r.TTL = time.Minute
		_, s := b.issue(r)
		b.pass(time.Hour)
		before := b.all()
		b.broken = errFull
		upkeep{b.Keeper}.turn()
		same(t, "ended", b.mustFind(s.ID).Reason, ReasonExpired)
		if err := (upkeep{b.Keeper}).save(t.Context()); !errors.Is(err, store.ErrRecord) {
			t.Fatalf("saved without a record: %v", err)
		}
		if after := b.all(); after != before {
			t.Fatalf("the rows have changed:\n%s", doortest.FirstDifference(before, after))
		}
		b.broken, told = nil, nil
		must(t, upkeep{b.Keeper}.save(t.Context()))
		equal(t, "recorded", told, s.ID+" expired")
		same(t, "ended rows", b.exec(`UPDATE instruct_sessions SET reason = reason WHERE ended_at > 0`), 1)
	})
}

func TestAKeeperNeedsARecorder(t *testing.T) {
	onSQLite(t, func(t *testing.T, b *bed) {
		o := b.options()
		o.Record = nil
		if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "recorder") {
			t.Errorf("without one: %v", err)
		}
	})
}

// all is the content of the database.
func (b *bed) all() (all string) {
	b.t.Helper()
	must(b.t, b.db.Read(b.t.Context(), func(tx *store.Tx) error {
		all = doortest.Rows(func(query string) (out []string) {
			must(b.t, tx.Each(func(scan func(...any) error) error {
				out = append(out, "")
				return scan(&out[len(out)-1])
			}, query))
			return out
		})
		return nil
	}))
	return all
}
