package upstream

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

// limited is a server whose messages may have 64 KiB.
func limited(t *testing.T) (*Server, Conn) {
	t.Helper()
	s := fake(t, "plain", func(d *Definition, _ *Deps) { d.MaxMessage = 64 << 10 })
	return s, dialLegacy(t, s, nil)
}

// printed is a call whose server prints a line of its own, in which $ID is the call's id and $LONG more than a message
// may have.
func printed(line string) *Request {
	line = strings.ReplaceAll(line, "$LONG", strings.Repeat("x", 80<<10))
	return tool("raw", `"line":`+strconv.Quote(line))
}

// A message that is too large fails only the call that it answers, with both sizes in the error, wherever the id
// stands in the message. The process and other calls go on.
func TestATooLargeAnswerFailsItsCallAlone(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"the id before the result": `{"jsonrpc":"2.0","id":$ID,"result":{"text":"$LONG"}}`,
		"the id behind the result": `{"jsonrpc":"2.0","result":{"text":"$LONG"},"id":$ID}`,
		"the id behind an error":   `{"error":{"code":1,"message":"$LONG"},"id":$ID,"jsonrpc":"2.0"}`,
		"everything behind":        `{"result":{"text":"$LONG"}, "jsonrpc": "2.0", "id": $ID}`,
		"an id of the text's own":  `{"jsonrpc":"2.0","id":$ID,"result":{"text":"$LONG,\"id\":1}"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, c := limited(t)
			other := make(chan error, 1)
			go func() {
				_, err := c.Call(testContext(t), tool("late"), nil)
				other <- err
			}()
			_, err := c.Call(testContext(t), printed(line), nil)
			if !errors.Is(err, ErrTooLarge) || wrapped(err) != 1 || !strings.Contains(err.Error(), "bytes, limits.answer_bytes is 65536") {
				t.Errorf("the call: %v", err)
			}
			mustCall(t, c, tool("echo"), nil)
			select {
			case err := <-other:
				t.Errorf("another call ended: %v", err)
			case <-c.Done():
				t.Error("the connection ended")
			default:
			}
		})
	}
}

// A message that is too large and answers no call is dropped and counted, and ends no call. So is an answer whose ends
// do not name its call, while several calls are under way.
func TestATooLargeMessageThatAnswersNoCallIsDropped(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"a notification": `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"$LONG"}}`,
		"a request":      `{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"x":"$LONG"}}`,
		"no message":     `$LONG`,
		"no id":          `{"jsonrpc":"2.0","result":{"text":"$LONG"}}`,
		"another's id":   `{"jsonrpc":"2.0","id":4711,"result":{"text":"$LONG"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c := limited(t)
			for range 2 {
				go c.Call(testContext(t), printed(line), nil)
			}
			eventually(t, "the count", func() bool { return s.Counts().Dropped == 2 })
			mustCall(t, c, tool("echo"), nil)
		})
	}
}

// An answer that is too large and has no id is taken for that of the only call.
func TestATooLargeAnswerWithoutAnIDFailsTheOnlyCall(t *testing.T) {
	t.Parallel()
	_, c := limited(t)
	if _, err := c.Call(testContext(t), printed(`{"jsonrpc":"2.0","result":{"text":"$LONG"}}`), nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	mustCall(t, c, tool("echo"), nil)
}

// The reader goes on behind a long line with the bytes that follow it.
func TestLinesBehindALongOne(t *testing.T) {
	t.Parallel()
	const most = 100
	for _, n := range []int{most + 1, smallBuffer, midBuffer - 1, midBuffer, midBuffer + 1} {
		if n/endless > most {
			continue
		}
		l := newLineReader(strings.NewReader("before\n"+strings.Repeat("x", n)+"\nbehind\nlast"), most)
		want := []string{"before", "", "behind", "last"}
		for i, w := range want {
			line, _, err := l.next()
			var long *longLine
			switch {
			case i == 1 && (!errors.As(err, &long) || long.size != n):
				t.Errorf("%d bytes: %v", n, err)
			case i != 1 && (err != nil || string(line) != w):
				t.Errorf("%d bytes: line %d is %q, %v", n, i, line, err)
			}
		}
		l.close()
	}
}
