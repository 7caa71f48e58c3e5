package library_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/test/doortest"
)

// acts are the methods that change labels, versions or the directory, each with a
// call that changes something.
var acts = map[string]func(b *bed, note library.Note) error{
	"Promote": func(b *bed, note library.Note) error {
		_, err := b.Promote(b.t.Context(), "a", "", "staging", note)
		return err
	},
	"Rollback": func(b *bed, note library.Note) error { _, err := b.Rollback(b.t.Context(), "a", note); return err },
	"Revoke":   func(b *bed, note library.Note) error { _, err := b.Revoke(b.t.Context(), "a", "", note); return err },
	"Put": func(b *bed, note library.Note) error {
		return b.Put(b.t.Context(), "c", []byte(text("c", "new")), recorder(b, note))
	},
	"Replace": func(b *bed, note library.Note) error {
		return b.Replace(b.t.Context(), "a", version(text("a", "second")), []byte(text("a", "third")), recorder(b, note))
	},
}

// recorder makes a Recorder of a Note.
func recorder(b *bed, note library.Note) library.Recorder {
	if note == nil {
		return nil
	}
	return func(a *library.Act) error {
		if note(a) == nil {
			return store.ErrUnrecorded
		}
		return b.record([]any{note(a)})
	}
}

// counts are the methods that count deliveries, which have their records already:
// they change the counts and nothing else.
var counts = map[string]func(b *bed) error{
	"Close": func(b *bed) error { return b.Close(b.t.Context()) },
	"Deliver": func(b *bed) error {
		return b.Deliver(b.t.Context(), library.Delivery{Ref: "r", Session: "s", Template: "a"})
	},
	"Delivered":  func(b *bed) error { _, _, err := b.Delivered(b.t.Context(), "r"); return err },
	"Deliveries": func(b *bed) error { _, err := b.Deliveries(b.t.Context()); return err },
	"Recent":     func(b *bed) error { _, err := b.Recent(b.t.Context()); return err },
	"Restore":    func(b *bed) error { return b.Restore(library.Delivered{Count: 1, First: b.now(), Last: b.now()}) },
}

// readers are the methods that change nothing by themselves. Look and Run take files
// of the directory, which TestAFileIsNotTakenWithoutARecord covers.
var readers = []string{"Content", "List", "Look", "Lookup", "Ready", "Run", "Set", "Versions"}

// ofTests are methods that export_test.go adds.
var ofTests = []string{"Hold", "Keep", "OnLook", "Pruned", "Waiting"}

func TestEveryMethodOfTheLibraryIsKnownToActOrToRead(t *testing.T) {
	t.Parallel()
	l := reflect.TypeFor[*library.Library]()
	for i := range l.NumMethod() {
		m := l.Method(i)
		last := m.Type.In(m.Type.NumIn() - 1)
		recorded := last == reflect.TypeFor[library.Note]() || last == reflect.TypeFor[library.Recorder]()
		if known := acts[m.Name] != nil; known != recorded {
			t.Errorf("%s: takes a recorder: %v; is an act here: %v", m.Name, recorded, known)
		}
		if acts[m.Name] == nil && counts[m.Name] == nil && !slices.Contains(readers, m.Name) && !slices.Contains(ofTests, m.Name) {
			t.Errorf("this file does not know %s", m.Name)
		}
	}
}

// TestWithoutARecordNoLabelMovesAndNoFileIsWritten: an act whose record fails, or
// that has none, leaves every row and file as it was.
func TestWithoutARecordNoLabelMovesAndNoFileIsWritten(t *testing.T) {
	t.Parallel()
	ways := map[string]library.Note{"the recorder fails": note, "there is no recorder": nil, "the recorder makes nothing": func(*library.Act) any { return nil }}
	for name, act := range acts {
		for way, noting := range ways {
			t.Run(name+"/"+way, func(t *testing.T) {
				b := on(t, library.Options{})
				b.write("a.md", text("a", "first"))
				b.write("a.md", text("a", "second"))
				before := b.all()
				if noting != nil && noting(&library.Act{}) != nil {
					b.unrecorded(errors.New("the disk is full"))
				}
				if err := act(b, noting); err == nil {
					t.Fatal("it was done")
				}
				if after := b.all(); after != before {
					t.Fatalf("something has changed:\n%s", doortest.FirstDifference(before, after))
				}
				b.unrecorded(nil)
				must(t, act(b, note))
				if b.all() == before {
					t.Fatal("with a record nothing is done either: the call tests nothing")
				}
			})
		}
	}
}

func TestAFileIsNotTakenWithoutARecord(t *testing.T) {
	b := on(t, library.Options{Entered: note})
	before := b.all()
	b.unrecorded(errors.New("the disk is full"))
	b.file("a.md", text("a", "first"))
	b.look()
	if after := b.all("a.md"); after != before {
		t.Fatalf("something has changed:\n%s", doortest.FirstDifference(before, after))
	}
	b.serves()
	b.unrecorded(nil)
	await(t, "it is taken with a record", func() bool { return strings.Join(bodies(b.Library), " ") == "a=first" })
	if n := len(b.recorded()); n != 1 {
		t.Errorf("%d records", n)
	}
}

func TestACountChangesNothingElse(t *testing.T) {
	t.Parallel()
	for name, count := range counts {
		t.Run(name, func(t *testing.T) {
			b := on(t, library.Options{})
			b.write("a.md", text("a", "first"))
			b.unrecorded(errors.New("the disk is full"))
			before := b.all()
			must(t, b.Deliver(t.Context(), library.Delivery{Ref: "r", Session: "s", Template: "a"}))
			must(t, count(b))
			after := slices.DeleteFunc(strings.SplitAfter(b.all(), "\n"), func(l string) bool { return strings.HasPrefix(l, "instruct_deliveries: ") })
			if strings.Join(after, "") != before {
				t.Fatalf("more has changed:\n%s", doortest.FirstDifference(before, strings.Join(after, "")))
			}
		})
	}
}

func TestALibraryNeedsARecorder(t *testing.T) {
	b := on(t, library.Options{})
	o := b.options()
	o.Entered = nil
	if _, err := library.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "recorder") {
		t.Errorf("without one: %v", err)
	}
}

// all is the content of the database and the directory, without the named files.
func (b *bed) all(but ...string) (all string) {
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
	files, err := os.ReadDir(b.dir)
	must(b.t, err)
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(b.dir, f.Name()))
		must(b.t, err)
		if !slices.Contains(but, f.Name()) {
			all += f.Name() + ": " + strings.ReplaceAll(string(content), "\n", "\\n") + "\n"
		}
	}
	return all
}
