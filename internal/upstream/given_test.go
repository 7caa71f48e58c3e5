package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The line of a call that is given up while its write is blocked is left out, whether the
// writing caller waits on or gives up too.
func TestALineGivenUpDuringABlockedWriteIsLeftOut(t *testing.T) {
	t.Parallel()
	for name, patient := range map[string]bool{"the writer waits on": true, "the writer gives up": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, r := writerPair(t)
			full := fillPipe(t, w)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := writeShared(ctx, w, "own\n", "first\n", "second\n")
			if w.queue.withdraw(1) {
				t.Fatal("the line is reported as unsent during its write")
			}
			want := "second\n"
			if patient {
				eventually(t, "the line is left out", func() bool { return w.queue.leftOut() })
				want = "own\nsecond\n"
			} else {
				cancel()
				<-done
			}
			got := make([]byte, full+len(want))
			if _, err := io.ReadFull(r, got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, string(got[full:])); diff != "" {
				t.Errorf("the child reads (-want +got):\n%s", diff)
			}
			w.lock <- struct{}{} // free again
		})
	}
}

// writeShared begins to write the line own with those of the calls 1, 2 and so on.
func writeShared(ctx context.Context, w *lineWriter, own string, others ...string) (done chan struct{}) {
	w.lock <- struct{}{}
	w.queue.open([]byte(own))
	for i, text := range others {
		w.queue.add(int64(i+1), []byte(text))
	}
	l := w.queue.take()
	done = make(chan struct{})
	go func() {
		defer close(done)
		_, _ = w.writeAll(ctx, nil, l, len(own))
	}()
	return done
}

// fillPipe writes until the pipe has no room, and returns how much it holds.
func fillPipe(t *testing.T, w *lineWriter) (n int) {
	t.Helper()
	for size := 4096; size > 0; {
		_ = w.f.SetWriteDeadline(time.Now().Add(stalled))
		m, err := w.f.Write(bytes.Repeat([]byte("."), size))
		n += m
		switch {
		case err == nil:
		case isDeadline(err):
			size /= 2
		default:
			t.Fatal(err)
		}
	}
	return n
}

func isDeadline(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// leftOut reports whether no line waits to be left out of a write.
func (q *lineQueue) leftOut() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.left) == 0
}
