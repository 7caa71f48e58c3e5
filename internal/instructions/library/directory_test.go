package library_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/store"
	"github.com/doorward/doorward/internal/instructions/library"
)

func TestAFileAndItsChangesAreProductionAtOnce(t *testing.T) {
	onBoth(t, library.Options{Entered: note}, func(t *testing.T, b *bed) {
		b.serves()
		b.is("")
		one, two := text("voice", "speak plainly"), text("voice", "speak briefly")
		b.write("voice.md", one)
		b.serves("voice=speak plainly")
		b.write("voice.md", two)
		b.serves("voice=speak briefly")
		b.noProblems()
		all, err := b.Versions(t.Context(), "voice")
		must(t, err)
		if len(all) != 2 || all[0].Version != version(two) || all[1].Version != version(one) || all[0].Number != 2 {
			t.Errorf("versions: %+v", all)
		}
		if !all[0].Served || all[0].File != "voice.md" || all[1].Served || all[1].File != "" || all[0].Bytes != int64(len(two)) {
			t.Errorf("versions: %+v", all)
		}
		got := b.recorded()
		if len(got) != 2 {
			t.Fatalf("recorded: %+v", got)
		}
		a := got[1].(library.Act)
		equal(t, "the move that was recorded", a.Moves, library.Move{From: version(one), To: version(two)})
		if a.Op != library.OpFile || a.Name != "voice" || a.Label != library.Production {
			t.Errorf("recorded: %+v", a)
		}
	})
}

func TestAChangeIsNoticedByItself(t *testing.T) {
	b := on(t, library.Options{})
	before := b.changed.Load()
	b.file("a.md", text("a", "first"))
	await(t, "the new file is served", func() bool { return strings.Join(bodies(b.Library), " ") == "a=first" })
	b.file("a.md", text("a", "second"))
	await(t, "the changed file is served", func() bool { return strings.Join(bodies(b.Library), " ") == "a=second" })
	must(t, os.Remove(filepath.Join(b.dir, "a.md")))
	await(t, "the removed file is not served", func() bool { return len(bodies(b.Library)) == 0 })
	if n := b.changed.Load() - before; n != 3 {
		t.Errorf("told of %d changes, want 3", n)
	}
}

func TestNothingIsToldWhenNothingChanged(t *testing.T) {
	b := on(t, library.Options{})
	b.write("a.md", text("a", "first"))
	before, was := b.changed.Load(), time.Now()
	set, state := b.Set()
	must(t, os.Chtimes(filepath.Join(b.dir, "a.md"), was, was))
	b.look()
	b.look()
	again, later := b.Set()
	if b.changed.Load() != before || again != set || !later.Since.Equal(state.Since) {
		t.Errorf("told %d times; since %s, then %s", b.changed.Load()-before, state.Since, later.Since)
	}
}

// A file that other users could have written, or that is no regular file, is refused
// with its reason. A named pipe does not block the look.
func TestAFileThatAnybodyCouldHaveWrittenIsRefused(t *testing.T) {
	b := on(t, library.Options{})
	good := text("good", "good")
	b.file("good.md", good)
	in := func(name string) string { return filepath.Join(b.dir, name) }
	must(t, os.Symlink("good.md", in("link.md")))
	must(t, os.Symlink("/etc/passwd", in("far.md")))
	must(t, syscall.Mkfifo(in("pipe.md"), 0o600))
	must(t, os.Mkdir(in("folder.md"), 0o700))
	socket, err := net.Listen("unix", in("s.md"))
	if err == nil { // the name may be too long for one
		defer socket.Close()
	}
	b.file("group.md", text("group", "x"))
	must(t, os.Chmod(in("group.md"), 0o620))
	b.file("world.md", text("world", "x"))
	must(t, os.Chmod(in("world.md"), 0o602))
	b.file("long.md", text("long", strings.Repeat("x", 256<<10)))
	b.file("latin.md", text("latin", "caf\xe9"))
	b.file("bad.md", "---\nname: bad\nclass: voice\ncolour: red\n---\nx\n")
	b.file("tool\x1b[2J.md", "x")
	b.file(".hidden.md", "x")
	b.file("notes.txt", "x")
	b.look()
	b.serves("good=good")
	b.is("")
	for file, words := range map[string]string{
		"link.md": "a symbolic link", "far.md": "a symbolic link", "pipe.md": "a named pipe", "folder.md": "a directory",
		"group.md": "by users other than its owner (mode 0620)", "world.md": "by users other than its owner (mode 0602)",
		"long.md": "has at most 262144", "latin.md": "UTF-8", "bad.md": "colour", `"tool\x1b[2J.md"`: "cannot be shown",
	} {
		b.problem(file, words)
	}
	if p := b.problem("bad.md", "colour"); p.Line != 4 {
		t.Errorf("line %d, want 4", p.Line)
	}
	if err == nil {
		b.problem("s.md", "a socket")
	}
}

func TestAFileOfAnotherUserIsRefused(t *testing.T) {
	b := on(t, library.Options{})
	b.file("theirs.md", text("theirs", "x"))
	if err := os.Chown(filepath.Join(b.dir, "theirs.md"), 12345, -1); err != nil {
		t.Skipf("skipped: files can be given away by root alone: %v", err)
	}
	b.look()
	b.serves()
	b.problem("theirs.md", "belongs to user 12345")
	b.is("none of the documents")
	must(t, os.Chown(b.dir, 12345, -1))
	b.look()
	b.is("belongs to user 12345")
}

func TestADirectoryThatOthersCanWriteIsRefused(t *testing.T) {
	b := on(t, library.Options{})
	b.write("a.md", text("a", "x"))
	must(t, os.Chmod(b.dir, 0o770))
	b.look()
	b.is("by users other than its owner")
	must(t, os.Chmod(b.dir, 0o700))
	b.look()
	b.is("")
	b.serves("a=x")
}

// A bad file leaves its earlier version served, also after a restart. When the file
// is valid again, it is production.
func TestABadFileLeavesItsEarlierVersionServed(t *testing.T) {
	onBoth(t, library.Options{}, func(t *testing.T, b *bed) {
		b.write("a.md", text("a", "first"))
		b.write("b.md", text("b", "other"))
		b.write("a.md", "no header")
		b.serves("a=first", "b=other")
		b.problem("a.md", "header")
		b.restart()
		b.serves("a=first", "b=other")
		b.is("")
		b.problem("a.md", "header")
		must(t, os.Remove(filepath.Join(b.dir, "a.md")))
		must(t, os.Symlink("/etc/passwd", filepath.Join(b.dir, "a.md")))
		b.look()
		b.serves("a=first", "b=other")
		b.remove("a.md")
		b.serves("b=other")
		b.noProblems()
		b.write("a.md", text("a", "third"))
		b.serves("a=third", "b=other")
	})
}

func TestNothingButBadFilesIsAnOutage(t *testing.T) {
	b := on(t, library.Options{})
	b.write("a.md", "no header")
	b.serves()
	b.is("none of the documents")
	b.remove("a.md")
	b.is("")
}

func TestAFileThatComesBackMovesNoLabel(t *testing.T) {
	onBoth(t, library.Options{}, func(t *testing.T, b *bed) {
		one, two := text("a", "first"), text("a", "second")
		b.write("a.md", one)
		b.write("a.md", two)
		b.rollback("a")
		b.serves("a=first")
		b.remove("a.md")
		b.serves()
		if _, err := b.Lookup("a", version(one)); err == nil {
			t.Error("a version whose file is gone is still given out")
		}
		b.write("other-name.md", two)
		b.serves("a=first")
		b.restart()
		b.serves("a=first")
	})
}

func TestAMissingDirectory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		required bool
		known    bool
		reason   string
		unused   bool
	}{
		{"that is not configured means that the library is unused", false, false, "", true},
		{"that is configured is an outage", true, false, "is missing", false},
		{"that existed before is an outage", false, true, "is missing", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := on(t, library.Options{Required: c.required})
			if c.known {
				b.write("a.md", text("a", "x"))
			}
			b.end()
			must(t, os.RemoveAll(b.dir))
			b.start()
			if state := b.is(c.reason); state.Unused != c.unused {
				t.Errorf("%+v", state)
			}
			b.serves()
			must(t, os.Mkdir(b.dir, 0o700)) // any program could have made it
			b.write("b.md", text("b", "y"))
			b.serves()
			if c.unused {
				must(t, b.Put(t.Context(), "c", []byte(text("c", "z")), written))
				b.look()
				b.serves()
				b.promote("c", "", "")
				b.serves("c=z")
				return
			}
			b.promote("b", "", "")
			b.serves("b=y")
			if state := b.is(""); state.Unused {
				t.Errorf("%+v", state)
			}
		})
	}
}

func TestTheLastSetIsServedWhileTheDirectoryIsMissing(t *testing.T) {
	b := on(t, library.Options{})
	b.write("a.md", text("a", "x"))
	away := b.dir + ".away"
	must(t, os.Rename(b.dir, away))
	b.look()
	b.is("is missing")
	b.serves("a=x")
	must(t, os.Rename(away, b.dir))
	b.look()
	b.is("")
	b.serves("a=x")
}

func TestWithNeitherDirectoryNorRemoteItIsUnused(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), store.Options{Dir: t.TempDir(), Migrations: library.Migrations()})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	l, err := library.Open(t.Context(), library.Options{DB: db, Key: make([]byte, 32), Entered: note})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { l.Run(ctx); close(done) }()
	ready(t, l)
	if set, state := l.Set(); set == nil || !state.OK || !state.Unused || len(set.Documents()) != 0 {
		t.Errorf("%+v", state)
	}
	cancel()
	<-done
}

// TestAReplacedDirectoryIsReportedBeforeItIsServed: Replaced is called once, before
// anything of another directory under the name is served. It is not called when the
// same directory comes back.
func TestAReplacedDirectoryIsReportedBeforeItIsServed(t *testing.T) {
	var b *bed
	var told []string
	b = on(t, library.Options{Replaced: func() {
		set, _ := b.Set()
		told = append(told, strconv.Itoa(len(set.Documents())))
	}})
	b.write("a.md", text("a", "x"))
	b.serves("a=x")
	old := b.dir + ".old"
	must(t, os.Rename(b.dir, old))
	b.look()
	must(t, os.Rename(old, b.dir))
	b.serves("a=x")
	if len(told) != 0 {
		t.Fatalf("told of the same directory: %q", told)
	}
	must(t, os.Rename(b.dir, old))
	must(t, os.Mkdir(b.dir, 0o700))
	b.write("a.md", text("a", "y"))
	b.write("b.md", text("b", "z"))
	b.promote("b", "", "")
	b.serves("a=x", "b=z")
	if !slices.Equal(told, []string{"1"}) {
		t.Errorf("told %q, want once, with the one document of before", told)
	}
}

// TestNothingOfAnotherDirectoryIsProductionByItself: new contents of another
// directory under the name are served only after a promote, because its author is
// unknown. Known versions stay served. After a restart it is an ordinary directory.
func TestNothingOfAnotherDirectoryIsProductionByItself(t *testing.T) {
	onBoth(t, library.Options{Entered: note}, func(t *testing.T, b *bed) {
		b.write("a.md", text("a", "x"))
		b.write("b.md", text("b", "x"))
		must(t, os.Rename(b.dir, b.dir+".old"))
		b.look()
		must(t, os.Mkdir(b.dir, 0o700))
		b.file("a.md", text("a", "x"))
		b.file("b.md", text("b", "planted"))
		b.write("evil.md", text("evil", "planted"))
		b.serves("a=x", "b=x")
		b.is("")
		b.write("a.md", text("a", "planted later"))
		b.serves("a=x", "b=x")
		if n := b.moves(); n != 2 {
			t.Errorf("%d records of moves, want those of the first two files", n)
		}
		b.promote("b", "", "")
		b.serves("a=x", "b=planted")
		b.restart()
		b.serves("a=x", "b=planted")
		b.write("a.md", text("a", "z"))
		b.serves("a=z", "b=planted")
	})
}

// TestADirectoryMadeByPutIsTrusted: documents of a directory that Put made are
// production at once. Replaced is called for it all the same, so that the daemon can
// protect it.
func TestADirectoryMadeByPutIsTrusted(t *testing.T) {
	told := 0
	b := on(t, library.Options{Replaced: func() { told++ }})
	must(t, os.Rename(b.dir, b.dir+".old"))
	b.look()
	must(t, b.Put(t.Context(), "c", []byte(text("c", "first")), written))
	b.look()
	b.serves("c=first")
	b.write("c.md", text("c", "second"))
	b.serves("c=second")
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}
