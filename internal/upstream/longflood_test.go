package upstream

import (
	"errors"
	"testing"
	"time"
)

// TestMessagesThatAreTooLongAreCountedLikeInvalidOnes: too many in a row within a minute end the
// connection, so that a server cannot fill the log with them. An answer to a call does not count:
// its callers ask for it. A good message begins a new row.
func TestMessagesThatAreTooLongAreCountedLikeInvalidOnes(t *testing.T) {
	t.Parallel()
	one := func(text string) *longLine { return newLongLine([]byte(text)) }
	notification := one(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x`)
	for name, l := range map[string]*longLine{
		"notification": notification, "no message": one("xxxx"), "answer to no call": one(`{"jsonrpc":"2.0","id":4711,"result":{"x":"x`),
	} {
		in := &intake{stream: &stream{srv: &Server{def: Definition{MaxMessage: 1000}, log: discard}}}
		for row := range 3 {
			for n := range maxBad {
				if err := in.tooLong(l); err != nil {
					t.Fatalf("%s: row %d, message %d: %v", name, row, n, err)
				}
			}
			if row == 0 {
				in.since = in.since.Add(-badTime - time.Second)
			} else if err := in.accept([]byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`), false); err != nil {
				t.Fatal(err)
			}
		}
		for range maxBad {
			_ = in.tooLong(l) // of the last row
		}
		if in.tooLong(l) == nil {
			t.Errorf("%s: it has no end", name)
		}
	}
}

// TestAnswersThatAreTooLongDoNotEndTheConnection: however many calls have one.
func TestAnswersThatAreTooLongDoNotEndTheConnection(t *testing.T) {
	t.Parallel()
	_, c := limited(t)
	for range maxBad + 5 {
		if _, err := c.Call(testContext(t), printed(`{"jsonrpc":"2.0","id":$ID,"result":{"text":"$LONG"}}`), nil); !errors.Is(err, ErrTooLarge) {
			t.Fatal(err)
		}
	}
	mustCall(t, c, tool("echo"), nil)
}
