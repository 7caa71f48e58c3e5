package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/trust/wire"
)

// ledgerServer is a server that notes in a file, in order, what reaches it. It pauses, asks,
// stops reading and ends at any time.
func ledgerServer(path string) int {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 1
	}
	in := bufio.NewReader(os.Stdin)
	doom := 0 // the process ends after so many steps; 0: it does not
	for n := 0; ; n++ {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Key       int64           `json:"key"`
				RequestID json.RawMessage `json:"requestId"`
			} `json:"params"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			fmt.Fprintf(f, "%d broken %.40q\n", os.Getpid(), line)
			return 9
		}
		note := func(what string, id any) { fmt.Fprintf(f, "%d %s %v\n", os.Getpid(), what, id) }
		switch m.Method {
		case "":
			note("answer", string(m.ID))
		case methodInitialize:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"ledger","version":"1"}}}`+"\n", m.ID)
		case methodCancelled:
			note("cancel", string(m.Params.RequestID))
		case "tools/call":
			note("run", fmt.Sprint(string(m.ID), " ", m.Params.Key))
			misbehave(&doom) // before the answer
			if m.Params.Key%50 == 0 {
				note("ask", n)
				fmt.Printf(`{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{"message":"?"}}`+"\n", n)
			}
			if m.Params.Key%7 > 0 {
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{}}`+"\n", m.ID)
			}
		}
		misbehave(&doom)
	}
}

// misbehave pauses or ends this process, seldom. After a pause the pipe is full and callers wait.
func misbehave(doom *int) {
	if *doom--; *doom == 0 {
		os.Exit(0)
	}
	switch rand.IntN(1500) {
	case 0:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case 1:
		os.Stdin.Close()
		time.Sleep(time.Hour)
	case 2, 3, 4, 5:
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
	case 6, 7, 8:
		time.Sleep(200 * time.Millisecond)
		*doom = 1 + rand.IntN(30)
	}
}

// ledgerClient makes calls as the relay does: it repeats a call that was certainly not sent,
// with a new process.
type ledgerClient struct {
	t    *testing.T
	path string

	mu   sync.Mutex
	conn Conn
}

func (l *ledgerClient) current() Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil && l.conn.Err() == nil {
		return l.conn
	}
	s := fake(l.t, "ledger", func(d *Definition, _ *Deps) { d.Args = append(d.Args, l.path) })
	var c atomic.Value
	ready := make(chan struct{})
	l.conn = dialLegacy(l.t, s, func(ev Event) {
		if ev.ID != nil {
			<-ready
			_ = c.Load().(Conn).Answer(l.t.Context(), wire.ID(bytes.Clone(ev.ID)), Reply{Result: []byte(`{"action":"decline"}`)})
		}
	})
	c.Store(l.conn)
	close(ready)
	return l.conn
}

// call returns nil after an answer.
func (l *ledgerClient) call(ctx context.Context, r *Request) (err error) {
	for range 5 {
		if _, err = l.current().Call(ctx, r, func(Event) {}); !errors.Is(err, ErrNotSent) {
			return err
		}
	}
	return err
}

// Whatever a server does, it gets each call at most once, also when the call is repeated
// because it was not sent; it gets each call that it answers, and none that its caller was told
// to be unsent. A cancellation comes after its call. An answer to a question arrives if the
// server lives.
func TestAServerGetsEachCallAtMostOnce(t *testing.T) {
	t.Parallel()
	l := &ledgerClient{t: t, path: filepath.Join(t.TempDir(), "ledger")}
	const callers, each = 64, 60
	ends := make([]error, callers*each)
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := range each {
				key := caller*each + i
				ctx, cancel := context.WithTimeout(context.Background(), patience(key))
				ends[key] = l.call(ctx, ledgerCall(key))
				cancel()
			}
		})
	}
	all.Wait()
	last := l.current()
	eventually(t, "all questions of the last server are answered", func() bool {
		return last.Err() != nil || readLedger(t, l.path).unanswered == 0
	})
	last.Close()
	ledger := readLedger(t, l.path)
	for key, err := range ends {
		n := ledger.runs[key]
		if n > 1 || n == 0 && err == nil || n > 0 && errors.Is(err, ErrNotSent) {
			t.Errorf("call %d ran %d times: %v", key, n, err)
		}
	}
}

// patience is how long the caller of a call waits; a seventh of the calls is never answered.
func patience(key int) time.Duration {
	if key%7 == 0 {
		return time.Duration(rand.IntN(100)) * time.Millisecond
	}
	return []time.Duration{50 * time.Millisecond, 20 * time.Second}[key%2]
}

// ledgerCall has a line of any size, often near a limit of the writer.
func ledgerCall(key int) *Request {
	size := rand.IntN(200)
	switch n := rand.IntN(200); {
	case n == 0:
		size = queueRoom - rand.IntN(200)
	case n < 3:
		size = longestShared - rand.IntN(200)
	case n < 10:
		size = 4096 - rand.IntN(200)
	case n < 100:
		size = rand.IntN(20 << 10)
	}
	return &Request{Method: "tools/call", Params: fmt.Appendf(nil, `{"key":%d,"pad":"%s"}`, key, strings.Repeat("x", size))}
}

// ledger is what the servers have noted.
type ledger struct {
	runs       map[int]int // by key
	unanswered int         // questions of the last server
}

func readLedger(t *testing.T, path string) ledger {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l := ledger{runs: make(map[int]int)}
	var last string
	cancelled := make(map[string]bool)
	for entry := range strings.Lines(string(text)) {
		var pid, what, id, key string
		_, _ = fmt.Sscan(entry, &pid, &what, &id, &key)
		if pid != last { // one server runs at a time
			last, l.unanswered = pid, 0
			clear(cancelled)
		}
		switch what {
		case "run":
			n, _ := strconv.Atoi(key)
			l.runs[n]++
			if cancelled[id] {
				t.Errorf("the cancellation of call %d came first", n)
			}
		case "cancel":
			cancelled[id] = true
		case "ask":
			l.unanswered++
		case "answer":
			l.unanswered--
		default:
			t.Errorf("the ledger has %q", entry)
		}
	}
	return l
}
