package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// In each repeatedTime, every cause of a failure has one log line with the number of failures
// of that cause before it, whatever order they come in and whatever random names their texts
// contain.
func TestEachCauseOfARepeatedFailureIsLogged(t *testing.T) {
	t.Parallel()
	causes := map[string]func(i int) error{
		"no space left": func(i int) error {
			return fmt.Errorf("keeping: %w", &fs.PathError{Op: "write", Path: fmt.Sprint(".new-", i), Err: syscall.ENOSPC})
		},
		"permission denied": func(i int) error {
			return &os.LinkError{Op: "rename", Old: fmt.Sprint(".new-", i), New: "a", Err: syscall.EACCES}
		},
		"already closed": func(i int) error {
			return errors.Join(&fs.PathError{Op: "openat", Path: fmt.Sprint(".new-", i), Err: fs.ErrClosed}, fmt.Errorf("removing .new-%d", i))
		},
		"too large": func(int) error { return errors.New("too large") },
	}
	synctest.Test(t, func(t *testing.T) {
		var r repeated
		for _, since := range []string{"since_then=0", "since_then=2"} {
			var out bytes.Buffer
			log := slog.New(slog.NewTextHandler(&out, nil))
			for i := range 3 {
				for _, cause := range causes {
					r.warn(log, "it failed", cause(i))
				}
			}
			for text := range causes {
				if n := strings.Count(out.String(), text); n != 1 {
					t.Errorf("%d lines about %q in\n%s", n, text, out.String())
				}
			}
			if n := strings.Count(out.String(), since); n != len(causes) {
				t.Errorf("%d of %d lines with %s in\n%s", n, len(causes), since, out.String())
			}
			time.Sleep(repeatedTime)
		}
	})
}
