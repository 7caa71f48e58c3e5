package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// limit is that of one round.
const limit = time.Minute

// lasting is a client that outlives its server, like test/clients/restart.mjs.
type lasting struct {
	session *mcp.ClientSession
	prefix  string // of names on the aggregate
}

// round is the client's report after each restart.
type round struct {
	Line  string `json:"line"`
	Tools int    `json:"tools,omitempty"`
	Echo  string `json:"echo,omitempty"`
	Ask   string `json:"ask,omitempty"`
	Error string `json:"error,omitempty"`
}

// restart calls the server in its argument and prints waiting. Then, for each line of standard
// input, it lists, calls, and answers the server's question, in the same session.
func restart(args []string) error {
	var spec struct{ URL, Prefix string }
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &spec) != nil {
		return errors.New("usage: sdk restart SPEC")
	}
	ctx := context.Background()
	c := mcp.NewClient(&mcp.Implementation{Name: "go-sdk", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"value": "yes"}}, nil
		}})
	session, err := c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: spec.URL}, nil)
	if err != nil {
		return err
	}
	defer session.Close()
	l := &lasting{session, spec.Prefix}
	if _, err := l.call(ctx, "echo", map[string]any{"before": true}); err != nil {
		return err
	}
	fmt.Println("waiting")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := json.NewEncoder(os.Stdout).Encode(l.round(lines.Text())); err != nil {
			return err
		}
	}
	return nil
}

func (l *lasting) round(line string) (r round) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r.Line = line
	list, err := l.session.ListTools(ctx, nil)
	if err == nil {
		r.Tools = len(list.Tools)
		r.Echo, err = l.call(ctx, "echo", map[string]any{"after": line})
	}
	if err == nil {
		r.Ask, err = l.call(ctx, "ask", map[string]any{})
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// call returns the first text of a tool's result.
func (l *lasting) call(ctx context.Context, tool string, args map[string]any) (string, error) {
	r, err := l.session.CallTool(ctx, &mcp.CallToolParams{Name: l.prefix + tool, Arguments: args})
	if err != nil {
		return "", err
	}
	if len(r.Content) > 0 {
		if text, ok := r.Content[0].(*mcp.TextContent); ok {
			return text.Text, nil
		}
	}
	return "", fmt.Errorf("%s: no text", tool)
}
