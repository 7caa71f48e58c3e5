package sse

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

func FuzzEvents(f *testing.F) {
	for _, stream := range []string{"data: a\n\n", "\uFEFFid: 1\r\ndata: a\r\rdata\rdata:b\n\n", "event: x\nretry: 12\n\n: c\n\n",
		"id: a\x00\ndata\n\n", "data: a\n\rdata: b\r\n\r\n", "data: long enough to be over the limit\n\n"} {
		f.Add([]byte(stream), "7", "message", []byte("a\nb"))
	}
	f.Add([]byte{}, "\r", "\n", []byte("\r\n\n\r"))
	f.Fuzz(func(t *testing.T, stream []byte, id, name string, data []byte) {
		const limit = 32
		for _, wrap := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.DataErrReader, iotest.HalfReader} {
			got, err := readEvents(wrap(bytes.NewReader(stream)), 1<<20)
			if want := eventsByTheBook(string(stream)); err != io.EOF || !reflect.DeepEqual(got, want) {
				t.Fatalf("%q:\ngot  %+v, %v\nwant %+v", stream, got, err, want)
			}
		}
		small, err := readEvents(bytes.NewReader(stream), limit)
		if err != io.EOF && !errors.Is(err, ErrTooLarge) {
			t.Fatalf("%q: %v", stream, err)
		}
		for _, ev := range small {
			if len(ev.Data) > limit || len(ev.ID) > limit+maxFieldName || len(ev.Name) > limit+maxFieldName {
				t.Fatalf("%q: over the limit: %+v", stream, ev)
			}
		}

		want := Event{Data: []byte(oneLineEnd(string(data))), Retry: -1}
		if id != "" && !strings.ContainsAny(id, "\r\n\x00") {
			want.ID, want.HasID = id, true
		}
		if !strings.ContainsAny(name, "\r\n\x00") {
			want.Name = name
		}
		text := Append(Append(nil, id, name, data), id, name, data)
		if got, err := readEvents(bytes.NewReader(text), 1<<20); err != io.EOF || !reflect.DeepEqual(got, []Event{want, want}) {
			t.Fatalf("%q:\ngot  %+v, %v\nwant %+v twice", text, got, err, want)
		}
	})
}

func oneLineEnd(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
}

// eventsByTheBook is the grammar of the HTML standard, section 9.2.6, with no
// regard to cost, and with our rule for events without data.
func eventsByTheBook(stream string) (events []Event) {
	lines := strings.Split(oneLineEnd(strings.TrimPrefix(stream, "\uFEFF")), "\n")
	ev, data := Event{Retry: -1}, ""
	for _, line := range lines[:len(lines)-1] { // the last has no end
		if line == "" {
			if data != "" {
				ev.Data = []byte(strings.TrimSuffix(data, "\n"))
			}
			if ev.Data != nil || ev.HasID || ev.Retry >= 0 {
				events = append(events, ev)
			}
			ev, data = Event{Retry: -1}, ""
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "data":
			data += value + "\n"
		case "event":
			ev.Name = value
		case "id":
			if !strings.Contains(value, "\x00") {
				ev.ID, ev.HasID = value, true
			}
		case "retry":
			if ms, ok := milliseconds([]byte(value)); ok {
				ev.Retry = ms
			}
		}
	}
	return events
}
