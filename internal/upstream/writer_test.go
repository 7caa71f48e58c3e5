package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// writerPair returns a line writer and the end that its child reads.
func writerPair(t *testing.T) (*lineWriter, *os.File) {
	t.Helper()
	r, f, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), f.Close() })
	return &lineWriter{f: f, lock: make(chan struct{}, 1), over: make(chan struct{}), failed: func() {}}, r
}

// A child sees whole lines, each once: all that no caller gave up, and none that a caller was
// told to be unsent. The child pauses, so that the pipe is full again and again, and callers
// give up at any time.
func TestLinesOfManyCallersAreWholeAndSeenOnce(t *testing.T) {
	t.Parallel()
	w, r := writerPair(t)
	const callers, each = 24, 100
	seen := make(chan map[int64]int, 1)
	go func() { seen <- readLines(t, r) }()

	var mu sync.Mutex
	sent := make(map[int64]outcome)
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			var line []byte // used again and again, as the buffers of a stream are
			for i := range each {
				id := int64(caller*each + i + 1)
				line = appendLine(line[:0], id)
				end := writeOne(t, w, id, line)
				mu.Lock()
				sent[id] = end
				mu.Unlock()
			}
		})
	}
	all.Wait()
	w.lock <- struct{}{} // all background writes have ended
	w.f.Close()
	got := <-seen
	for id, end := range sent {
		if n := got[id]; n > 1 || n == 0 && end == certain || n > 0 && end == unseen {
			t.Errorf("line %d (%s): seen %d times", id, end, n)
		}
	}
}

// outcome is what a caller knows about its line.
type outcome string

const (
	certain  outcome = "sent"
	possible outcome = "given up during its write"
	unseen   outcome = "not sent"
)

// writeOne writes the line of a call, as a stream does.
func writeOne(t *testing.T, w *lineWriter, id int64, line []byte) outcome {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(200))*time.Millisecond)
	defer cancel()
	if w.queue.add(id, line) {
		switch rand.IntN(3) {
		case 0:
			return certain
		case 1:
			<-ctx.Done()
		}
		if w.queue.withdraw(id) {
			return unseen
		}
		return possible
	}
	if begun, err := w.write(ctx, nil, line, id%4 > 0); begun || err == nil {
		return certain
	}
	return unseen
}

// appendLine appends the line of a call: its id, and x, of a length that depends on the id.
func appendLine(b []byte, id int64) []byte {
	size := []int{10, 300, 5000, 25 << 10}[id%4]
	if id%97 == 0 {
		size = 200 << 10
	}
	return append(append(strconv.AppendInt(b, id, 10), bytes.Repeat([]byte("x"), size)...), '\n')
}

func lineOf(id int64) []byte { return appendLine(nil, id) }

// readLines reads with pauses to the end, and counts the lines with each id.
func readLines(t *testing.T, r *os.File) map[int64]int {
	seen := make(map[int64]int)
	in := bufio.NewReader(r)
	for n := 0; ; n++ {
		text, err := in.ReadString('\n')
		if err != nil {
			return seen
		}
		id, _ := strconv.ParseInt(strings.TrimRight(text, "x\n"), 10, 64)
		if text != string(lineOf(max(id, 0))) {
			t.Errorf("a line of %d bytes begins with %.40q", len(text), text)
		}
		seen[id]++
		if n%50 == 0 {
			time.Sleep(120 * time.Millisecond) // longer than a write blocks before it looks at its caller
		}
	}
}

// When a write fails, exactly the calls of which nothing was written are told so.
func TestLinesThatAFailedWriteLeftAreUnsent(t *testing.T) {
	t.Parallel()
	w, r := writerPair(t)
	full := bytes.Repeat([]byte("y"), 1<<20)
	done := make(chan error, 1)
	go func() {
		_, err := w.write(t.Context(), nil, append(full, '\n'), false)
		done <- err
	}()
	if _, err := r.Read(make([]byte, 1)); err != nil { // the long line is being written
		t.Fatal(err)
	}
	for id := range int64(5) {
		if !w.queue.add(id+1, lineOf(5)) {
			t.Fatalf("call %d found no place", id+1)
		}
	}
	r.Close()
	if err := <-done; !errors.Is(err, ErrLost) {
		t.Errorf("the writing caller got %v", err)
	}
	for id := range int64(5) {
		if !w.queue.withdraw(id + 1) {
			t.Errorf("call %d is not reported as unsent", id+1)
		}
	}
	if w.queue.withdraw(1) || w.queue.add(9, lineOf(5)) {
		t.Error("the queue takes lines after the failure")
	}
}

// The failure of a write in the background is reported, and its calls are unsent.
func TestAFailedWriteInTheBackgroundIsReported(t *testing.T) {
	t.Parallel()
	w, r := writerPair(t)
	failed := make(chan struct{})
	w.failed = func() { close(failed) }
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, _ = r.Read(make([]byte, 1)); cancel() }() // half a line is written
	begun, err := w.write(ctx, nil, append(bytes.Repeat([]byte("y"), 1<<20), '\n'), false)
	if !begun || !errors.Is(err, context.Canceled) {
		t.Fatalf("begun %v, %v", begun, err)
	}
	if !w.queue.add(1, lineOf(1)) {
		t.Fatal("the call found no place")
	}
	r.Close()
	<-failed
	if !w.queue.withdraw(1) {
		t.Error("the call is not reported as unsent")
	}
}

func TestCutKeepsTheLinesOfWhichNothingIsWritten(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		written    int
		rest, left string
	}{
		{0, "", "one\ntwo\nthree\n"},
		{1, "ne\n", "two\nthree\n"},
		{4, "", "two\nthree\n"},
		{7, "\n", "three\n"},
		{8, "", "three\n"},
		{13, "\n", ""},
		{14, "", ""},
	} {
		l := new(lines)
		for i, text := range []string{"one\n", "two\n", "three\n"} {
			l.add(int64(i), []byte(text))
		}
		if rest := l.cut(tc.written); string(rest) != tc.rest || string(l.text) != tc.left || len(l.calls) != strings.Count(tc.left, "\n") {
			t.Errorf("%d bytes written: rest %q, left %q in %d calls", tc.written, rest, l.text, len(l.calls))
		}
	}
}

// A caller whose line was written does not wait for the lines of others, which the child does
// not read. They are written when it reads.
func TestACallerDoesNotWaitForTheLinesOfOthers(t *testing.T) {
	t.Parallel()
	w, r := writerPair(t)
	w.lock <- struct{}{}
	w.queue.open([]byte("own\n"))
	want := "own\n"
	for id := range int64(6) {
		line := append(bytes.Repeat([]byte{'a' + byte(id)}, 30<<10), '\n')
		if !w.queue.add(id+1, line) {
			t.Fatalf("call %d found no place", id+1)
		}
		want += string(line)
	}
	begun, err := w.writeAll(t.Context(), nil, w.queue.take(), len("own\n"))
	if !begun || err != nil {
		t.Fatalf("begun %v, %v", begun, err)
	}
	if !w.queue.withdraw(6) {
		t.Error("the last line is being written, although the pipe has no room for it")
	}
	want = want[:len(want)-30<<10-1]
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Errorf("the child reads something else: %v", err)
	}
	w.lock <- struct{}{} // free again
}

// sharedStream returns a stream whose calls wait in a queue that is never written, and the
// messages that it sends besides.
func sharedStream(t *testing.T) (s *stream, sent func() []string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	s = &stream{}
	s.init(&Server{def: Definition{MaxMessage: 1 << 20}, log: discard}, false, func(Event) {})
	s.lines = &lineQueue{opened: true}
	s.carry = func(_ context.Context, _ <-chan time.Time, b []byte) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, string(b))
		return true, nil
	}
	return s, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

// A call that waits in the queue and is given up is not sent, so it is not cancelled either. A
// call whose line was taken is.
func TestACallInTheQueueIsWithdrawn(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{false, true} {
		s, sent := sharedStream(t)
		ctx, cancel := context.WithCancel(t.Context())
		go whenQueued(t, s, taken, cancel)
		if _, err := s.Call(ctx, tool("echo"), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if s.lines.next.size() > 0 {
			t.Error("the line is still in the queue")
		}
		if taken {
			eventually(t, "the server is told", func() bool { return len(sent()) == 1 })
		} else if n := len(sent()); n > 0 {
			t.Errorf("%d messages about a call that was not sent", n)
		}
	}
}

// When a connection ends, the error of a call in the queue says that it was not sent.
func TestTheEndOfAConnectionFailsCallsInTheQueueAsUnsent(t *testing.T) {
	t.Parallel()
	for taken, want := range map[bool]error{false: ErrNotSent, true: ErrLost} {
		s, _ := sharedStream(t)
		go whenQueued(t, s, taken, func() { s.fail(errClosed) })
		if _, err := s.Call(t.Context(), tool("echo"), nil); !errors.Is(err, want) {
			t.Errorf("taken %v: got %v, want %v", taken, err, want)
		}
	}
}

// whenQueued waits for a line in the queue of s, takes it if asked, and calls then.
func whenQueued(t *testing.T, s *stream, take bool, then func()) {
	eventually(t, "a line is in the queue", func() bool {
		s.lines.mu.Lock()
		defer s.lines.mu.Unlock()
		return s.lines.next.size() > 0
	})
	if take {
		s.lines.take()
	}
	then()
}
