package spawn

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// A whole output is removed within a day after its seven days, while the daemon runs. The file
// of a running agent stays, however old it is, and nothing is removed after Close.
func TestOldOutputsAreRemovedEachDay(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	dir := filepath.Join(state, outputsDir)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		stored := func(name string) {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Error(err)
			}
			if err := os.Chtimes(path, time.Now(), time.Now()); err != nil {
				t.Error(err)
			}
		}
		there := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
		m := New(Options{StateDir: state})
		go Sweep(m)
		stored("running" + unseen)
		for day := range 30 {
			stored(fmt.Sprint(day, seen))
			time.Sleep(sweepEvery)
			synctest.Wait()
			for d := range day + 1 {
				age := time.Duration(day+1-d) * sweepEvery
				if is := there(fmt.Sprint(d, seen)); age > outputsKept+sweepEvery && is || age <= outputsKept && !is {
					t.Fatalf("after %s it is there: %t", age, is)
				}
			}
		}
		if !there("running" + unseen) {
			t.Error("the file of a running agent was removed")
		}
		m.Close(context.Background())
		synctest.Wait()
		time.Sleep(30 * sweepEvery)
		if !there(fmt.Sprint(29, seen)) {
			t.Error("it removes files after its end")
		}
	})
}
