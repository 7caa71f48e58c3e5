package process

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/overload"
)

// TestEachPathHasItsOwnTime: any number of paths that answer within the limit stop nothing, and the daemon hears of the
// progress often enough; the path that exceeds the limit is named.
func TestEachPathHasItsOwnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var over []string
		heard, silence := time.Now(), time.Duration(0)
		hear := func() { silence, heard = max(silence, time.Since(heard)), time.Now() }
		asks := newPatience(answerPatience, func(path string) { over = append(over, path) }, hear)
		for i := range 20 {
			asks.ask(fmt.Sprint("slow", i))
			time.Sleep(answerPatience - 1)
		}
		if hear(); len(over) > 0 || silence >= reportPatience {
			t.Errorf("%v do not answer, %v without a note", over, silence)
		}
		asks.ask("dead")
		time.Sleep(answerPatience + 1)
		asks.end()
		if synctest.Wait(); len(over) != 1 || over[0] != "dead" {
			t.Errorf("%v do not answer", over)
		}
	})
}

// TestNotesOfProgressAreNoResult: the first result is that after the notes of progress.
func TestNotesOfProgressAreNoResult(t *testing.T) {
	t.Parallel()
	for want, last := range map[string]string{"<nil>": `{"measures":[]}`, "it hangs": `{"error":"it hangs","astray":true}`} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		fmt.Fprintf(w, "{\"building\":true}\n{\"building\":true}\n%s\n", last)
		w.Close()
		if err := (&reportReader{file: r}).first(); !strings.HasSuffix(fmt.Sprint(err), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestAHangingQuestionIsAskedOnce: while a file system does not answer, every question of the name ends in time and
// none adds a goroutine; other names are not affected; when it answers, the next question is asked.
func TestAHangingQuestionIsAskedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l Lookups
		var asked atomic.Int32
		answer := make(chan struct{})
		begun := time.Now()
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				time.Sleep(time.Duration(i%10) * time.Second)
				if l.Do("hangs", time.Second, func() { asked.Add(1); <-answer }) {
					t.Error("it answered")
				}
				if !l.Do(fmt.Sprint("other", i), time.Second, func() {}) {
					t.Error("another name does not answer")
				}
			})
		}
		all.Wait()
		if took := time.Since(begun); asked.Load() != 1 || took > 10*time.Second {
			t.Errorf("asked %d times, in %v", asked.Load(), took)
		}
		begun = time.Now()
		if l.Do("hangs", time.Second, func() {}) || time.Since(begun) > 0 {
			t.Errorf("one that is known to hang took %v", time.Since(begun))
		}
		close(answer)
		synctest.Wait()
		if !l.Do("hangs", time.Second, func() { asked.Add(1) }) || asked.Load() != 2 {
			t.Errorf("afterwards it was asked %d times", asked.Load())
		}
	})
}

// TestACheckOfAHangingGrantEnds: the check of a sandbox with a path that does not answer fails in time.
func TestACheckOfAHangingGrantEnds(t *testing.T) {
	withMounts(t, func(t *testing.T, dir string) {
		fd := fuse(t, dir+"/hangs")
		defer unix.Close(fd)
		r := must(NewRunner(Options{Self: self(), Private: dir, Hide: []string{dir + "/own"}}))
		begun := time.Now()
		for range 5 {
			_, err := r.Check(Sandbox{Mode: Contain, Read: []string{dir + "/hangs"}})
			if err == nil || !strings.Contains(err.Error(), "does not answer") {
				t.Errorf("the check: %v", err)
			}
		}
		if took := time.Since(begun); took > 2*answerPatience+overload.Late() {
			t.Errorf("five checks took %v", took)
		}
	})
}
