package sse

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// readEvents reads a whole stream, keeping copies.
func readEvents(r io.Reader, limit int) (events []Event, err error) {
	er := NewReader(r, limit)
	for {
		ev, err := er.Next()
		if err != nil {
			return events, err
		}
		if ev.Data != nil {
			ev.Data = append([]byte{}, ev.Data...)
		}
		events = append(events, ev)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	data := func(s string) Event { return Event{Data: []byte(s), Retry: -1} }
	cases := []struct {
		name, stream string
		want         []Event
	}{
		{"nothing", "", nil},
		{"one line", "data: a\n\n", []Event{data("a")}},
		{"one space goes", "data:a\n\ndata:  a \n\n", []Event{data("a"), data(" a ")}},
		{"lines are joined", "data: a\ndata: b\ndata\ndata:\n\n", []Event{data("a\nb\n\n")}},
		{"empty data is data", "data\n\ndata:\n\ndata: \n\n", []Event{data(""), data(""), data("")}},
		{"CR", "data: a\rdata: b\r\rdata: c\r\r", []Event{data("a\nb"), data("c")}},
		{"CRLF", "data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", []Event{data("a\nb"), data("c")}},
		{"line ends mixed", "data: a\r\ndata: b\rdata: c\n\r\ndata: d\n\r", []Event{data("a\nb\nc"), data("d")}},
		{"LF CR is two ends", "data: a\n\rdata: b\n\n", []Event{data("a"), data("b")}},
		{"mark at the start", "\uFEFFdata: a\n\n", []Event{data("a")}},
		{"one mark only", "\uFEFF\uFEFFdata: a\n\ndata: b\n\n", []Event{data("b")}},
		{"mark later", "data: a\n\n\uFEFFdata: b\n\n", []Event{data("a")}},
		{"comments and strange fields", ": hi\nfoo: bar\ndata: a\n:\nDATA: b\n data: c\n\n", []Event{data("a")}},
		{"comments alone", ": keep-alive\n\n:\n\n", nil},
		{"id, name, retry", "id: 7\nevent: message\nretry: 1500\ndata: a\n\n",
			[]Event{{ID: "7", HasID: true, Name: "message", Data: []byte("a"), Retry: 1500}}},
		{"nothing is carried over", "id: 7\nevent: x\nretry: 5\ndata: a\n\ndata: b\n\n",
			[]Event{{ID: "7", HasID: true, Name: "x", Data: []byte("a"), Retry: 5}, data("b")}},
		{"priming event", "id: 7\ndata: \n\n", []Event{{ID: "7", HasID: true, Data: []byte{}, Retry: -1}}},
		{"id without data", "id: 7\n\n", []Event{{ID: "7", HasID: true, Retry: -1}}},
		{"empty id", "id\n\n", []Event{{HasID: true, Retry: -1}}},
		{"retry without data", "retry: 0\n\n", []Event{{Retry: 0}}},
		{"name without data", "event: x\n\ndata: a\n\n", []Event{data("a")}},
		{"id with NUL", "id: a\x00b\ndata: a\n\n", []Event{data("a")}},
		{"the last of a field holds", "id: 1\nid: 2\nevent: a\nevent: b\nretry: 1\nretry: 2\ndata:\n\n",
			[]Event{{ID: "2", HasID: true, Name: "b", Data: []byte{}, Retry: 2}}},
		{"retry must be digits", "retry: -1\ndata: a\n\nretry: 1s\nretry: \nretry: ٣\nretry: 99999999999999999999\ndata: b\n\n",
			[]Event{data("a"), data("b")}},
		{"colon in the value", "data: a: b:\n\n", []Event{data("a: b:")}},
		{"the end cuts the last event", "data: a\n\ndata: b\n", []Event{data("a")}},
		{"the end cuts the last line", "data: a\n\ndata: b", []Event{data("a")}},
	}
	readers := map[string]func(io.Reader) io.Reader{
		"whole":     func(r io.Reader) io.Reader { return r },
		"byte-wise": iotest.OneByteReader,
		"half":      iotest.HalfReader,
		"early EOF": iotest.DataErrReader,
	}
	for _, c := range cases {
		for name, wrap := range readers {
			t.Run(c.name+", "+name, func(t *testing.T) {
				t.Parallel()
				got, err := readEvents(wrap(strings.NewReader(c.stream)), 1000)
				if err != io.EOF {
					t.Errorf("ended with %v", err)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			})
		}
	}
}

// Next returns an event as soon as its blank line has arrived. Waiting for one
// more byte would delay it until the next event.
func TestEventsDoNotWait(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"data: a\n\n", "data: a\r\r", "data: a\r\n\r"} {
		r, w := io.Pipe()
		events := make(chan Event)
		go func() {
			ev, _ := NewReader(r, 100).Next()
			events <- ev
		}()
		if _, err := w.Write([]byte(stream)); err != nil {
			t.Fatal(err)
		}
		select {
		case ev := <-events:
			if string(ev.Data) != "a" {
				t.Errorf("%q: %q", stream, ev.Data)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("%q: waits for more", stream)
		}
		w.Close()
	}
}

func TestEventLimits(t *testing.T) {
	t.Parallel()
	const limit = 10_000
	full := strings.Repeat("x", limit)
	cases := []struct {
		name, stream string
		ok           bool
	}{
		{"data of the limit", "data: " + full + "\n\n", true},
		{"one more", "data: " + full + "x\n\n", false},
		{"lines of the limit", "data: " + full[:limit/2] + "\ndata: " + full[:limit/2-1] + "\n\n", true},
		{"lines of one more", "data: " + full[:limit/2] + "\ndata: " + full[:limit/2] + "\n\n", false},
		{"many empty lines", strings.Repeat("data\n", limit+2) + "\n", false},
		{"a comment far too long", ":" + full + full + "\ndata: a\n\n", false},
		{"an id far too long", "id: " + full + full + "\n\n", false},
		{"a line without end", "data: " + full + full, false},
		{"many comments", strings.Repeat(": keep-alive\n", limit) + "data: a\n\n", true},
		{"many comments within an event", "data: a\n" + strings.Repeat(": keep-alive\n", limit) + "data: b\n\n", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			er := NewReader(iotest.HalfReader(strings.NewReader(c.stream)), limit)
			_, err := er.Next()
			if c.ok != (err == nil) || !c.ok && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("got %v", err)
			}
			if cap(er.buf) > 4*limit+readChunk {
				t.Errorf("the buffer grew to %d bytes", cap(er.buf))
			}
			if _, again := er.Next(); !c.ok && !errors.Is(again, ErrTooLarge) {
				t.Errorf("the error did not stay: %v", again)
			}
		})
	}
}

func TestEventReaderErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	er := NewReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)), 100)
	if ev, err := er.Next(); err != nil || string(ev.Data) != "a" {
		t.Errorf("before the error: %+v, %v", ev, err)
	}
	for range 2 {
		if _, err := er.Next(); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := NewReader(stuckReader{}, 100).Next(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader without progress: %v", err)
	}
}

// stuckReader never reads anything and never ends.
type stuckReader struct{}

func (stuckReader) Read([]byte) (int, error) { return 0, nil }

// The reader does not keep the buffer of a large event after the next, small one.
func TestEventReaderLetsGo(t *testing.T) {
	t.Parallel()
	large := Append(nil, "", "", bytes.Repeat([]byte("x"), 1<<20))
	er := NewReader(io.MultiReader(bytes.NewReader(large), strings.NewReader("data: a\n\n")), 1<<21)
	if ev, err := er.Next(); err != nil || len(ev.Data) != 1<<20 {
		t.Fatalf("%d bytes, %v", len(ev.Data), err)
	}
	if _, err := er.Next(); err != nil {
		t.Fatal(err)
	}
	if cap(er.buf) > keepBuffer {
		t.Errorf("still holds %d bytes", cap(er.buf))
	}
}

func TestAppend(t *testing.T) {
	t.Parallel()
	cases := []struct{ id, name, data, want string }{
		{"", "", "a", "data: a\n\n"},
		{"7", "endpoint", "/x", "id: 7\nevent: endpoint\ndata: /x\n\n"},
		{"7", "", "", "id: 7\ndata: \n\n"},
		{"", "", "a\nb\r\nc\rd\n", "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n"},
		{"", "", " a", "data:  a\n\n"},
		{"1\ndata: x", "y\rdata: x", "a", "data: a\n\n"},
		{"1\x00", "", "a", "data: a\n\n"},
	}
	for _, c := range cases {
		if got := Append(nil, c.id, c.name, []byte(c.data)); string(got) != c.want {
			t.Errorf("%q %q %q:\ngot  %q\nwant %q", c.id, c.name, c.data, got, c.want)
		}
	}
}
