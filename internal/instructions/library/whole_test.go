package library_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/instructions/library"
	"github.com/doorward/doorward/test/overload"
)

// A file that is written slowly becomes one version: the complete one.
func TestAFileThatIsBeingWrittenIsTakenWhenItIsWhole(t *testing.T) {
	t.Parallel()
	b := newBed(t, library.Options{}, "")
	for tries := 0; !writtenSlowly(t, filepath.Join(b.dir, "a.md")); tries++ {
		if tries == 10 {
			t.Skip("this machine is too busy to write without pauses")
		}
		b = newBed(t, library.Options{}, "")
	}
	await(t, "it is served", func() bool { return len(bodies(b.Library)) == 1 })
	if got := bodies(b.Library)[0]; !strings.HasSuffix(got, "line 29") {
		t.Errorf("served: %q", got)
	}
	if n := b.count(`SELECT count(*) FROM instruct_versions`); n != 1 {
		t.Errorf("%d versions, want the whole one alone", n)
	}
}

// writtenSlowly writes a file line by line. false: it paused, so that the file may have been
// taken before its end.
func writtenSlowly(t *testing.T, path string) (steadily bool) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	defer f.Close()
	_, err = f.WriteString("---\nname: a\nclass: instructions\n---\n")
	must(t, err)
	last := time.Now()
	for i := range 30 {
		_, err = fmt.Fprintf(f, "line %d\n", i)
		must(t, err)
		if time.Since(last) > 190*time.Millisecond { // two looks are 200 ms apart
			return false
		}
		last = time.Now()
		time.Sleep(50 * time.Millisecond)
	}
	return true
}

// A look that hangs in the file system is reported in the state. It delays neither
// Set nor an operator's revocation nor the end of the daemon.
func TestAHangingLookIsReportedAndDelaysNothing(t *testing.T) {
	hang, in := make(chan chan struct{}, 1), make(chan struct{}, 100)
	b := on(t, library.Options{}, func(l *library.Library) {
		l.OnLook(func() {
			select {
			case release := <-hang:
				in <- struct{}{}
				<-release
			default:
			}
		})
	})
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

func TestAtMostAThousandDocumentsAreServed(t *testing.T) {
	b := on(t, library.Options{})
	for i := range 1003 {
		name := fmt.Sprintf("d%04d", i)
		b.file(name+".md", text(name, "x"))
	}
	b.look()
	if n := len(bodies(b.Library)); n != 1000 {
		t.Errorf("%d are served", n)
	}
	b.problem(b.dir, "contains 1003 documents: at most 1000 are possible")
	began := time.Now()
	b.look()
	if took := time.Since(began); took > 5*time.Second+overload.Late() {
		t.Errorf("a look at unchanged files took %s", took)
	}
}

// A document whose include is missing does not replace its earlier version. It is
// served when the include arrives.
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
	log.has(t, "level=WARN", "cannot be delivered", b.dir+" is missing")
	must(t, os.Rename(away, b.dir))
	b.look()
	b.look()
	log.has(t, "level=INFO", "can be delivered again")
	b.write("a.md", "no header")
	log.has(t, "cannot be delivered", "none of the documents", "a.md:1: the first line")
	b.write("b.md", text("b", "x"))
	b.write("c.md", "no header either")
	log.has(t, "can be delivered again", "instructions changed", "name=b", "c.md:1: the first line")
}

// lines are the lines of a log since the last call of has.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

// has fails the test unless each of the words is in the log once; without words the
// log must be empty.
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
