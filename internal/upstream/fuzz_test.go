package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/doorward/doorward/internal/trust/wire"
)

// The line reader gives what splitting at newlines gives, however the bytes
// arrive, and refuses what is too long.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\n\nlast"), 10, false)
	f.Add(bytes.Repeat([]byte("x"), 3*smallBuffer), 100_000, true)
	f.Add(append(bytes.Repeat([]byte("y"), smallBuffer), "\nz\n"...), smallBuffer, false)
	f.Add([]byte("12345678901\n"), 10, false)
	f.Fuzz(func(t *testing.T, data []byte, max int, bytewise bool) {
		if max <= 0 || max > 1<<20 {
			return
		}
		var r io.Reader = bytes.NewReader(data)
		if bytewise {
			r = iotest.OneByteReader(r)
		}
		l := newLineReader(r, max)
		defer l.close()
		want := bytes.Split(data, []byte("\n"))
		if len(want[len(want)-1]) == 0 {
			want = want[:len(want)-1]
		}
		for _, w := range want {
			line, _, err := l.next()
			if len(w) > max {
				if errors.Is(err, ErrTooLarge) && len(w)/endless > max {
					return
				}
				var long *longLine
				if !errors.As(err, &long) || long.size != len(w) || !bytes.HasPrefix(w, long.head) || !bytes.HasSuffix(w, long.tail) {
					t.Fatalf("a line of %d bytes, limit %d: %v", len(w), max, err)
				}
				continue
			}
			if err != nil || !bytes.Equal(line, w) {
				t.Fatalf("got %q, %v, want %q", line, err, w)
			}
		}
		if line, _, err := l.next(); err != io.EOF {
			t.Fatalf("at the end: %q, %v", line, err)
		}
	})
}

// Large lines among small ones: the large ones are handed over, and nothing
// that was handed over changes.
func TestLinesHandedOver(t *testing.T) {
	t.Parallel()
	var in bytes.Buffer
	sizes := []int{10, 5 << 20, 20, 4<<20 - 1, 4 << 20, 3 << 20, 1, 1 << 20, 1<<20 + 1, 60_000, 0, 7}
	for i, n := range sizes {
		in.Write(bytes.Repeat([]byte{byte('a' + i)}, n))
		in.WriteByte('\n')
	}
	l := newLineReader(&in, 8<<20)
	kept := map[int][]byte{}
	for i, n := range sizes {
		line, owned, err := l.next()
		if err != nil || len(line) != n {
			t.Fatalf("line %d: %d bytes, %v", i, len(line), err)
		}
		if owned {
			kept[i] = line
		}
	}
	if len(kept) == 0 {
		t.Error("no line was handed over")
	}
	for i, line := range kept {
		if len(bytes.Trim(line, string(rune('a'+i)))) != 0 {
			t.Errorf("line %d changed", i)
		}
	}
	if _, _, err := l.next(); err != io.EOF {
		t.Error(err)
	}
	if len(l.buf) != smallBuffer {
		t.Errorf("%d bytes kept at rest", len(l.buf))
	}
}

// Any bytes of a server end each call once and without a panic. What a caller
// got does not change when the read buffer is used again.
func FuzzAccept(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m","data":[1.0]}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`,
		`{"jsonrpc":"2.0","id":5,"method":"ping"}`,
		`{"jsonrpc":"2.0","method":"x","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":2}}}`,
		`[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"result":{}}]`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":""}}`,
		"not JSON\n{\"level\":\"info\"}\n\n{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":1}",
	} {
		f.Add([]byte(s), false, false)
		f.Add([]byte(s), true, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, modern, batch bool) {
		s := &stream{}
		s.init(&Server{def: Definition{MaxMessage: 1 << 20}, log: discard}, modern, func(Event) {})
		s.batch.Store(batch)
		s.carry = func(context.Context, <-chan time.Time, []byte) (bool, error) { return true, nil }
		var open []*call
		for i, method := range []string{"tools/call", methodListen} {
			c := takeCall(&Request{Method: method, ProgressToken: []byte(fmt.Sprintf(`"t%d"`, i))}, func(Event) {}, 0, 0)
			if err := s.pending.add(c); err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
		lines := bytes.Split(data, []byte("\n"))
		for _, line := range lines {
			scratch := bytes.Clone(line)
			if err := s.intake.accept(scratch, false); err != nil {
				s.fail(err)
				break
			}
			clear(scratch) // the reader's buffer is used again
		}
		s.fail(errClosed)
		for _, c := range open {
			checkEnded(t, c)
		}
	})
}

func checkEnded(t *testing.T, c *call) {
	t.Helper()
	if !c.done.Load() {
		t.Fatal("a call did not end")
	}
	if c.err == nil && c.reply.Error == nil && wire.ValidateValue(c.reply.Result) != nil {
		t.Fatalf("the result changed to %q", c.reply.Result)
	}
	for _, ev := range c.events {
		if len(ev.Params) > 0 && wire.ValidateValue(ev.Params) != nil {
			t.Fatalf("an event changed to %q", ev.Params)
		}
	}
}

func TestFaultTextsTellTheKindAndNothingOfTheServer(t *testing.T) {
	t.Parallel()
	err := error(&fault{kind: ErrEra, reason: "initialize was refused", status: 400, reply: &wire.Error{Code: -32000, Message: "secret \x1b[31m"}})
	if got := err.Error(); got != "the server does not speak this era: initialize was refused (HTTP 400) (code -32000)" {
		t.Errorf("got %q", got)
	}
	var reply *wire.Error
	if !errors.As(err, &reply) || !errors.Is(err, ErrEra) || wrapped(err) != 1 {
		t.Error("the error cannot be taken apart")
	}
}

func TestUserAgent(t *testing.T) {
	t.Parallel()
	for info, want := range map[string]string{
		`{"name":"doorward","version":"1.2"}`:         "doorward/1.2",
		`{"name":"a b/\r\nX: y","version":"1\u00e9"}`: "abX:y/1",
		`{}`: "doorward", ``: "doorward", `{"name":7}`: "doorward",
	} {
		if got := userAgent([]byte(info)); got != want {
			t.Errorf("%s: %q", info, got)
		}
	}
}

func TestDefinitionsThatCannotWork(t *testing.T) {
	t.Parallel()
	for _, def := range []Definition{
		{Name: "a", Kind: "pigeon"},
		{Name: "b", Kind: KindStdio},
		{Name: "c", Kind: KindHTTP, URL: "ftp://example.com"},
		{Name: "d", Kind: KindSSE, URL: "http://user:pw@example.com"},
	} {
		_, err := New(def, testDeps(t))
		if err == nil || !strings.Contains(err.Error(), `"`+def.Name+`"`) || strings.Contains(err.Error(), "pw") {
			t.Errorf("%+v: %v", def, err)
		}
	}
	if _, err := New(Definition{Name: "e", Kind: KindStdio, Path: "/bin/true"}, Deps{}); err == nil {
		t.Error("a child without a runner")
	}
}
