package library_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/instructions/library"
)

// No sentence of a document is in a file of the state directory, neither while the
// database is open nor afterwards.
func TestNoSentenceOfADocumentIsInTheDatabase(t *testing.T) {
	b := on(t, library.Options{})
	const sentence = "the heron waits for nobody"
	one := text("voice", sentence+" at dawn", "description: "+sentence+" as a title")
	must(t, b.Put(t.Context(), "voice", []byte(one), written))
	must(t, b.Put(t.Context(), "voice", []byte(text("voice", sentence+" at dusk")), written))
	b.write("bad.md", "---\nname: bad\ncolour: "+sentence+"\n---\n")
	b.promote("voice", version(one), "")
	b.rollback("voice")
	must(t, b.Deliver(t.Context(), library.Delivery{Session: "s", Template: "voice", Revision: "r"}))
	if got := bodies(b.Library); len(got) != 1 || !strings.Contains(got[0], sentence) {
		t.Fatalf("served: %q", got)
	}
	search := func(when string) {
		files, whole := 0, 0
		must(t, filepath.WalkDir(b.state, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			files, whole = files+1, whole+len(content)
			if bytes.Contains(content, []byte("heron")) {
				t.Errorf("%s: it is in %s", when, path)
			}
			if strings.Contains(path, "voice") {
				t.Errorf("%s: a file %s", when, path)
			}
			return err
		}))
		if files == 0 || whole < 10_000 {
			t.Errorf("%s: only %d bytes in %d files were searched", when, whole, files)
		}
	}
	search("while it is open")
	b.end()
	search("afterwards")
}

func TestWithoutTheKeyAVersionIsLostAndItsFileBringsItBack(t *testing.T) {
	onBoth(t, library.Options{}, func(t *testing.T, b *bed) {
		one, two := text("a", "first"), text("a", "second")
		b.write("a.md", one)
		b.write("b.md", text("b", "other"))
		b.write("a.md", two)
		b.rollback("a")
		b.end()
		b.key = []byte(strings.Repeat("n", 32))
		b.start()
		// A version whose file is in the directory needs no database.
		b.serves("b=other")
		b.problem("a@"+version(one)[:12], "sealed with another key, or is damaged")
		b.is("")
		_, err := b.Content(t.Context(), "a", version(one))
		refused(t, err, library.ErrDamaged)
		_, err = b.Promote(t.Context(), "a", version(one), "staging", note)
		refused(t, err, library.ErrDamaged)
		b.write("a.md", one)
		b.serves("a=first", "b=other")
		b.noProblems()
		await(t, "the version is in the database", func() bool { _, err := b.Content(t.Context(), "a", version(one)); return err == nil })
		must(t, os.Remove(filepath.Join(b.dir, "a.md")))
		b.file("a.md", "not good")
		b.restart()
		b.serves("a=first", "b=other")
	})
}

func TestADamagedContentIsAProblemAndNoCrash(t *testing.T) {
	b := on(t, library.Options{})
	one := text("a", "first")
	b.write("a.md", one)
	b.write("b.md", text("b", "other"))
	b.write("a.md", "no header")
	for _, content := range [][]byte{{}, []byte("x"), bytes.Repeat([]byte("y"), 500)} {
		b.exec(`UPDATE instruct_versions SET content = ?1 WHERE name = 'a'`, content)
		b.restart()
		b.serves("b=other")
		b.problem("a@"+version(one)[:12], "damaged")
		b.is("")
	}
	must(t, os.Remove(filepath.Join(b.dir, "b.md")))
	b.look()
	b.is("none of the documents")
}

// A sealed content that was copied into another row cannot be opened there.
func TestAContentOpensInItsOwnRowAlone(t *testing.T) {
	b := on(t, library.Options{})
	one, two := text("a", "first"), text("b", "other")
	b.write("a.md", one)
	b.write("b.md", two)
	b.write("a.md", "no header")
	b.exec(`UPDATE instruct_versions SET content = (SELECT content FROM instruct_versions WHERE name = 'b') WHERE name = 'a'`)
	b.restart()
	b.serves("b=other")
	b.problem("a@"+version(one)[:12], "sealed with another key, or is damaged")
}

func TestTheKeyHas32Bytes(t *testing.T) {
	b := on(t, library.Options{})
	o := b.options()
	for _, n := range []int{0, 16, 31, 33} {
		o.Key = make([]byte, n)
		if _, err := library.Open(t.Context(), o); err == nil {
			t.Errorf("a key of %d bytes was taken", n)
		}
	}
}
