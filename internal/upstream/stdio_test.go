package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/base/rawjson"
	"github.com/doorward/doorward/internal/trust/wire"
	"github.com/doorward/doorward/test/overload"
)

func TestStdioCallReturnsTheBytesThatCame(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "plain"), nil)
	params := `{"name":"echo", "arguments":{"n":9007199254740993,"f":1.0,"u":"\u00e9","z":{"b":1,"a":2}}}`
	reply := mustCall(t, c, &Request{Method: "tools/call", Params: []byte(params)}, nil)
	if string(reply.Result) != params {
		t.Errorf("got  %s\nwant %s", reply.Result, params)
	}
}

func TestStdioParamsWithLineBreaksStayOneLine(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "plain"), nil)
	params := "{\r\n \"name\":\"echo\",\n \"arguments\":{\"s\":\"a\\nb\"}\n}"
	reply := mustCall(t, c, &Request{Method: "tools/call", Params: []byte(params)}, nil)
	want := strings.NewReplacer("\n", " ", "\r", " ").Replace(params)
	if string(reply.Result) != want {
		t.Errorf("got  %s\nwant %s", reply.Result, want)
	}
	if string(params[1]) != "\r" {
		t.Error("the caller's params were changed")
	}
}

func TestStdioErrorReplyIsAReply(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "plain"), nil)
	reply := mustCall(t, c, tool("no-such-tool"), nil)
	if reply.Error == nil || reply.Error.Code != codeInvalidParams || string(reply.Error.Raw) != `{"code":-32602,"message":"unknown tool"}` {
		t.Errorf("got %+v", reply)
	}
}

func TestStdioCallsInParallelGetTheirOwnAnswers(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "plain"), nil)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 50 {
				mark := fmt.Sprintf(`"mark":"%d-%d"`, i, j)
				reply, err := c.Call(testContext(t), tool("echo", mark), nil)
				if err != nil || !bytes.Contains(reply.Result, []byte(mark)) {
					t.Errorf("%s: %s %v", mark, reply.Result, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestStdioReplyDoesNotAliasTheReadBuffer(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "plain"), nil)
	first := mustCall(t, c, tool("echo", `"mark":"first"`), nil)
	kept := string(first.Result)
	for i := range 200 {
		mustCall(t, c, tool("echo", fmt.Sprintf(`"mark":"%d"`, i)), nil)
	}
	if string(first.Result) != kept {
		t.Errorf("the first result became %s", first.Result)
	}
}

func TestStdioLargeResults(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "plain", func(d *Definition, _ *Deps) { d.MaxMessage = 32 << 20 }), nil)
	for _, size := range []int{100, smallBuffer - 60, smallBuffer, midBuffer, midBuffer + 1, bigBuffer, 3 << 20, 20 << 20, 10} {
		got := text(t, mustCall(t, c, tool("huge", `"size":`+strconv.Itoa(size)), nil))
		if len(got) != size || strings.Trim(got, "a") != "" {
			t.Errorf("size %d: got %d bytes", size, len(got))
		}
	}
}

// A line may have as many bytes as the limit and not one more: lines one byte
// under, at and over it are tried.
func TestStdioLimitIsExact(t *testing.T) {
	t.Parallel()
	const limit = 100_000
	line := func(n int) int { return n - len(`{"jsonrpc":"2.0","id":2,"result":{"content":[],"text":""}}`) }
	for _, n := range []int{limit - 1, limit, limit + 1} {
		c := dialLegacy(t, fake(t, "plain", func(d *Definition, _ *Deps) { d.MaxMessage = limit }), nil)
		_, err := c.Call(testContext(t), tool("huge", `"size":`+strconv.Itoa(line(n))), nil)
		if (err == nil) != (n <= limit) || err != nil && !errors.Is(err, ErrTooLarge) {
			t.Errorf("a line of %d bytes, limit %d: %v", n, limit, err)
		}
	}
}

func TestStdioEndlessLineCostsTheConnection(t *testing.T) {
	t.Parallel()
	_, _, err := fake(t, "endless").DialLegacy(testContext(t), []byte(initParams), nil)
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

func TestStdioCrashFailsEveryCallAtOnce(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "plain"), nil)
	hung := make(chan error, 3)
	for range cap(hung) {
		go func() {
			_, err := c.Call(testContext(t), tool("hang"), nil)
			hung <- err
		}()
	}
	eventually(t, "three calls in flight", func() bool {
		p := &c.(*stdioConn).pending
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.calls) == cap(hung)
	})
	start := time.Now()
	if _, err := c.Call(testContext(t), tool("crash"), nil); !errors.Is(err, ErrLost) {
		t.Errorf("the call that crashed: %v", err)
	}
	for range cap(hung) {
		if err := <-hung; !errors.Is(err, ErrLost) {
			t.Errorf("a call beside it: %v", err)
		}
	}
	if d := time.Since(start); d > 5*time.Second+overload.Late() {
		t.Errorf("took %s", d)
	}
	waitDone(t, c)
	if _, err := c.Call(testContext(t), tool("echo"), nil); !errors.Is(err, ErrNotSent) {
		t.Errorf("afterwards: %v", err)
	}
	if err := c.Notify(testContext(t), "notifications/x", nil); !errors.Is(err, ErrNotSent) {
		t.Errorf("a notification afterwards: %v", err)
	}
	if err := c.Err(); !errors.Is(err, ErrLost) {
		t.Errorf("Err: %v", err)
	}
}

func TestStdioAnswerBeforeDeathIsDelivered(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "plain"), nil)
	if got := text(t, mustCall(t, c, tool("close-stdin"), nil)); got != "closing" {
		t.Errorf("got %q", got)
	}
	// A child that no longer reads is over, though it lives.
	eventually(t, "a call is not sent", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := c.Call(ctx, tool("echo"), nil)
		return errors.Is(err, ErrNotSent)
	})
	waitDone(t, c)
}

func TestStdioCancelReachesTheServerAndTheLateAnswerIsDropped(t *testing.T) {
	t.Parallel()
	s := fake(t, "plain")
	c := dialLegacy(t, s, nil)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		eventually(t, "the call is in flight", func() bool { return c.(*stdioConn).pending.sole() != 0 })
		cancel()
	}()
	if _, err := c.Call(ctx, tool("late"), nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	eventually(t, "the late answer", func() bool { return s.Counts().Late == 1 })
	if got := text(t, mustCall(t, c, tool("was-cancelled", `"id":2`), nil)); got != "true" {
		t.Errorf("cancelled: %s", got)
	}
}

func TestStdioTimeoutCancelsToo(t *testing.T) {
	t.Parallel()
	s := fake(t, "plain", func(d *Definition, _ *Deps) { d.Timeout = 2 * time.Second })
	c := dialLegacy(t, s, nil)
	if _, err := c.Call(testContext(t), tool("late"), nil); !errors.Is(err, ErrTimeout) {
		t.Fatalf("got %v", err)
	}
	eventually(t, "the late answer", func() bool { return s.Counts().Late == 1 })
}

func TestStdioCancelledBeforeItIsSent(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "plain"), nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Call(ctx, tool("echo"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Calls to a child that has stopped reading end with their contexts, and Close
// does not wait, although a large request fills the pipe.
func TestStdioChildThatDoesNotRead(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "plain"), nil)
	mustCall(t, c, tool("stop-reading"), nil)
	big := tool("echo", `"fill":"`+strings.Repeat("x", 1<<20)+`"`)
	try := func(r *Request) time.Duration {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := c.Call(ctx, r, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		return time.Since(start)
	}
	for i, r := range []*Request{big, tool("echo"), big, tool("echo")} {
		if d := try(r); d > 2*time.Second+overload.Late() {
			t.Errorf("call %d came back after %s", i, d)
		}
	}
	start := time.Now()
	c.Close()
	if d := time.Since(start); d > time.Second+overload.Late() {
		t.Errorf("Close took %s", d)
	}
}

// Half a line that was written before its caller gave up is completed, so that
// the next one is whole.
func TestStdioHalfALineIsCompleted(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	out := lineWriter{f: w, lock: make(chan struct{}, 1), over: make(chan struct{})}
	big := append(bytes.Repeat([]byte("x"), 1<<20), '\n')
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _, _ = r.Read(make([]byte, 1)); cancel() }() // half a line is written
	if begun, err := out.write(ctx, nil, big, false); !begun || !errors.Is(err, context.Canceled) {
		t.Fatalf("begun %v, %v", begun, err)
	}
	clear(big) // the caller's again
	second := make(chan error, 1)
	go func() {
		_, err := out.write(context.Background(), nil, []byte("second\n"), false)
		second <- err
	}()
	lines := newLineReader(r, 4<<20)
	first, _, err := lines.next()
	if err != nil || len(first) != 1<<20-1 || len(bytes.Trim(first, "x")) != 0 {
		t.Errorf("first line: %d bytes, %v", len(first), err)
	}
	if line, _, err := lines.next(); err != nil || string(line) != "second" {
		t.Errorf("second line: %q, %v", line, err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
}

func TestStdioGarbageLinesAreSkippedAndCounted(t *testing.T) {
	t.Parallel()
	s := fake(t, "chatter")
	c := dialLegacy(t, s, nil)
	mustCall(t, c, tool("echo"), nil)
	if n := s.Counts().Garbage; n != 50 {
		t.Errorf("%d garbage lines counted", n)
	}
}

func TestStdioTooMuchGarbageInARowCostsTheConnection(t *testing.T) {
	t.Parallel()
	_, _, err := fake(t, "flood", func(d *Definition, _ *Deps) { d.MaxMessage = floodLimit }).DialLegacy(testContext(t), []byte(initParams), nil)
	if !errors.Is(err, ErrProtocol) {
		t.Errorf("got %v", err)
	}
}

// A broken message fails the one call in flight at once if it can be the answer
// to it. Otherwise the call gets the good answer that follows. The connection
// lives on.
func TestStdioBrokenAnswers(t *testing.T) {
	t.Parallel()
	good := `{"jsonrpc":"2.0","id":$ID,"result":{"text":"good"}}`
	for _, tc := range []struct {
		name, line string
		want       error // nil: the good answer that follows is taken
	}{
		{"duplicate keys, id readable", `{"jsonrpc":"2.0","id":$ID,"result":{"a":1,"a":2}}`, ErrProtocol},
		{"duplicate id", `{"jsonrpc":"2.0","id":$ID,"id":99,"result":{}}`, ErrProtocol},
		{"invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{\"a\":\"\\ud800\"}}", ErrProtocol},
		{"both result and error", `{"jsonrpc":"2.0","id":$ID,"result":{},"error":{"code":1,"message":""}}`, ErrProtocol},
		{"cut off", `{"jsonrpc":"2.0","id":$ID,"result":{"a":`, ErrProtocol},
		{"fractional id", `{"jsonrpc":"2.0","id":$ID.5,"result":{}}`, ErrProtocol},
		{"no version", `{"id":$ID,"result":{}}`, nil},
		{"another call's broken answer", `{"jsonrpc":"2.0","id":77777,"result":{"a":1,"a":2}}`, nil},
		{"unknown id", `{"jsonrpc":"2.0","id":77777,"result":{}}`, nil},
		{"id of an ended call", `{"jsonrpc":"2.0","id":1,"result":{}}`, nil},
		{"another string id", `{"jsonrpc":"2.0","id":"$ID.","result":{}}`, nil},
		{"a log line in JSON", `{"level":"info","msg":"result","id":$ID}`, nil},
		{"a broken notification", `{"jsonrpc":"2.0","method":"notifications/message","params":{"a":1,"a":2}}`, nil},
		{"a batch", `[{"jsonrpc":"2.0","id":$ID,"result":{}}]`, nil},
		{"blank", `   `, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := dialLegacy(t, fake(t, "plain"), nil)
			reply, err := c.Call(testContext(t), tool("raw", `"line":`+quote(tc.line+"\n"+good)), nil)
			if !errors.Is(err, tc.want) || tc.want == nil && (err != nil || text(t, reply) != "good") {
				t.Fatalf("got %s, %v", reply.Result, err)
			}
			// The connection lives on.
			mustCall(t, c, tool("echo"), nil)
		})
	}
}

func quote(s string) string { return string(rawjson.AppendQuote(nil, s)) }

// Some servers answer with the id as text, which the public SDKs accept.
func TestStdioAnIDAsTextIsTheCalls(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "plain"), nil)
	line := `{"jsonrpc":"2.0","id":"$ID","result":{"text":"one"}}`
	if got := text(t, mustCall(t, c, tool("raw", `"line":`+quote(line)), nil)); got != "one" {
		t.Errorf("got %q", got)
	}
}

func TestStdioSecondAnswerIsDropped(t *testing.T) {
	t.Parallel()
	s := fake(t, "plain")
	c := dialLegacy(t, s, nil)
	line := `{"jsonrpc":"2.0","id":$ID,"result":{"text":"one"}}` + "\n" + `{"jsonrpc":"2.0","id":$ID,"result":{"text":"two"}}`
	if got := text(t, mustCall(t, c, tool("raw", `"line":`+quote(line)), nil)); got != "one" {
		t.Errorf("got %q", got)
	}
	mustCall(t, c, tool("echo"), nil)
	if n := s.Counts().Late; n != 1 {
		t.Errorf("%d late answers counted", n)
	}
}

func TestStdioErrorWithoutIDBelongsToTheOnlyCall(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "plain"), nil)
	line := `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"cannot read"}}`
	reply := mustCall(t, c, tool("raw", `"line":`+quote(line)), nil)
	if reply.Error == nil || reply.Error.Code != -32700 {
		t.Errorf("got %+v", reply)
	}
}

func TestStdioProgressGoesToItsCallUnderTheClientsToken(t *testing.T) {
	t.Parallel()
	s := fake(t, "plain")
	c := dialLegacy(t, s, nil)
	var events recorder
	r := tool("progress")
	r.ProgressToken = []byte(`"client's \u00e9"`)
	sent := text(t, mustCall(t, c, r, events.on))
	if sent == string(r.ProgressToken) || sent == "" {
		t.Errorf("the server saw the token %s", sent)
	}
	for i, ev := range events.all() {
		want := fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, r.ProgressToken, i+1)
		if string(ev.Params) != want {
			t.Errorf("event %d: %s, want %s", i, ev.Params, want)
		}
	}
	if n := events.count(methodProgress); n != 3 {
		t.Errorf("%d events", n)
	}
	if n := s.Counts().Stray; n != 1 {
		t.Errorf("%d stray messages counted", n)
	}
}

func TestStdioCallWithoutATokenSendsNone(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "plain"), nil)
	var events recorder
	reply := mustCall(t, c, tool("echo"), events.on)
	if bytes.Contains(reply.Result, []byte("progressToken")) {
		t.Errorf("the server saw %s", reply.Result)
	}
}

func TestStdioServerRequestGoesToTheOnlyCall(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "plain"), func(ev Event) { t.Errorf("on the connection: %+v", ev) })
	var asked Event
	reply := mustCall(t, c, tool("elicit"), func(ev Event) {
		asked = ev
		if err := c.Answer(context.Background(), ev.ID, Reply{Result: []byte(`{"action":"accept","n":1.0}`)}); err != nil {
			t.Error(err)
		}
	})
	if asked.Method != "elicitation/create" || string(asked.ID) != `"e-1"` || string(asked.Params) != `{"message":"who?"}` {
		t.Errorf("asked %+v", asked)
	}
	if got := text(t, reply); got != `{"jsonrpc":"2.0","id":"e-1","result":{"action":"accept","n":1.0}}` {
		t.Errorf("the server saw %s", got)
	}
}

func TestStdioServerRequestWithSeveralCallsGoesToTheConnection(t *testing.T) {
	t.Parallel()
	var c Conn
	asked := make(chan Event, 1)
	c = dialLegacy(t, fake(t, "plain"), func(ev Event) { asked <- ev })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Call(ctx, tool("hang"), nil)
	}()
	defer func() { cancel(); <-done }()
	eventually(t, "the other call is in flight", func() bool { return c.(*stdioConn).pending.sole() != 0 })
	go func() {
		ev := <-asked
		c.Answer(context.Background(), ev.ID, Reply{Error: &wire.Error{Code: -1, Message: "no"}})
	}()
	reply := mustCall(t, c, tool("elicit"), func(ev Event) { t.Errorf("on the call: %+v", ev) })
	if got := text(t, reply); got != `{"jsonrpc":"2.0","id":"e-1","error":{"code":-1,"message":"no"}}` {
		t.Errorf("the server saw %s", got)
	}
}

func TestStdioServerRequestWithoutAReceiverIsRefused(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "plain"), nil)
	got := text(t, mustCall(t, c, tool("elicit"), nil))
	if !strings.Contains(got, `"error":{"code":-32601`) {
		t.Errorf("the server saw %s", got)
	}
}

func TestStdioPingIsAnsweredHere(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "ping-first"), func(ev Event) { t.Errorf("got %+v", ev) })
	eventually(t, "the answer to ping", func() bool {
		return text(t, mustCall(t, c, tool("answers"), nil)) == `{"jsonrpc":"2.0","id":"p1","result":{}}`
	})
}

func TestStdioListChangedGoesToTheConnection(t *testing.T) {
	t.Parallel()
	var events recorder
	c := dialLegacy(t, fake(t, "plain"), events.on)
	line := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}` + "\n" +
		`{"jsonrpc":"2.0","id":$ID,"result":{}}`
	var mine recorder
	mustCall(t, c, tool("raw", `"line":`+quote(line)), mine.on)
	eventually(t, "list_changed", func() bool { return events.count("notifications/tools/list_changed") == 1 })
	if len(mine.all()) != 1 || mine.count("notifications/message") != 1 {
		t.Errorf("the call got %+v", mine.all())
	}
}

func TestStdioEventsDuringTheHandshakeAreNotLost(t *testing.T) {
	t.Parallel()
	var events recorder
	dialLegacy(t, fake(t, "early"), events.on)
	eventually(t, "the early message", func() bool { return events.count("notifications/message") == 1 })
}

// A receiver of the connection that blocks does not delay a call, and is not
// called while it runs. Events beyond a bound are dropped and counted.
func TestStdioSlowReceiverDelaysNoCall(t *testing.T) {
	t.Parallel()
	block := make(chan struct{})
	var inside atomic.Int32
	s := fake(t, "plain")
	c := dialLegacy(t, s, func(Event) {
		if n := inside.Add(1); n > 1 {
			t.Error("called while it runs")
		}
		<-block
		inside.Add(-1)
	})
	change := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n"
	line := strings.Repeat(change, maxWaiting+50) + `{"jsonrpc":"2.0","id":$ID,"result":{}}`
	mustCall(t, c, tool("raw", `"line":`+quote(line)), nil)
	if n := s.Counts().Dropped; n < 40 {
		t.Errorf("%d events counted as dropped", n)
	}
	close(block)
}

func TestStdioBatchInItsRevisionOnly(t *testing.T) {
	t.Parallel()
	c := dialLegacy(t, fake(t, "batch"), nil)
	line := `[{"jsonrpc":"2.0","method":"notifications/message","params":{}},{"jsonrpc":"2.0","id":$ID,"result":{"text":"in a batch"}}]`
	var events recorder
	if got := text(t, mustCall(t, c, tool("raw", `"line":`+quote(line)), events.on)); got != "in a batch" || len(events.all()) != 1 {
		t.Errorf("got %q, %+v", got, events.all())
	}
}

func TestStdioLegacyHandshakeFailures(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		mode string
		want error
		code int64
	}{
		{"refuse", ErrEra, -32022},
		{"future", ErrEra, 0},
		{"crash-on-init", ErrLost, 0},
		{"exit", ErrLost, 0},
		{"hang", ErrTimeout, 0},
		{"deaf", ErrTimeout, 0},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			t.Parallel()
			s := fake(t, tc.mode, func(d *Definition, _ *Deps) { d.Start = time.Second })
			_, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil)
			if !errors.Is(err, tc.want) && !(tc.mode == "exit" && errors.Is(err, ErrNotSent)) {
				t.Fatalf("got %v", err)
			}
			var reply *wire.Error
			if errors.As(err, &reply) != (tc.code != 0) || reply != nil && reply.Code != tc.code {
				t.Errorf("reply %v in %v", reply, err)
			}
		})
	}
}

func TestStdioCallerGivesUpTheHandshake(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, _, err := fake(t, "hang").DialLegacy(ctx, []byte(initParams), nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestStdioModernProbe(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		mode string
		want error
	}{
		{"modern", nil},
		{"plain", ErrEra},
		{"legacy-list", ErrEra},
		{"unsupported", ErrProtocol},
		{"missing-capability", ErrProtocol},
		{"exit-on-discover", ErrEra},
		{"silent-on-discover", ErrTimeout},
		{"deaf", ErrTimeout},
		{"exit", ErrEra},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			t.Parallel()
			s := fake(t, tc.mode, func(def *Definition, _ *Deps) { def.Start = 2 * time.Second })
			c, result, err := s.DialModern(testContext(t), []byte(modernMeta), nil)
			if c != nil {
				defer c.Close()
			}
			if !errors.Is(err, tc.want) || tc.want == nil && err != nil {
				t.Fatalf("got %v", err)
			}
			if (rawjson.Get(result, "supportedVersions") != nil) != (err == nil) {
				t.Errorf("result %s", result)
			}
			// A failed probe is not the server's crash: the fallback starts at once.
			fallback, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil)
			if errors.Is(err, ErrNotSent) && strings.Contains(err.Error(), "next start") {
				t.Errorf("the fallback is held back: %v", err)
			}
			if fallback != nil {
				fallback.Close()
			}
		})
	}
}

func TestStdioModernSubscriptions(t *testing.T) {
	t.Parallel()
	var stray recorder
	c := dialModern(t, fake(t, "modern"), stray.on)
	ctx, cancel := context.WithCancel(context.Background())
	var first recorder
	ended := make(chan error, 1)
	go func() {
		_, err := c.Call(ctx, &Request{Method: methodListen, Params: []byte(`{"notifications":{"toolsListChanged":true}}`)}, first.on)
		ended <- err
	}()
	eventually(t, "the first subscription's change", func() bool { return first.count("notifications/tools/list_changed") == 1 })

	var second recorder
	reply := mustCall(t, c, &Request{Method: methodListen, Params: []byte(`{"finish-me":1}`)}, second.on)
	if got := text(t, reply); got != "complete" || len(second.all()) != 2 || second.all()[0].Method != "notifications/subscriptions/acknowledged" {
		t.Errorf("got %q, %+v", got, second.all())
	}

	// A plain call beside an open subscription is the only call.
	var mine recorder
	line := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}` + "\n" + `{"jsonrpc":"2.0","id":$ID,"result":{}}`
	mustCall(t, c, tool("raw", `"line":`+quote(line)), mine.on)
	if len(mine.all()) != 1 {
		t.Errorf("the call got %+v", mine.all())
	}

	var third recorder
	if _, err := c.Call(testContext(t), &Request{Method: methodListen, Params: []byte(`{"end-me":1}`)}, third.on); !errors.Is(err, ErrLost) {
		t.Errorf("an ended subscription: %v", err)
	}
	if third.count(methodCancelled) != 1 {
		t.Errorf("the third got %+v", third.all())
	}

	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled subscription: %v", err)
	}
	if len(first.all()) != 2 || len(stray.all()) != 0 {
		t.Errorf("first %+v, stray %+v", first.all(), stray.all())
	}
	id, _ := wire.ID(rawjson.GetPath(first.all()[0].Params, "_meta", wire.MetaSubscription)).Int()
	eventually(t, "the cancellation", func() bool {
		return text(t, mustCall(t, c, tool("was-cancelled", `"id":`+strconv.FormatInt(id, 10)), nil)) == "true"
	})
}

func TestStdioModernServerMayNotAsk(t *testing.T) {
	t.Parallel()
	s := fake(t, "modern")
	c := dialModern(t, s, func(ev Event) { t.Errorf("got %+v", ev) })
	line := `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}` + "\n" + `{"jsonrpc":"2.0","id":$ID,"result":{}}`
	mustCall(t, c, tool("raw", `"line":`+quote(line)), func(ev Event) { t.Errorf("got %+v", ev) })
	if n := s.Counts().Violations; n != 1 {
		t.Errorf("%d violations counted", n)
	}
	if err := c.Answer(context.Background(), wire.IntID(1), Reply{Result: []byte(`{}`)}); !errors.Is(err, ErrProtocol) {
		t.Errorf("Answer: %v", err)
	}
}

func TestStdioSubscriptionIsExemptFromTheTimeout(t *testing.T) {
	t.Parallel()
	c := dialModern(t, fake(t, "modern", func(d *Definition, _ *Deps) { d.Timeout = time.Second }), nil)
	ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
	defer cancel()
	_, err := c.Call(ctx, &Request{Method: methodListen}, nil)
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrTimeout) {
		t.Errorf("got %v", err)
	}
}

func TestStdioCrashLoopBacksOff(t *testing.T) {
	t.Parallel()
	s := fake(t, "plain")
	crash := func() {
		c := dialLegacy(t, s, nil)
		c.Call(testContext(t), tool("crash"), nil)
		waitDone(t, c)
	}
	crash()
	_, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil)
	if !errors.Is(err, ErrOpen) || RetryAfter(err) <= 0 || !strings.Contains(err.Error(), "next start in") {
		t.Fatalf("a start right after a crash: %v", err)
	}
	if _, _, err := s.DialModern(testContext(t), []byte(modernMeta), nil); !errors.Is(err, ErrOpen) {
		t.Errorf("a modern start right after a crash: %v", err)
	}
	eventually(t, "the pause is over", func() bool {
		c, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

func TestStdioOrderlyEndIsNoCrash(t *testing.T) {
	t.Parallel()
	s := fake(t, "plain")
	for range 3 {
		c := dialLegacy(t, s, nil)
		c.Close()
		waitDone(t, c)
	}
}

// A call that Close overtook before it was written fails as not sent, and one
// that was written as lost. The child ends.
func TestStdioCloseFailsCallsAndEndsTheChild(t *testing.T) {
	t.Parallel()
	s := fake(t, "plain")
	for range 20 {
		switch err := closedUnderACall(t, s); {
		case errors.Is(err, ErrLost):
			return
		case !errors.Is(err, ErrNotSent):
			t.Fatalf("the call in flight: %v", err)
		}
	}
	t.Error("no call was ever in flight")
}

func closedUnderACall(t *testing.T, s *Server) error {
	t.Helper()
	c, result, err := s.DialLegacy(testContext(t), []byte(initParams), nil)
	if err != nil {
		t.Fatal(err)
	}
	pid := string(rawjson.Get(result, "pid"))
	failed := make(chan error, 1)
	go func() {
		_, err := c.Call(testContext(t), tool("hang"), nil)
		failed <- err
	}()
	eventually(t, "the call is in flight", func() bool { return c.(*stdioConn).pending.sole() != 0 })
	c.Close()
	c.Close()
	err = <-failed
	if _, err := c.Call(testContext(t), tool("echo"), nil); !errors.Is(err, ErrNotSent) {
		t.Errorf("a call afterwards: %v", err)
	}
	eventually(t, "the child is gone", func() bool {
		_, err := os.Stat("/proc/" + pid)
		return errors.Is(err, os.ErrNotExist)
	})
	return err
}

func TestStdioProgramThatDoesNotExist(t *testing.T) {
	t.Parallel()
	s := fake(t, "plain", func(d *Definition, _ *Deps) { d.Path = "/no/such/program" })
	if _, _, err := s.DialLegacy(testContext(t), []byte(initParams), nil); err == nil {
		t.Error("no error")
	}
}
