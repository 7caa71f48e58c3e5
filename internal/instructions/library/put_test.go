package library_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/instructions/document"
	"github.com/doorward/doorward/internal/instructions/library"
)

func (b *bed) put(name, content string) {
	b.t.Helper()
	must(b.t, b.Put(b.t.Context(), name, []byte(content), written))
}

// has fails the test unless the directory holds these files and nothing else.
func (b *bed) has(want ...string) {
	b.t.Helper()
	entries, err := os.ReadDir(b.dir)
	must(b.t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
		if fi, err := e.Info(); err != nil || fi.Mode().Perm() != 0o600 {
			b.t.Errorf("%s has mode %v (%v)", e.Name(), fi.Mode(), err)
		}
	}
	slices.Sort(want)
	equal(b.t, "files", got, want...)
}

// A put document is served when Put returns, and is an ordinary file.
func TestAPutDocumentIsServedAtOnce(t *testing.T) {
	b := on(t, library.Options{})
	b.put("a", text("a", "first"))
	b.serves("a=first")
	b.put("a", text("a", "second"))
	b.serves("a=second")
	b.has("a.md")
	b.put("a", text("a", "for few", audience("x")))
	b.put("a", text("a", "for others", audience("y")))
	b.put("a", text("a", "third"))
	b.serves("a=third", "a=for few", "a=for others")
	if entries, _ := os.ReadDir(b.dir); len(entries) != 3 {
		t.Errorf("%v", entries)
	}
	b.restart()
	b.serves("a=third", "a=for few", "a=for others")
	b.rollback("a")
	b.serves("a=second", "a=for few", "a=for others")
}

func TestAPutReplacesTheFileThatHoldsTheDocument(t *testing.T) {
	b := on(t, library.Options{})
	b.write("my own name.md", text("a", "first"))
	b.put("a", text("a", "second"))
	b.has("my own name.md")
	b.write("my own name.md", "broken by an editor")
	b.put("a", text("a", "third"))
	b.has("my own name.md")
	b.serves("a=third")
	b.noProblems()
}

// Put overwrites no file of another document and no link.
func TestAPutTakesAFreeName(t *testing.T) {
	b := on(t, library.Options{})
	b.file("a.md", text("b", "not a"))
	must(t, os.Symlink("/nowhere", filepath.Join(b.dir, "a-all.md")))
	b.put("a", text("a", "first"))
	b.serves("a=first", "b=not a")
	if got, err := os.ReadFile(filepath.Join(b.dir, "a.md")); err != nil || !strings.Contains(string(got), "not a") {
		t.Errorf("%s, %v", got, err)
	}
}

// Replace leaves no file for the wider audience when a text gets a narrower one.
func TestReplacePutsAnotherAudienceInTheSameFile(t *testing.T) {
	b := on(t, library.Options{})
	wide, narrow := text("a", "for all"), text("a", "for few", audience("x"))
	b.put("a", wide)
	must(t, b.Replace(t.Context(), "a", version(wide)[:12], []byte(narrow), written))
	b.serves("a=for few")
	b.has("a.md")
	b.put("a", wide)
	err := b.Replace(t.Context(), "a", version(wide), []byte(narrow), written)
	var problems document.Problems
	if !errors.As(err, &problems) {
		t.Errorf("over another file: %v", err)
	}
	refused(t, b.Replace(t.Context(), "a", version("none"), []byte(wide), written), library.ErrAbsent)
	refused(t, b.Replace(t.Context(), "a", "a", []byte(wide), written), library.ErrUnknown)
}

func TestAPutThatIsNoDocumentWritesNothing(t *testing.T) {
	b := on(t, library.Options{})
	for _, content := range []string{"", "no header", text("b", "of another name"), text("a", "x", "colour: red")} {
		var problems document.Problems
		if err := b.Put(t.Context(), "a", []byte(content), written); !errors.As(err, &problems) || len(problems) == 0 {
			t.Errorf("%q: %v", content, err)
		}
	}
	b.has()
	must(t, os.Chmod(b.dir, 0o777))
	if err := b.Put(t.Context(), "a", []byte(text("a", "x")), written); err == nil {
		t.Error("it was written into a directory that all can write")
	}
	must(t, os.Chmod(b.dir, 0o700))
	b.has()
}

func TestAPutMakesTheDirectory(t *testing.T) {
	b := on(t, library.Options{})
	must(t, os.Remove(b.dir))
	b.look()
	b.put("a", text("a", "first"))
	b.serves("a=first")
	if fi, err := os.Stat(b.dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
}
