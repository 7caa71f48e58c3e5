package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// serve prints the URL of a server and serves until standard input ends. It speaks Streamable
// HTTP, with sessions and event streams unless a flag says otherwise.
func serve(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	sse := flags.Bool("sse", false, "speak HTTP+SSE of 2024-11-05")
	stateless := flags.Bool("stateless", false, "serve without sessions")
	answers := flags.Bool("json", false, "answer with JSON")
	metas := flags.String("metas", "", "append the _meta of each call to this `file`, as a line of JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s := newServer(*metas)
	get := func(*http.Request) *mcp.Server { return s }
	var h http.Handler = mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: *stateless, JSONResponse: *answers})
	if *sse {
		h = mcp.NewSSEHandler(get, nil)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Printf("http://%s\n", l.Addr())
	return http.Serve(l, h)
}

type handler = func(context.Context, *mcp.CallToolRequest) (string, error)

// newServer returns the server. The tools whose names begin with test_ do what those of the
// conformance server do.
func newServer(metas string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	add := func(name string, h handler) {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(ctx context.Context, r *mcp.CallToolRequest, _ map[string]any) (*mcp.CallToolResult, any, error) {
			if metas != "" {
				if err := keep(metas, r.Params.Meta); err != nil {
					return nil, nil, err
				}
			}
			text, err := h(ctx, r)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, err
		})
	}
	says := func(text string) handler {
		return func(context.Context, *mcp.CallToolRequest) (string, error) { return text, nil }
	}
	add("test_simple_text", says("simple"))
	add("test_tool_with_progress", func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
		for n := range 3 {
			_ = progress(ctx, r, float64(n)) // with JSON answers there may be no stream for it
		}
		return "done", nil
	})
	add("test_elicitation", elicit)
	add("test_trigger_tool_change", func(context.Context, *mcp.CallToolRequest) (string, error) {
		add("more", says("more"))
		return "added", nil
	})
	add("work", work)
	for _, name := range []string{"echo", "held"} {
		add(name, says("result-canary"))
	}
	return s
}

// keep appends a _meta to a file, by one write.
func keep(file string, meta mcp.Meta) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	return json.NewEncoder(f).Encode(meta)
}

func progress(ctx context.Context, r *mcp.CallToolRequest, n float64) error {
	return r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: n})
}

func elicit(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
	res, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "who?", RequestedSchema: map[string]any{"type": "object"}})
	if err != nil {
		return "", err
	}
	return "action=" + res.Action, nil
}

// work reports progress, logs, and asks. It begins when the first report can be sent: with JSON
// answers that is when the listening stream is open.
func work(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
	for progress(ctx, r, 1) != nil {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
	for _, n := range []float64{2, 3} {
		if err := progress(ctx, r, n); err != nil {
			return "", err
		}
	}
	//lint:ignore SA1019 a server of the legacy era sends logs
	if err := r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "warning", Data: "logged"}); err != nil {
		return "", err
	}
	return elicit(ctx, r)
}
