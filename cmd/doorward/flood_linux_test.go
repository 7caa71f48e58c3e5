package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdFlood makes N calls of a tool, AT-ONCE at a time, and prints how many got which HTTP
// status. When all run at once, each has a connection of its own.
//
//	flood N AT-ONCE PATH TOOL ARGUMENTS [-unix] [-bearer TOKEN]
func cmdFlood(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) >= 5, "flood N AT-ONCE PATH TOOL ARGUMENTS [-unix] [-bearer TOKEN]")
	f := &flood{url: ts.Getenv("URL") + args[2], tool: args[3], arguments: args[4], got: map[string]int{}}
	total, err := strconv.Atoi(args[0])
	ts.Check(err)
	atOnce, err := strconv.Atoi(args[1])
	ts.Check(err)
	transport := &http.Transport{MaxIdleConnsPerHost: atOnce}
	defer transport.CloseIdleConnections()
	for rest := args[5:]; len(rest) > 0; rest = rest[1:] {
		switch {
		case rest[0] == "-unix":
			f.url = "http://localhost" + args[2]
			transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", ts.Getenv("SOCK"))
			}
		case rest[0] == "-bearer" && len(rest) > 1:
			f.bearer, rest = rest[1], rest[1:]
		default:
			ts.Fatalf("flood: %s", rest[0])
		}
	}
	f.client = &http.Client{Transport: transport, Timeout: 2 * time.Minute}
	begun := time.Now()
	f.run(total, atOnce)
	ts.Logf("%d calls in %s", total, time.Since(begun).Round(time.Millisecond))
	for status, n := range f.got {
		fmt.Fprintf(ts.Stdout(), "%d: %s\n", n, status)
	}
}

type flood struct {
	client                       *http.Client
	url, tool, arguments, bearer string

	mu  sync.Mutex
	got map[string]int // answers by status
}

func (f *flood) run(total, atOnce int) {
	var wg sync.WaitGroup
	ids := make(chan int)
	for range atOnce {
		wg.Go(func() {
			for id := range ids {
				f.count(f.call(id))
			}
		})
	}
	for id := range total {
		ids <- id
	}
	close(ids)
	wg.Wait()
}

func (f *flood) count(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got[what]++
}

// call makes one call and returns its status, or what is wrong with the answer.
func (f *flood) call(id int) string {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{%s,"name":%s,"arguments":%s}}`, id, meta, quote(f.tool), f.arguments)
	req, err := http.NewRequest(http.MethodPost, f.url, bytes.NewReader([]byte(body)))
	if err != nil {
		return err.Error()
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {f.tool}}
	if f.bearer != "" {
		req.Header.Set("Authorization", "Bearer "+f.bearer)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	if resp.StatusCode == http.StatusOK && !strings.Contains(string(answer), fmt.Sprintf(`"id":%d,"result"`, id)) {
		return "200 without its result"
	}
	return resp.Status
}
