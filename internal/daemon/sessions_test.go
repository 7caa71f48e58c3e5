package daemon

import (
	"errors"
	"io/fs"
	"log/slog"
	"testing"

	"github.com/doorward/doorward/internal/downstream/sessionstore"
)

// A session that can no longer be stored is not found in the next run, because it would
// continue with what it had set up earlier.
func TestASessionThatOutgrowsTheStoreIsForgotten(t *testing.T) {
	t.Parallel()
	k, err := openKeeper(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	for _, size := range []int{1, sessionstore.MaxEntry + 1, sessionstore.MaxEntry} {
		k.Keep("a", make([]byte, size))
		got, err := k.Find("a")
		if size > sessionstore.MaxEntry {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%d bytes: found %d, %v", size, len(got), err)
			}
		} else if len(got) != size || err != nil {
			t.Errorf("%d bytes: found %d, %v", size, len(got), err)
		}
	}
}
