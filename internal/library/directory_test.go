package library_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/library"
	"github.com/doorward/doorward/internal/store"
)

func TestAFileIsProductionAtOnceAndSoIsWhatItBecomes(t *testing.T) {
	onBoth(t, library.Options{Moved: note}, func(t *testing.T, b *bed) {
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

// What must not be read is refused with its reason, and a named pipe does not
// hold the look up.
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
		"group.md": "by others than its owner (mode 0620)", "world.md": "by others than its owner (mode 0602)",
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
	b.is("by others than its owner")
	must(t, os.Chmod(b.dir, 0o700))
	b.look()
	b.is("")
	b.serves("a=x")
}

// The earlier version goes on, also for another process; when the file is good
// again it is production.
func TestABadFileCostsItselfAndNoMore(t *testing.T) {
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
		{"that nobody named means that nobody uses this", false, false, "", true},
		{"that was named is an outage", true, false, "is missing", false},
		{"that there once was is an outage", false, true, "is missing", false},
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
			must(t, os.Mkdir(b.dir, 0o700))
			b.write("b.md", text("b", "y"))
			b.serves("b=y")
			if state := b.is(""); state.Unused {
				t.Errorf("%+v", state)
			}
		})
	}
}

func TestADirectoryThatGoesAwayKeepsTheLastSetForThoseWhoHaveIt(t *testing.T) {
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
	l, err := library.Open(t.Context(), library.Options{DB: db, Key: make([]byte, 32)})
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

// No half of a file that is written slowly is ever a version, the last one is.
func TestAFileThatIsBeingWrittenIsTakenWhenItIsWhole(t *testing.T) {
	b := on(t, library.Options{})
	f, err := os.OpenFile(filepath.Join(b.dir, "a.md"), os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	_, err = f.WriteString("---\nname: a\nclass: instructions\n---\n")
	must(t, err)
	for i := range 30 {
		_, err = fmt.Fprintf(f, "line %d\n", i)
		must(t, err)
		time.Sleep(100 * time.Millisecond)
	}
	must(t, f.Close())
	await(t, "it is served", func() bool { return len(bodies(b.Library)) == 1 })
	if got := bodies(b.Library)[0]; !strings.HasSuffix(got, "line 29") {
		t.Errorf("served: %q", got)
	}
	if n := b.count(`SELECT count(*) FROM instruct_versions`); n != 1 {
		t.Errorf("%d versions, want the whole one alone", n)
	}
}

// A look that hangs in the file system holds up nothing: not Set, not an
// operator's revocation, not the end of the daemon.
func TestALookThatHangsIsSaidAndHoldsUpNothing(t *testing.T) {
	hang, in := make(chan chan struct{}, 1), make(chan struct{}, 100)
	o := library.Options{}
	o.OnPass(func() {
		select {
		case release := <-hang:
			in <- struct{}{}
			<-release
		default:
		}
	})
	b := on(t, o)
	b.write("a.md", text("a", "x"))
	release := make(chan struct{})
	hang <- release
	<-in
	await(t, "the state says that it is slow", func() bool { _, s := b.Set(); return !s.OK })
	b.is("has not answered for 2s")
	b.serves("a=x")
	b.revoke("a", "")
	b.serves()
	close(release)
	await(t, "it is over", func() bool { _, s := b.Set(); return s.OK })
	end := make(chan struct{})
	hang <- end
	<-in
	began := time.Now()
	b.stop()
	b.stop = func() {}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the end took %s", took)
	}
	close(end)
}

func TestOfTwoFilesWithOneDocumentTheEarlierKeepsIt(t *testing.T) {
	b := on(t, library.Options{})
	b.write("m.md", text("a", "first"))
	b.write("b.md", text("a", "copy"))
	b.serves("a=first")
	b.problem("b.md", "as m.md")
	b.restart()
	b.serves("a=first")
	b.problem("b.md", "as m.md")
	b.remove("m.md")
	b.serves("a=copy")
	b.noProblems()
}

func TestThereMayBeAThousandDocuments(t *testing.T) {
	b := on(t, library.Options{})
	for i := range 1003 {
		name := fmt.Sprintf("d%04d", i)
		b.file(name+".md", text(name, "x"))
	}
	b.look()
	if n := len(bodies(b.Library)); n != 1000 {
		t.Errorf("%d are served", n)
	}
	b.problem(b.dir, "holds 1003 documents: there may be 1000")
	began := time.Now()
	b.look()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a look at unchanged files took %s", took)
	}
}

// A document that cannot be served because of what it includes does not push
// out the version before; what it needs may arrive later.
func TestADocumentWhoseIncludeIsMissingWaitsForIt(t *testing.T) {
	b := on(t, library.Options{})
	b.write("a.md", text("a", "first"))
	b.write("a.md", text("a", "second {{> b}}"))
	b.serves("a=first")
	b.problem("a.md", "the document b")
	b.write("b.md", text("b", "part"))
	b.serves("a=second {{> b}}", "b=part")
	b.noProblems()
}

func TestANarrowerAudienceLeavesNothingForTheOthers(t *testing.T) {
	onBoth(t, library.Options{}, func(t *testing.T, b *bed) {
		wide, narrow := text("a", "for all"), text("a", "for few", audience("x"))
		b.write("a.md", wide)
		before := b.changed.Load()
		b.write("a.md", narrow)
		b.serves("a=for few")
		if n := b.changed.Load() - before; n != 1 {
			t.Errorf("told %d times, want once: nothing in between is served", n)
		}
		if docs, err := b.Lookup("a", version(wide)); err == nil {
			t.Errorf("the wide version is still given out: %v", docs)
		}
		b.restart()
		b.serves("a=for few")
		b.write("b.md", wide)
		b.serves("a=for few", "a=for all")
	})
}

func TestScanGoesByTheRulesOfTheWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "a.md"), []byte(text("a", "x")), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "b.md"), []byte("no header"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "c.md"), []byte(text("c", "x")), 0o600))
	must(t, os.Chmod(filepath.Join(dir, "c.md"), 0o622))
	docs, problems, err := library.Scan(dir)
	must(t, err)
	if len(docs) != 1 || docs[0].Name != "a" || len(problems) != 2 || problems[0].File != "b.md" || problems[1].File != "c.md" {
		t.Errorf("%v, %v", docs, problems)
	}
	if _, _, err := library.Scan(filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that is not there was read")
	}
}

// The log has one line when an outage begins, one when it ends, and one for
// each problem.
func TestAnOutageIsSaidInTheLogOnce(t *testing.T) {
	t.Parallel()
	var log lines
	b := newBed(t, library.Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Required: true}, "")
	log.has(t)
	away := b.dir + ".away"
	must(t, os.Rename(b.dir, away))
	b.look()
	b.look()
	log.has(t, "level=WARN", "cannot be given out", b.dir+" is missing")
	must(t, os.Rename(away, b.dir))
	b.look()
	b.look()
	log.has(t, "level=INFO", "can be given out again")
	b.write("a.md", "no header")
	log.has(t, "cannot be given out", "none of the documents", "a.md:1: the first line")
	b.write("b.md", text("b", "x"))
	b.write("c.md", "no header either")
	log.has(t, "can be given out again", "instructions changed", "name=b", "c.md:1: the first line")
}

// lines are what was logged since they were last looked at.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

// has fails the test unless each of these is there once; without any, nothing
// may be there.
func (l *lines) has(t *testing.T, words ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	got := l.all.String()
	l.all.Reset()
	for _, w := range words {
		if strings.Count(got, w) != 1 {
			t.Errorf("%q is %d times in the log:\n%s", w, strings.Count(got, w), got)
		}
	}
	if len(words) == 0 && got != "" {
		t.Errorf("the log says:\n%s", got)
	}
}
